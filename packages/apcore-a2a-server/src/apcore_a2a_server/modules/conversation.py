"""The A2A conversation of a call, and the apcore Context that passes it to modules."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, overload

from apcore import CancelToken, Context, ModuleError
from apcore.trace_context import TraceContext
from apcore_a2a_core import INPUT_REQUIRED, ApprovalRequired, Identity, InputRequiredError


class InputRequiredModuleError(InputRequiredError, ModuleError):
    """A module's request for input as an error of apcore, which apcore passes on unchanged.

    Other errors are wrapped in a `ModuleExecuteError`: an outer module could not catch them.

    Args:
        error: The module's error.
    """

    def __init__(self, error: InputRequiredError) -> None:
        ModuleError.__init__(self, error.code, error.message, error.details)


def input_request(error: BaseException) -> BaseException | None:
    """Return the request for more input that *error* is, or that apcore has wrapped in it."""
    for each in (error, getattr(error, "cause", None)):
        if getattr(each, "code", None) == INPUT_REQUIRED:
            return each
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


Tell: TypeAlias = Callable[[str, Any], Awaitable[None]]
"""Writes an event with a text and data about the work so far."""


async def _drop_progress(text: str, data: Any) -> None:
    """Drop a message about the work so far: there is no task."""


@dataclass(slots=True, eq=False)  # a frozen one takes twice as long to make
class Conversation:
    """The conversation of a call, which modules get as `context.services`.

    It is the `Services` of `apcore_a2a_core`. What it knows is also in `context.data`, under
    ``ext.a2a.task_id``, ``ext.a2a.history`` and so on.

    Attributes:
        task_id: The id of the task of the call.
        context_id: The id of the conversation.
        history: The messages of the conversation before this run, oldest first, in the JSON
            format of A2A 1.0: ``{"messageId", "role", "parts", …}``. After a pause it includes
            the question and the answer. Messages are converted to JSON on access.
        parts: The parts of the message except the one that became the input, unchanged.
        message_id: The id of the message that started or resumed the task.
        request_metadata: The metadata of the request, and that of its message over it.
        answer: The parts of the message that resumed the task; None in the first run.
        approved: The client's answer to `approve`; None otherwise.
        state: The `state` of the `ask` or `approve` that this run is the answer to.
        metadata: Metadata for the task, for the module to fill.
        tell: Writes progress as events of the task.

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
    tell: Tell = _drop_progress

    def ask(
        self,
        question: str,
        data: Any = None,
        *,
        field: str | None = None,
        choices: Iterable[Any] | None = None,
        schema: Any = None,
        state: Any = None,
    ) -> NoReturn:
        """Pause the task until the client answers; the module is then called again.

        The inputs of that call are those of this one, updated with those of the answer. Text
        becomes the input *field*, converted by its schema; without a field, it becomes the one
        required input that is missing, or `answer`. Text that does not fit is asked for again.

        Args:
            question: The question for the client.
            data: JSON that accompanies the question.
            field: The input that the answer becomes.
            choices: The values that the answer may have, such as texts or numbers.
            schema: JSON Schema of the answer, or a pydantic model: of the field if there is one,
                else of several inputs.
            state: JSON for the next run, as `services.state`; clients never see it.

        Raises:
            InputRequiredError: Always; do not catch it.
        """
        raise InputRequiredError(
            question, data, field=field, choices=choices, schema=schema, state=state
        )

    def approve(self, question: str, data: Any = None, *, state: Any = None) -> NoReturn:
        """Pause the task until the client answers yes or no; the module is then called again.

        The inputs of that call are those of this one, and `approved` has the answer.

        Args:
            question: The question for the client.
            data: JSON that accompanies the question, for example the arguments of a tool.
            state: JSON for the next run, as `services.state`; clients never see it.

        Raises:
            ApprovalRequired: Always; do not catch it.
        """
        raise ApprovalRequired(question, data, state=state)

    def progress(self, text: str, data: Any = None) -> Awaitable[None]:
        """Tell readers of the task's stream about the work so far.

        An asynchronous module awaits it. In a synchronous module, which runs in a thread, the
        event is written when the method returns.

        Args:
            text: The message, of up to 10,000 characters; the rest is cut off.
            data: JSON that accompanies it, of up to 64 KiB.

        Raises:
            OutputError: The data is no JSON, or too large.
        """
        return self.tell(text, data)

    def data(self) -> dict[str, Any]:
        """Return the members for `context.data`."""
        data: dict[str, Any] = {
            "ext.a2a.task_id": self.task_id,
            "ext.a2a.context_id": self.context_id,
            "ext.a2a.history": self.history,
            "ext.a2a.parts": self.parts,
            "ext.a2a.message_id": self.message_id,
            "ext.a2a.request_metadata": self.request_metadata,
        }
        if self.answer is not None:
            data["ext.a2a.answer"] = self.answer
            data["ext.a2a.approved"] = self.approved
            data["ext.a2a.state"] = self.state
        return data


def create_context(
    *,
    token: CancelToken,
    seconds: float,
    identity: Identity | None = None,
    headers: Mapping[str, str] | None = None,
    conversation: Conversation,
) -> "Context[Conversation]":
    """Return an apcore Context for one call.

    Args:
        token: The call's CancelToken.
        seconds: The time limit of the call, including nested calls.
        identity: The apcore Identity of the caller.
        headers: The headers of the request; its `traceparent` continues a trace (W3C Trace
            Context).
        conversation: The value of `context.services`, and the source of `context.data`.
    """
    factory: Any = Context  # its type parameter for `services` can't be inferred
    context: Context[Conversation] = factory.create(
        identity=identity,
        trace_parent=TraceContext.extract(dict(headers or {})),
        cancel_token=token,
        data=conversation.data(),
        services=conversation,
        global_deadline=time.time() + seconds,
    )
    return context
