"""Arguments of operations: validation, and conversion to the protocol's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any

from .errors import A2AProtocolError, Json
from .tasks import Message, TaskState

Content = str | bytes | dict[str, Any] | Sequence[Any] | Message
"""The content of a message: text, file bytes, data or a `Part`; a list of these; or a `Message`."""


def check_id(value: Any) -> str:
    """Return *value* if it can be an id.

    Raises:
        ValueError: It is not a string, or it is empty.
    """
    if not isinstance(value, str) or not value:
        raise ValueError(f"An id must be a non-empty string, not {value!r}")
    return value


def check_callback(value: Callable[[], object] | None) -> Callable[[], object] | None:
    """Return *value* if it can be the callback of `stream`.

    Raises:
        TypeError: It is not callable, or it is async: it would not be awaited.
    """
    if value is not None and (not callable(value) or iscoroutinefunction(value)):
        raise TypeError("on_restart must be a synchronous function")
    return value


def parse_state(spelling: str) -> TaskState:
    """Return the state that is spelled *spelling* in A2A 1.0 or 0.3.

    Raises:
        ValueError: There is no such state.
    """
    try:
        return TaskState.read(spelling)
    except A2AProtocolError:
        expected = ", ".join(state for state in TaskState if state != "unknown")
        raise ValueError(f"Unknown task state {spelling!r}: expected {expected}") from None


def without_none(**params: Any) -> Json:
    """Return *params* without those that are None."""
    return {name: value for name, value in params.items() if value is not None}


def message_params(
    message: Content,
    skill: str | None,
    context_id: str | None,
    task_id: str | None,
    metadata: Mapping[str, Any] | None,
) -> Json:
    """Return the parameters for sending a message: the message, and the metadata of the request."""
    sent_message = Message.of(message, context_id=context_id, task_id=task_id)
    request_metadata = {**(metadata or {}), **without_none(skillId=skill)}
    return without_none(message=sent_message.to_dict(), metadata=request_metadata or None)
