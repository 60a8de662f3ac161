"""Names that authors of modules import: services, questions, progress, usage and files.

Nothing here needs the server or apcore, so that a module can be tested without either.

Exception
└── InputRequiredError    a module asks for more input, so that its task pauses
    └── ApprovalRequired  a module asks for a yes or a no
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeGuard

from .values import MAX_SAFE, is_object

INPUT_REQUIRED = "INPUT_REQUIRED"
"""The code of an error that asks for more input."""
USAGE = "usage"
"""The member of a task's metadata that holds token counts; see `Usage`."""


class InputRequiredError(Exception):
    """A module needs more input: its task pauses until the next message.

    A module need not import this class: any `apcore.ModuleError` with the same code and details
    pauses the task too. The arguments are those of `Services.ask`.

    Attributes:
        code: Always ``INPUT_REQUIRED``.
        message: The question.
        details: The other arguments by name.

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
        parts: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(question)
        self.message = question
        if hasattr(schema, "model_json_schema"):
            schema = schema.model_json_schema()
        choice_list = None if choices is None else [*choices]
        part_list = None if parts is None else [*parts]
        optional = {"field": field, "choices": choice_list, "schema": schema, "parts": part_list}
        self.details: dict[str, Any] = {"data": data, "state": state}
        self.details |= {name: value for name, value in optional.items() if value is not None}


class ApprovalRequired(InputRequiredError):
    """A module needs a yes or a no: its task pauses until the client has given one.

    Its arguments are those of `Services.approve`; its details also have ``"approval": True``.
    """

    def __init__(
        self,
        question: str,
        data: Any = None,
        *,
        state: Any = None,
        parts: Iterable[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(question, data, state=state, parts=parts)
        self.details["approval"] = True


@dataclass(frozen=True, slots=True)
class Progress:
    """A progress message that a streaming module yields between its chunks.

    Readers of the task's stream get it as an event; no history or artifact contains it.

    Attributes:
        text: The message.
        data: JSON that accompanies the message.
    """

    text: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a module has used; the metadata of its task has them as `usage`.

    A streaming module yields any number of these between its chunks; any module may instead set
    `services.metadata["usage"]` to a `Usage`. The tokens of all these values, in all runs of a
    task, are added up.

    Attributes:
        input_tokens: The number of tokens that a model has read.
        output_tokens: The number of tokens that a model has written.

    Raises:
        ValueError: A number is not an integer from 0 to 2**53.

    >>> used = Usage(input_tokens=900, output_tokens=40) + Usage(100, 10)
    >>> used.as_json()
    {'inputTokens': 1000, 'outputTokens': 50}
    """

    input_tokens: int = 0
    output_tokens: int = 0

    def __post_init__(self) -> None:
        if not (is_count(self.input_tokens) and is_count(self.output_tokens)):
            raise ValueError("Token counts must be integers from 0 to 2**53")

    def __add__(self, other: "Usage") -> "Usage":
        input_tokens = self.input_tokens + other.input_tokens
        return Usage(input_tokens, self.output_tokens + other.output_tokens)

    def as_json(self) -> dict[str, int]:
        """Return the usage as JSON, as it is in the metadata of a task."""
        return {"inputTokens": self.input_tokens, "outputTokens": self.output_tokens}


def is_count(value: object) -> TypeGuard[int]:
    """Return whether *value* is an integer of 0 or more that all JSON parsers read exactly."""
    return type(value) is int and 0 <= value <= MAX_SAFE


REPORTS = (Progress, Usage)
"""Types of values that a streaming module may yield in addition to chunks."""


def add_usage(earlier: object, reported: object) -> object:
    """Return *reported* usage as JSON, with the tokens of *earlier* usage added.

    Each of the two is a `Usage`, its JSON, or anything else that a module has put into the
    metadata.

    >>> add_usage({"inputTokens": 5}, Usage(input_tokens=900, output_tokens=40))
    {'inputTokens': 905, 'outputTokens': 40}
    """
    earlier_counts, reported_counts = (
        u.as_json() if isinstance(u, Usage) else u for u in (earlier, reported)
    )
    if not (is_object(earlier_counts) and is_object(reported_counts)):
        return reported_counts
    sums = {
        name: earlier_counts[name] + reported_counts.get(name, 0)
        for name in Usage().as_json()
        if is_count(earlier_counts.get(name)) and is_count(reported_counts.get(name, 0))
    }
    return reported_counts | sums


@dataclass(frozen=True, slots=True)
class File:
    """A file in a module's output: the value of a member, or an item of a member that lists files.

    Attributes:
        data: Its bytes; None if it has a `url`.
        url: Where clients find it; None if it has `data`.
        name: Its name.
        media_type: Its media type; by default, guessed from its first bytes, or else from its name
            or URL.

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
    """The A2A conversation of a call; modules get this object as `context.services`.

    Outside of A2A, `context.services` is None or another object. In modules with `resources.cpu`,
    which run in separate processes, it is None.

    >>> async def execute(inputs: dict[str, Any], context: Any) -> dict[str, Any]:
    ...     services: Services = context.services
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
    def principal(self) -> str:
        """A unique id of the authenticated caller; empty if anonymous.

        Unlike `context.identity.id`, it differs between callers who have the same id from different
        issuers or authenticators. Use it as the key of data that a module keeps for a caller.
        """
        ...

    @property
    def history(self) -> Sequence[dict[str, Any]]:
        """The messages of the conversation before this run, oldest first, as JSON of A2A 1.0.

        After a pause it includes the question and the answer.
        """
        ...

    @property
    def parts(self) -> Sequence[Any]:
        """The parts of the message except those that became the input, as JSON of A2A 1.0."""
        ...

    @property
    def request_metadata(self) -> Mapping[str, Any]:
        """The metadata of the request, overridden by the metadata of its message; read-only."""
        ...

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata for the task, filled by the module: JSON of up to 64 KiB; see also `Usage`."""
        ...

    @property
    def answer(self) -> Sequence[Any] | None:
        """The parts of the message that resumed the task; None in the first run."""
        ...

    @property
    def approved(self) -> bool | None:
        """The client's answer to `approve`; None in a run that does not follow such an answer."""
        ...

    @property
    def state(self) -> Any:
        """The `state` passed to the `ask` or `approve` whose answer started this run; else None."""
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
        parts: Iterable[Mapping[str, Any]] | None = None,
    ) -> NoReturn:
        """Pause the task until the client answers; the module is then called again.

        The new call gets the inputs of this one, updated with the inputs in the answer. If the
        answer is text, it can be a JSON object of inputs. Any other text becomes one input, by the
        first rule that applies:

        - with *field*: that input;
        - with a *schema* with properties: the only property or the only required one, if scalar;
        - with a *schema* without properties: the input `answer`;
        - otherwise: the only required input that is missing, or else the input `answer`, if the
          module's schema allows that.

        Text is converted to the type of the input; if it does not fit, the question is asked again.

        Args:
            question: The question for the client.
            data: JSON that accompanies the question.
            field: The input that the answer becomes.
            choices: The values that the answer may have, such as texts or numbers.
            schema: JSON Schema or pydantic model of the input *field*. Without a field, a schema
                with properties describes an object of inputs; any other schema describes the
                input `answer`.
            state: JSON for the next run, as `services.state`; clients never see it.
            parts: Parts that follow the question in its message, as JSON of A2A 1.0, for clients
                that understand them; for example a file, or data with metadata.

        Raises:
            InputRequiredError: Always; do not catch it.
        """
        raise InputRequiredError(
            question,
            data,
            field=field,
            choices=choices,
            schema=schema,
            state=state,
            parts=parts,
        )

    def approve(
        self,
        question: str,
        data: Any = None,
        *,
        state: Any = None,
        parts: Iterable[Mapping[str, Any]] | None = None,
    ) -> NoReturn:
        """Pause the task until the client answers yes or no; the module is then called again.

        The new call gets the same inputs, and `approved` has the answer.

        Args:
            question: The question for the client.
            data: JSON that accompanies the question, for example the arguments of a tool.
            state: JSON for the next run, as `services.state`; clients never see it.
            parts: Parts that follow the question in its message, as for `ask`.

        Raises:
            ApprovalRequired: Always; do not catch it.
        """
        raise ApprovalRequired(question, data, state=state, parts=parts)

    def progress(self, text: str, data: Any = None) -> Awaitable[None]:
        """Report the work so far to readers of the task's stream.

        An asynchronous module awaits the result. In a synchronous module, which runs in a thread,
        the event has been written when the method returns.

        Args:
            text: The message, of up to 10,000 characters; the rest is cut off.
            data: JSON of up to 64 KiB that accompanies the message.

        Raises:
            OutputError: The data is not JSON, or is too large.
        """
        ...
