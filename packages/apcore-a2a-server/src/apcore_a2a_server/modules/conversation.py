"""The A2A conversation of a call, and the apcore Context that passes it to modules."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

from apcore import CancelToken, Context, ModuleError
from apcore.trace_context import TraceContext
from apcore_a2a_core import Identity

INPUT_REQUIRED = "INPUT_REQUIRED"
"""The code of an error that asks for more input."""


class InputRequiredError(ModuleError):
    """A module needs more input: its task pauses until the next message.

    A module need not import it: any `apcore.ModuleError` with the code ``INPUT_REQUIRED`` does
    the same.

    Args:
        question: The question for the client.
        data: JSON that accompanies the question, for example choices or a JSON Schema.
    """

    def __init__(self, question: str, data: Any = None) -> None:
        super().__init__(INPUT_REQUIRED, question, {"data": data})


def is_for_input(error: BaseException) -> bool:
    """Return whether a module asks for more input with *error*."""
    return getattr(error, "code", None) == INPUT_REQUIRED


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


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation of a call, which modules get as `context.services`.

    Its members are also in `context.data`, under ``ext.a2a.task_id``, ``ext.a2a.context_id``,
    ``ext.a2a.history`` and ``ext.a2a.parts``.

    Attributes:
        task_id: The id of the task of the call.
        context_id: The id of the conversation.
        history: The messages of the conversation before this run, oldest first, in the JSON
            format of A2A 1.0: ``{"messageId", "role", "parts", …}``. After a pause it includes
            the question and the answer. Messages are converted to JSON on access.
        parts: The parts of the message except the one that became the input, unchanged.

    Example:
        ```python
        class Greeter:
            description = "Greets by name."
            input_schema = output_schema = None

            def execute(self, inputs, context):
                if len(inputs["text"]) < 2:
                    context.services.ask("What is your name?")
                return {"greeting": f"Hello {inputs['text']}"}
        ```
    """

    task_id: str
    context_id: str
    history: Sequence[dict[str, Any]] = ()
    parts: Sequence[Any] = ()

    def ask(self, question: str, data: Any = None) -> NoReturn:
        """Pause the task until the client answers; the module is then called again.

        The inputs of that call are those of this one, updated with those of the answer.

        Args:
            question: The question for the client.
            data: JSON that accompanies the question.

        Raises:
            InputRequiredError: Always; do not catch it.
        """
        raise InputRequiredError(question, data)

    def data(self) -> dict[str, Any]:
        """Return the members for `context.data`."""
        return {
            "ext.a2a.task_id": self.task_id,
            "ext.a2a.context_id": self.context_id,
            "ext.a2a.history": self.history,
            "ext.a2a.parts": self.parts,
        }


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
