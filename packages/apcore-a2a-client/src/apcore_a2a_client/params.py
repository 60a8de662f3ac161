"""What operations make of what their callers give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from time import monotonic
from typing import Any

from .errors import A2AProtocolError, Json
from .tasks import Message, TaskState

Content = str | bytes | dict[str, Any] | Sequence[Any] | Message
"""What a message is made of: text, data, a list of parts, or the message itself."""


def deadline(timeout: float | None) -> float:
    """When *timeout* seconds from now are over, by the monotonic clock."""
    return inf if timeout is None else monotonic() + timeout


def checked_id(given: Any) -> str:
    """An id, if it is one.

    Raises:
        ValueError: It is not.
    """
    if not isinstance(given, str) or not given:
        raise ValueError(f"An id is a text that is not empty, not {given!r}")
    return given


def state_of(word: str) -> TaskState:
    """A state by either of its spellings.

    Raises:
        ValueError: There is no such state.
    """
    try:
        return TaskState.read(word)
    except A2AProtocolError:
        known = ", ".join(state for state in TaskState if state != "unknown")
        raise ValueError(f"There is no state {word!r}, but {known}") from None


def given(**params: Any) -> Json:
    """Those of *params* that are given."""
    return {name: value for name, value in params.items() if value is not None}


def message_params(
    message: Content,
    skill: str | None,
    context_id: str | None,
    task_id: str | None,
    metadata: Mapping[str, Any] | None,
) -> Json:
    """The params of a message to be sent."""
    sent = Message.of(message, context_id=context_id, task_id=task_id)
    about = {**(metadata or {}), **given(skillId=skill)}
    return given(message=sent.to_dict(), metadata=about or None)
