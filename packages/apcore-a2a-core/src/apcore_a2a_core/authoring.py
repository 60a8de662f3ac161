"""Names that authors of modules import: the services of a call, questions, progress, files.

Nothing here needs the server or apcore, so that a module can be tested without either.

Exception
└── InputRequiredError    a module asks for more input, so that its task pauses
    └── ApprovalRequired  a module asks for a yes or a no
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

INPUT_REQUIRED = "INPUT_REQUIRED"
"""The code of an error that asks for more input."""


class InputRequiredError(Exception):
    """A module needs more input: its task pauses until the next message.

    A module need not import it: any `apcore.ModuleError` with the code ``INPUT_REQUIRED`` and
    these details does the same.

    Args:
        question: The question for the client.
        data: JSON that accompanies the question.
        field: The input that an answer in text becomes.
        choices: The values that the answer may have.
        schema: JSON Schema of the answer, or a pydantic model.
        state: JSON for the next run of the module, as `services.state`; clients never see it.

    Attributes:
        code: Always ``INPUT_REQUIRED``.
        message: The question.
        details: The other arguments by their names.

    >>> InputRequiredError("For which day?", field="day", choices=["Friday"]).details["choices"]
    ['Friday']
    """

    code = INPUT_REQUIRED

    def __init__(
        self,
        question: str,
        data: Any = None,
        *,
        field: str | None = None,
        choices: Iterable[Any] | None = None,
        schema: Any = None,
        state: Any = None,
    ) -> None:
        super().__init__(question)
        self.message = question
        if hasattr(schema, "model_json_schema"):
            schema = schema.model_json_schema()
        listed = None if choices is None else [*choices]
        members = {"field": field, "choices": listed, "schema": schema}
        given = {name: member for name, member in members.items() if member is not None}
        self.details: dict[str, Any] = {"data": data, "state": state, **given}


class ApprovalRequired(InputRequiredError):
    """A module needs a yes or a no: its task pauses until the client has given one.

    Its details have ``"approval": True`` too; otherwise it is like its base class.
    """

    def __init__(self, question: str, data: Any = None, *, state: Any = None) -> None:
        super().__init__(question, data, state=state)
        self.details["approval"] = True


@dataclass(frozen=True, slots=True)
class Progress:
    """A message about the work so far, which a streaming module yields between its chunks.

    Readers of the task's stream get it as an event; it is in no history and in no artifact.

    Attributes:
        text: The message.
        data: JSON that accompanies it.
    """

    text: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class File:
    """A file in the output of a module: a member of it, or an item of a list that is a member.

    Attributes:
        data: Its bytes; None if it has a `url`.
        url: Where clients find it; None if it has `data`.
        name: Its name.
        media_type: Its media type; by default, that of its name, or else of its first bytes.

    Raises:
        ValueError: It has both data and a URL, or neither.

    >>> File(b"a,b", name="table.csv").name
    'table.csv'
    """

    data: bytes | bytearray | None = None
    url: str | None = None
    name: str = ""
    media_type: str = ""

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise ValueError("A file has either data or a URL")


class Services(Protocol):
    """The A2A conversation of a call, which modules get as `context.services`.

    Outside of A2A, `context.services` is None or another object.

    >>> def greet(inputs: dict[str, Any], services: Services) -> dict[str, Any]:
    ...     return {"greeting": f"Hello, message {services.message_id}"}
    """

    @property
    def task_id(self) -> str:
        """The id of the task of the call."""
        ...

    @property
    def context_id(self) -> str:
        """The id of the conversation."""
        ...

    @property
    def message_id(self) -> str:
        """The id of the message that started or resumed the task."""
        ...

    @property
    def history(self) -> Sequence[dict[str, Any]]:
        """The messages of the conversation before this run, oldest first, as JSON of A2A 1.0."""
        ...

    @property
    def parts(self) -> Sequence[Any]:
        """The parts of the message except the one that became the input, as JSON of A2A 1.0."""
        ...

    @property
    def request_metadata(self) -> Mapping[str, Any]:
        """The metadata of the request, and that of its message over it; read only."""
        ...

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata for the task, for the module to fill: JSON of up to 64 KiB."""
        ...

    @property
    def answer(self) -> Sequence[Any] | None:
        """The parts of the message that resumed the task; None in the first run."""
        ...

    @property
    def approved(self) -> bool | None:
        """The client's answer to `approve`; None in a run that does not follow one."""
        ...

    @property
    def state(self) -> Any:
        """The `state` of the `ask` or `approve` that this run is the answer to; else None."""
        ...

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
        ...

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
        ...

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
        ...
