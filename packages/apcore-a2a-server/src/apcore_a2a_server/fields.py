"""Options that are declared once, as the fields of frozen dataclasses.

A field has a name, a type and a default; `option` adds the help text and the bounds.
Everything else is derived from these: the keywords of `serve` and their validation, the command's
flags, environment variables, config keys and help, and the tables in `docs/options.md`.

This module and those that declare options import nothing slow, because `--help` loads them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, get_args

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

PREFIX = "APCORE_A2A_"
"""Prefix of all environment variables."""
OPENAPI_TOKEN = PREFIX + "OPENAPI_TOKEN"
"""Environment variable with an API's credential, for security schemes with no other variable."""
HOUR, DAY, YEAR = 3600, 24 * 3600, 365 * 24 * 3600  # seconds
DURATIONS: dict[float, str] = {HOUR: "an hour", DAY: "a day", YEAR: "a year"}
LIST_TYPES: tuple[type[Any], ...] = (list, tuple)
CONTAINER_TYPES: tuple[type[Any], ...] = (list, dict)
MISSING: Any = object()
ON, OFF = ("on", "yes", "true", "1"), ("off", "no", "false", "0")


class OptionError(ValueError):
    """An invalid value of an option.

    Attributes:
        option: The name of the field.
        problem: The rest of a sentence that begins with the option: "must be …".
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option} {problem}")
        self.option = option
        self.problem = problem


class Kind(NamedTuple):
    """A kind of value that an option can have.

    Attributes:
        description: Its name in error messages.
        types: The Python types of a value, or of the items of a list.
        parse: Parses a value, or an item, from text; raises ValueError or KeyError.
        metavar: The name of a value in help texts; "" to use the last word of the option's name.
        is_list: Whether a value is a list.
    """

    description: str
    types: tuple[type[Any], ...]
    parse: Callable[[str], Any]
    metavar: str = "NUMBER"
    is_list: bool = False


def _one_of(words: dict[str, Any]) -> Callable[[str], Any]:
    return lambda text: words[text.lower()]


KINDS: dict[Any, Kind] = {
    bool: Kind("on or off", (bool,), _one_of({word: word in ON for word in ON + OFF}), ""),
    str: Kind("text", (str,), str, ""),
    int: Kind("a whole number", (int,), int),
    float: Kind("a number", (int, float), float),
    Sequence[str]: Kind("a list of strings", (str,), str, "", is_list=True),
    Sequence[int]: Kind("a list of whole numbers", (int,), int, is_list=True),
    Sequence[float]: Kind("a list of numbers", (int, float), float, is_list=True),
}
SWITCH, TEXT = KINDS[bool], KINDS[str]
FILES = Kind("a list of files", (str,), str, "FILE", is_list=True)
PAIRS = Kind("a list of NAME=VALUE", (str,), str, "NAME=SKILL", is_list=True)
OBJECTS = Kind("a list of NAME=VALUE, or of objects", (str, dict), str, "NAME=URL", is_list=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option as declared; `options_of` completes it, and sets the last three attributes.

    Attributes:
        help: A sentence that can be understood on its own.
        default: The value if none is set.
        section: The heading above the option; by default that of the option before it.
        otherwise: A description of the default, if the value itself does not explain it.
        metavar: The name of the value in help texts.
        name: The name on the command line, with underscores; by default the field's name, with the
            prefix of `options_of`.
        kind: The kind of its value on the command line, by default derived from the choices or the
            field's type. An option without a kind can only be set in Python.
        choices: All valid values, or () for any.
        low: The minimum, of each item if the value is a list.
        above: The exclusive minimum.
        high: The maximum.
        is_secret: Whether the value must not appear in messages and logs.
        field: The name of the field, which is the keyword in Python.
        is_checked: Whether `check` validates the value; otherwise the dataclass that declares the
            option does.
        is_optional: Whether the value may be None.
    """

    help: str
    default: Any
    section: str = ""
    otherwise: str = ""
    metavar: str = ""
    name: str = ""
    kind: Kind | None = None
    choices: tuple[str, ...] = ()
    low: float | None = None
    above: float | None = None
    high: float | None = None
    is_secret: bool = False
    field: str = ""
    is_checked: bool = False
    is_optional: bool = False

    @property
    def flag(self) -> str:
        """The command-line flag, such as `--max-tasks`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, such as `APCORE_A2A_MAX_TASKS`."""
        return PREFIX + self.name.upper()

    @property
    def default_text(self) -> str:
        """The default as shown to users; "" if there is none."""
        if self.otherwise or self.default in (None, "", ()):
            return self.otherwise
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        return ",".join(map(str, _items(self.default)))

    def read(self, value: Any) -> Any:
        """Parse a value from text, or convert one that YAML has parsed.

        Raises:
            OptionError: The value is not of this option's kind.
        """
        kind = self.kind or TEXT
        items = _items(value) if kind.is_list else [value]
        try:
            objects = [item for item in items if isinstance(item, CONTAINER_TYPES)]
            if not all(isinstance(item, kind.types) for item in objects):
                raise ValueError
            if kind.is_list:
                texts = [str(item) for item in items if item not in objects]
                # a YAML list of strings stays as it is; other text is split at commas and spaces
                if not isinstance(value, list) or str not in kind.types:
                    texts = " ".join(texts).replace(",", " ").split()
                return [*map(kind.parse, texts), *objects]
            return kind.parse(str(value))
        except (ValueError, KeyError):
            problem = f"takes {kind.description}, not {self._shown(value)}"
            raise OptionError(self.field, problem) from None

    def check(self, value: Any) -> None:
        """Check that a value has the right kind and is within the bounds.

        Raises:
            OptionError: The value is invalid.
        """
        if self.kind is None or not self.is_checked or value is self.default:
            return
        if value is None and self.is_optional:
            return
        is_list = isinstance(value, LIST_TYPES)
        if is_list != self.kind.is_list or not all(map(self._accepts, _items(value))):
            problem = f"must be {self._expected(self.kind)}, not {self._shown(value)}"
            raise OptionError(self.field, problem)

    def _shown(self, value: Any) -> str:
        """Return the text that a message shows for an invalid value, which may be secret."""
        return "this value" if self.is_secret else repr(value)

    def _accepts(self, item: Any) -> bool:
        kind = self.kind or TEXT
        return (
            isinstance(item, kind.types)
            and (kind is SWITCH or not isinstance(item, bool))
            and (not self.choices or item in self.choices)
            and (self.low is None or item >= self.low)
            and (self.above is None or item > self.above)
            and (self.high is None or item <= self.high)
        )

    def _expected(self, kind: Kind) -> str:
        """Describe the valid values and their bounds."""
        high = "" if self.high is None else DURATIONS.get(self.high, f"{self.high:g}")
        if self.above is not None:
            return f"greater than {self.above:g} and at most {high}"
        if self.low is None:
            return kind.description
        if high:
            return f"{kind.description} from {self.low:g} to {high}"
        return f"{kind.description}, {self.low:g} or more"


def option(default: T, help: str, **attributes: Any) -> T:
    """Declare a field of a dataclass as an option.

    Args:
        default: The value if none is set.
        help: A sentence that can be understood on its own.
        attributes: Further attributes of `Option`.
    """
    declaration = Option(default=default, help=help, **attributes)
    return field(default=default, repr=not declaration.is_secret, metadata={Option: declaration})


def _items(value: Any) -> list[Any]:
    return [*value] if isinstance(value, LIST_TYPES) else [value]


@cache
def options_of(declared_in: Any, prefix: str = "") -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in order.

    Args:
        declared_in: The dataclass.
        prefix: The prefix of names on the command line, for options declared without a `name`.
    """
    options: list[Option] = []
    section = ""
    for dataclass_field in fields(declared_in):
        declaration: Option = dataclass_field.metadata[Option]
        section = declaration.section or section
        kind = declaration.kind or _kind(dataclass_field.type, declaration.choices)
        name = declaration.name or prefix + dataclass_field.name
        options.append(
            replace(
                declaration,
                field=dataclass_field.name,
                name=name,
                section=section,
                kind=kind,
                metavar=declaration.metavar
                or (kind or TEXT).metavar
                or name.split("_")[-1].upper(),
                is_checked=declaration.kind is None,
                is_optional=type(None) in get_args(dataclass_field.type),
            )
        )
    return tuple(options)


def _kind(annotation: Any, choices: tuple[str, ...]) -> Kind | None:
    """Return the kind for choices, for a type, or for `type | None`; None if there is no kind."""
    if choices:
        *first_choices, last_choice = choices
        description = f"{', '.join(first_choices)} or {last_choice}"
        return Kind(
            description, (str,), _one_of({word: word for word in choices}), "|".join(choices)
        )
    types = [member for member in get_args(annotation) if member is not type(None)]
    return KINDS.get(annotation) or (KINDS.get(types[0]) if len(types) == 1 else None)


def check(settings: Any) -> None:
    """Check the values of all options in an instance of a dataclass.

    Raises:
        OptionError: An option has an invalid value.
    """
    for declaration in options_of(settings.__class__):
        declaration.check(getattr(settings, declaration.field))


def suggestion(name: str, names: Iterable[str], prefix: str = "") -> str:
    """Return a hint that names the closest of *names*, to append to a message; "" if none is close.

    Args:
        name: The unknown name.
        names: The known names.
        prefix: Text to show before the closest name.

    Example:
        ```python
        from apcore_a2a_server.fields import suggestion

        print("prot is not an option" + suggestion("prot", ["host", "port"]))
        #> prot is not an option (did you mean port?)
        ```
    """
    closest = get_close_matches(name, [*names], 1)
    return f" (did you mean {prefix}{closest[0]}?)" if closest else ""


class Configured(Protocol[P, R_co]):
    """A function that takes a source and options; one option may replace the source."""

    def __call__(self, source: Any = ..., /, *args: P.args, **options: P.kwargs) -> R_co:
        """Call the function with settings made from the options."""
        ...


def configured_by(
    settings: Callable[P, S], *, other_source: str = ""
) -> Callable[[Callable[[Any, S], R]], Configured[P, R]]:
    """Return a decorator for functions that take a source and settings.

    Callers of the decorated function pass the fields of the settings as keywords. Type checkers
    take the keywords from the dataclass, so that no second declaration is needed.

    Args:
        settings: The dataclass of the settings.
        other_source: The name of an option that can be set instead of passing a source.

    Example:
        ```python
        from dataclasses import dataclass

        from apcore_a2a_server.fields import configured_by, option


        @dataclass(frozen=True, kw_only=True)
        class Settings:
            name: str = option("agent", "Name of the agent.")


        @configured_by(Settings)
        def build(source, settings):
            return f"{settings.name} of {source}"


        print(build("./extensions", name="orders"))
        #> orders of ./extensions
        ```
    """

    def decorate(function: Callable[[Any, S], R]) -> Configured[P, R]:
        name, keywords = function.__name__, signature(settings).parameters

        # Wrong arguments are reported here: Python's own message would name the settings class.
        @wraps(function)
        def configured(source: Any = MISSING, /, *args: P.args, **options: P.kwargs) -> R:
            for keyword in options:
                if keyword not in keywords:
                    hint = _hint(keyword, settings)
                    raise TypeError(f"{name}() has no option {keyword!r}{hint}")
            if source is MISSING and options.get(other_source) is not None:
                source = []
            if source is MISSING or args:
                raise TypeError(f"{name}() takes one positional argument, the source, and keywords")
            return function(source, settings(*args, **options))

        source = Parameter("source", Parameter.POSITIONAL_ONLY, annotation=Any)
        return_type = signature(function).return_annotation
        decorated: Any = configured
        parameters = [source, *keywords.values()]
        decorated.__signature__ = Signature(parameters, return_annotation=return_type)
        return configured

    return decorate


def _hint(keyword: str, settings: Any) -> str:
    """Return a hint: the option whose class has a field *keyword*, or an option of similar name."""
    for dataclass_field in fields(settings):
        for cls in (dataclass_field.type, *get_args(dataclass_field.type)):
            if is_dataclass(cls) and keyword in {nested.name for nested in fields(cls)}:
                class_name = getattr(cls, "__name__", "")
                return f" (did you mean {dataclass_field.name}={class_name}({keyword}=…)?)"
    return suggestion(keyword, [dataclass_field.name for dataclass_field in fields(settings)])
