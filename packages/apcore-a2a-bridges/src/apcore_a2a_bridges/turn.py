"""One turn of an agent: its inputs, its conversation, and its questions to the user."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn
from urllib.parse import quote

from apcore import Context
from apcore_a2a_core import File, Services, Usage
from apcore_a2a_core.authoring import USAGE, add_usage

Json = dict[str, Any]

ANSWER = "answer"
"""Name of the input that gets the text of an answer."""


class TextMessage(NamedTuple):
    """The text of a message in the conversation.

    Attributes:
        role: The author.
        text: The text parts of the message, one per line; empty if there are none.
    """

    role: Literal["user", "agent"]
    text: str


class _NoServices:
    """A replacement for the services of A2A in a call outside of an A2A server."""

    task_id = context_id = message_id = principal = ""
    history: Sequence[Json] = ()
    parts: Sequence[Any] = ()
    request_metadata: Mapping[str, Any] = MappingProxyType({})
    answer: Sequence[Any] | None = None
    approved: bool | None = None
    state: Any = None
    ask = Services.ask
    approve = Services.approve

    def __init__(self) -> None:
        self.metadata: Json = {}

    async def progress(self, text: str, data: Any = None) -> None:
        """Drop the message: there is no task whose readers could get it."""


@dataclass(slots=True, eq=False)
class Turn:
    """One run of an agent. After a pause, the same task gets another turn, with the answer.

    Attributes:
        inputs: The inputs of the call, as JSON.
        context: The apcore Context, with the identity of the caller and the cancel token.
        text: The text of the user; the function `before` of the agent may change it.
        answer_field: The input that gets an answer in text; None if the schema of the inputs
            forbids undeclared members.

    Example:
        ```python
        from apcore_a2a_bridges import Turn


        async def book(text: str, turn: Turn) -> str:
            if turn.answer is None:
                turn.ask("For which day?", choices=["Friday", "Saturday"])
            return f"{text}, on {turn.answer}"
        ```
    """

    inputs: Json
    context: Context[Any]
    text: str = ""
    answer_field: str | None = ANSWER
    _services: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        services = self.context.services
        self._services = services if hasattr(services, "context_id") else _NoServices()

    @property
    def task_id(self) -> str:
        """The id of the task; outside of A2A, the id of the trace."""
        return self._services.task_id or self.context.trace_id

    @property
    def context_id(self) -> str:
        """The id of the conversation; outside of A2A, the id of the trace."""
        return self._services.context_id or self.context.trace_id

    @property
    def message_id(self) -> str:
        """The id of the message that started or resumed the task; outside of A2A, empty."""
        return str(self._services.message_id)

    @property
    def principal(self) -> str:
        """A unique id of the caller; outside of A2A, the id of the identity; empty if anonymous."""
        identity = self.context.identity
        apcore_id = "" if identity is None else identity.id
        return str(getattr(self._services, "principal", "") or apcore_id)

    @property
    def session_id(self) -> str:
        """The id for a framework's own memory, made of the principal and the `context_id`.

        Clients choose the id of a conversation. Without the principal, one caller could continue
        the session of another.
        """
        return f"{quote(self.principal, safe='@:')}/{self.context_id}"

    @property
    def history(self) -> Sequence[Json]:
        """The messages of the conversation before this turn, as JSON of A2A 1.0.

        After a pause, they include the question and the answer.
        """
        history: Sequence[Json] = self._services.history
        return history

    @property
    def messages(self) -> list[TextMessage]:
        """The texts of `history`, for agents without a memory."""
        return [
            TextMessage(
                "agent" if message.get("role") == "ROLE_AGENT" else "user",
                joined_text(message.get("parts", ())),
            )
            for message in self.history
        ]

    @property
    def parts(self) -> Sequence[Json]:
        """The parts of the message that are not inputs, as JSON of A2A 1.0."""
        parts: Sequence[Json] = self._services.parts
        return parts

    @property
    def files(self) -> list[File]:
        """The files of the message that did not become inputs."""
        return [file for part in self.parts if (file := file_from(part)) is not None]

    @property
    def request_metadata(self) -> Mapping[str, Any]:
        """The metadata of the request; read-only, and chosen by the client."""
        metadata: Mapping[str, Any] = self._services.request_metadata
        return metadata

    @property
    def metadata(self) -> Json:
        """The metadata of the task, to fill with JSON; see `Services.metadata`."""
        metadata: Json = self._services.metadata
        return metadata

    @property
    def state(self) -> Any:
        """The `state` passed to `ask` or `approve` in the turn before; None in the first turn."""
        return self._services.state

    @property
    def approved(self) -> bool | None:
        """The user's answer to `approve`; None if this turn does not follow an `approve`."""
        approved: bool | None = self._services.approved
        return approved

    @property
    def answer_parts(self) -> Sequence[Json] | None:
        """The parts of the answer, as JSON of A2A 1.0; None in the first turn."""
        parts: Sequence[Json] | None = self._services.answer
        return parts

    @property
    def answer(self) -> Any:
        """The user's answer to `ask`: its data, or else its text; None in the first turn.

        An answer in text is checked against the choices and the schema of the question, and
        converted; without an `answer_field`, it stays text.
        """
        parts = self.answer_parts
        if parts is None:
            return None
        data = [part["data"] for part in parts if "data" in part]
        if data:
            return data[0] if len(data) == 1 else data
        text = joined_text(parts)
        return self.inputs.get(self.answer_field, text) if text and self.answer_field else text

    @property
    def is_canceled(self) -> bool:
        """Whether the task has been canceled, for functions that run in a thread."""
        token = self.context.cancel_token
        return token is not None and token.is_cancelled

    def ask(
        self,
        question: str,
        data: Any = None,
        *,
        choices: Iterable[Any] | None = None,
        schema: Any = None,
        state: Any = None,
        parts: Iterable[Json] | None = None,
    ) -> NoReturn:
        """Pause the task until the user answers; the agent then gets another turn.

        Args:
            question: The question.
            data: JSON that accompanies the question.
            choices: The values that the answer may have.
            schema: JSON Schema of the answer, or a pydantic model.
            state: JSON for the next turn, as `state`; clients never see it.
            parts: Parts that follow the question in its message, as JSON of A2A 1.0, for clients
                that understand them.

        Raises:
            InputRequiredError: Always; do not catch it.
        """
        self._services.ask(
            question,
            data,
            field=self.answer_field,
            choices=choices,
            schema=schema,
            state=state,
            parts=parts,
        )
        raise AssertionError("ask always raises")

    def approve(
        self,
        question: str,
        data: Any = None,
        *,
        state: Any = None,
        parts: Iterable[Json] | None = None,
    ) -> NoReturn:
        """Pause the task until the user says yes or no; the next turn has the answer in `approved`.

        Args:
            question: The question.
            data: JSON that accompanies the question, for example the arguments of a tool.
            state: JSON for the next turn, as `state`; clients never see it.
            parts: Parts that follow the question in its message, as for `ask`.

        Raises:
            ApprovalRequired: Always; do not catch it.
        """
        self._services.approve(question, data, state=state, parts=parts)
        raise AssertionError("approve always raises")

    async def progress(self, text: str, data: Any = None) -> None:
        """Send a progress message to readers of the task's stream."""
        await self._services.progress(text, data)

    def add_usage(self, usage: Usage) -> None:
        """Add tokens to those in the metadata of the task."""
        self.metadata[USAGE] = add_usage(self.metadata.get(USAGE), usage)


def joined_text(parts: Iterable[Mapping[str, Any]]) -> str:
    r"""Return the texts of parts, one per line.

    >>> joined_text([{"text": "Hello"}, {"data": 1}, {"text": "you"}])
    'Hello\nyou'
    """
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def file_from(part: Mapping[str, Any]) -> File | None:
    """Return the file in a part, given as JSON of A2A 1.0; None if the part is not a file.

    >>> file_from({"raw": "YSxi", "filename": "table.csv", "mediaType": "text/csv"}).data
    b'a,b'
    """
    name, media_type = str(part.get("filename", "")), str(part.get("mediaType", ""))
    raw, url = part.get("raw"), part.get("url")
    if isinstance(raw, str):
        return File(b64decode(raw), name=name, media_type=media_type)
    if isinstance(url, str):
        return File(url=url, name=name, media_type=media_type)
    return None
