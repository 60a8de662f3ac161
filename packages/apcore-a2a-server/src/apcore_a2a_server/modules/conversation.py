"""The conversation that a module is called in, and the Context that it finds it in."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

from apcore import CancelToken, Context, ModuleError
from apcore.trace_context import TraceContext
from apcore_a2a_core import Identity

INPUT_REQUIRED = "INPUT_REQUIRED"
"""The code of the error with which a module asks for more input."""


class InputRequiredError(ModuleError):
    """A module needs more input: its task pauses, and the next message goes on with it.

    A module need not import it: any `apcore.ModuleError` with the code ``INPUT_REQUIRED`` does
    the same.

    Args:
        question: What the client is asked.
        data: What goes with the question, as JSON: choices, say, or a JSON Schema.
    """

    def __init__(self, question: str, data: Any = None) -> None:
        super().__init__(INPUT_REQUIRED, question, {"data": data})


def is_for_input(error: BaseException) -> bool:
    """Whether a module asks for more input with *error*."""
    return getattr(error, "code", None) == INPUT_REQUIRED


class History(Sequence[dict[str, Any]]):
    """Messages that are turned into JSON when they are looked at, for most modules do not look.

    Args:
        messages: The messages.
        as_json: Makes the JSON of one.
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

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr([*self])


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation of a call: what a module finds in `context.services`.

    The same is in `context.data`, under ``ext.a2a.task_id``, ``ext.a2a.context_id``,
    ``ext.a2a.history`` and ``ext.a2a.parts``.

    Attributes:
        task_id: The id of the task that the module runs for.
        context_id: The id of the conversation.
        history: The messages of the conversation before this run, oldest first, in the JSON
            form of A2A 1.0: ``{"messageId", "role", "parts", …}``. A run that goes on after a
            pause finds the question and the answer in it too. Each is made when it is looked at.
        parts: The parts of the message beside the one that became the input, as they came.

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
        """Pause the task until the client has sent more; the module is then called anew.

        Its inputs are those of this call, with those of the new message over them.

        Args:
            question: What the client is asked.
            data: What goes with the question, as JSON.

        Raises:
            InputRequiredError: Always; let it pass.
        """
        raise InputRequiredError(question, data)

    def data(self) -> dict[str, Any]:
        """The same for `context.data`."""
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
        seconds: How long the call and all it calls may take.
        identity: The apcore Identity of the caller.
        headers: The request's; a `traceparent` in it is gone on with (W3C Trace Context).
        conversation: What modules find in `context.services` and `context.data`.
    """
    factory: Any = Context  # whose type of `services` is open in apcore
    context: Context[Conversation] = factory.create(
        identity=identity,
        trace_parent=TraceContext.extract(dict(headers or {})),
        cancel_token=token,
        data=conversation.data(),
        services=conversation,
        global_deadline=time.time() + seconds,
    )
    return context
