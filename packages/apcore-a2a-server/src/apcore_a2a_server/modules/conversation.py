"""The A2A conversation of a call, and the apcore Context that passes it to modules."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, overload

from apcore import CancelToken, Context, ModuleError
from apcore.trace_context import TraceParent, parse_tracestate
from apcore_a2a_core import (
    INPUT_REQUIRED,
    Identity,
    InputRequiredError,
    OutputError,
    Services,
    to_json,
)
from apcore_a2a_core.authoring import USAGE, add_usage
from apcore_a2a_core.values import size_of

from apcore_a2a_server.trace_context import Trace


class InputRequiredModuleError(InputRequiredError, ModuleError):
    """A module's request for input as an error of apcore, which apcore passes on unchanged.

    apcore wraps other errors in a `ModuleExecuteError`, so an outer module could not catch the
    `InputRequiredError` of a nested call.

    Args:
        error: The module's error.
    """

    def __init__(self, error: InputRequiredError) -> None:
        ModuleError.__init__(self, error.code, error.message, error.details)


def input_request(error: BaseException) -> BaseException | None:
    """Return *error* or its cause, whichever is a request for more input; None if neither is."""
    for candidate in (error, getattr(error, "cause", None)):
        if getattr(candidate, "code", None) == INPUT_REQUIRED:
            return candidate
    return None


class History(Sequence[dict[str, Any]]):
    """Messages that are converted to JSON on access, since most modules do not read them.

    Args:
        messages: The messages.
        as_json: The function that converts a message.
    """

    def __init__(self, messages: Sequence[Any], as_json: Callable[[Any], dict[str, Any]]) -> None:
        self._messages = messages
        self._as_json = as_json

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self._as_json(message) for message in self._messages[index]]
        return self._as_json(self._messages[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        return repr([*self])


ReportProgress: TypeAlias = Callable[[str, Any], Awaitable[None]]
"""Function that writes a progress event with a text and data."""


async def _drop_progress(text: str, data: Any) -> None:
    """Drop a progress message, since there is no task."""


@dataclass(slots=True, eq=False)  # a frozen dataclass takes twice as long to make
class Conversation:
    """The conversation of a call, which modules get as `context.services`.

    It implements `Services` of `apcore_a2a_core`, which describes the members. Their values are
    also in `context.data`, under ``ext.a2a.task_id``, ``ext.a2a.history`` and so on, except
    `metadata`, and except `answer`, `approved` and `state` before there is an answer.

    Attributes:
        report: Writes progress as events of the task.

    Example:
        ```python
        class Greeter:
            description = "Greets by name."
            input_schema = output_schema = None

            def execute(self, inputs, context):
                if len(inputs["text"]) < 2:
                    context.services.ask("What is your name?", field="text")
                return {"greeting": f"Hello {inputs['text']}"}
        ```
    """

    task_id: str
    context_id: str
    history: Sequence[dict[str, Any]] = ()
    parts: Sequence[Any] = ()
    message_id: str = ""
    request_metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answer: Sequence[Any] | None = None
    approved: bool | None = None
    state: Any = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    report: ReportProgress = _drop_progress
    principal: str = ""

    ask = Services.ask
    approve = Services.approve

    def progress(self, text: str, data: Any = None) -> Awaitable[None]:
        """Report the work so far to readers of the task's stream; see `Services.progress`."""
        return self.report(text, data)

    def data(self) -> dict[str, Any]:
        """Return the members for `context.data`."""
        data: dict[str, Any] = {
            "ext.a2a.task_id": self.task_id,
            "ext.a2a.context_id": self.context_id,
            "ext.a2a.history": self.history,
            "ext.a2a.parts": self.parts,
            "ext.a2a.message_id": self.message_id,
            "ext.a2a.principal": self.principal,
            "ext.a2a.request_metadata": self.request_metadata,
        }
        if self.answer is not None:
            data["ext.a2a.answer"] = self.answer
            data["ext.a2a.approved"] = self.approved
            data["ext.a2a.state"] = self.state
        return data


MAX_METADATA = 64 * 1024
"""Maximum size of the metadata that a module adds to its task, and of progress data, in bytes."""
RESERVED_METADATA = frozenset({"skillId", "apcore"})
"""Members of a task's metadata that only the server may set."""


def added_metadata(reported: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the metadata that a module has added, as JSON; None if there are none.

    Raises:
        OutputError: The metadata are not JSON, are too large, or have reserved members.
    """
    if not reported:
        return None
    # `add_usage` converts a Usage to JSON
    usage = {USAGE: add_usage(None, reported[USAGE])} if USAGE in reported else {}
    metadata: dict[str, Any] = to_json({**reported, **usage})
    if reserved := RESERVED_METADATA & metadata.keys():
        raise OutputError(f"metadata with the reserved member {min(reserved)}")
    if size_of(metadata) > MAX_METADATA:
        raise OutputError(f"metadata of more than {MAX_METADATA} bytes")
    return metadata


def create_context(
    *,
    token: CancelToken,
    seconds: float,
    identity: Identity | None = None,
    trace: Trace,
    conversation: Conversation,
) -> "Context[Conversation]":
    """Return an apcore Context for one call.

    Args:
        token: The call's CancelToken.
        seconds: The time limit of the call, including nested calls.
        identity: The apcore Identity of the caller.
        trace: The span of the call.
        conversation: The value of `context.services`, and the source of `context.data`.
    """
    factory: Any = Context  # its type parameter for `services` can't be inferred
    # not by `Context.create`, which checks each digit of the trace id: that takes 2 percent of the
    # time of a short `SendMessage`
    context: Context[Conversation] = factory(
        trace_id=trace.trace_id,
        identity=identity,
        cancel_token=token,
        data={**conversation.data(), **_trace_members(trace.flags, trace.state)},
        services=conversation,
        global_deadline=time.time() + seconds,
    )
    return context


@lru_cache(maxsize=32)
def _trace_members(flags: str, state: str) -> Mapping[str, Any]:
    """Return the members of `context.data` in which apcore keeps the flags and state of a trace."""
    parent = TraceParent("00", "1" * 32, "1" * 16, flags, tuple(parse_tracestate(state)))
    factory: Any = Context
    data: dict[str, Any] = factory.create(trace_parent=parent).data
    return data
