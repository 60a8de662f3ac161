"""Options that are declared once, as the fields of frozen dataclasses.

The class gives a field its name, type and default, `option` its help, unit and bounds. Everything
else is derived from that: the keywords of `serve` and their check, the flags, environment variables
and config keys of the command, its help, and the tables in `docs/options.md`.

This module and those that declare options import nothing heavy, because `--help` needs them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, get_args

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")

PREFIX = "APCORE_A2A_"
"""Begins the name of every environment variable."""
HOUR, DAY, YEAR = 3600, 24 * 3600, 365 * 24 * 3600  # seconds
LONG: dict[float, str] = {HOUR: "an hour", DAY: "a day", YEAR: "a year"}
LISTS: tuple[type[Any], ...] = (list, tuple)
NESTED: tuple[type[Any], ...] = (list, dict)
ON, OFF = ("on", "yes", "true", "1"), ("off", "no", "false", "0")


class OptionError(ValueError):
    """An option has a value that makes no sense.

    Attributes:
        option: The name of the field.
        problem: What is wrong with it, to be read after a name of the option: "must be …".
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option} {problem}")
        self.option = option
        self.problem = problem


class Kind(NamedTuple):
    """A kind of values.

    Attributes:
        wants: Its name in errors.
        types: The types of its values, or of the items of a list.
        parse: Reads a value, or an item, from text; raises ValueError or KeyError.
        metavar: Its name in help; "" for the last word of the option.
        is_list: Whether a value is a list.
    """

    wants: str
    types: tuple[type[Any], ...]
    parse: Callable[[str], Any]
    metavar: str = "NUMBER"
    is_list: bool = False


def _one_of(words: dict[str, Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        return words[text.lower()]

    return parse


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option: its declaration, and from `field` on what is derived from its field.

    Attributes:
        help: A sentence that stands alone.
        default: Its value when nothing is said.
        section: The heading of this option, and of those after it.
        otherwise: What happens by default, where the value alone does not tell it.
        metavar: What its value is called in help.
        name: Its name in the shell, with underscores; by default that of the field.
        kind: How a shell gives it, where the field takes more than text can say; None when only
            Python can give it.
        choices: All the values it may have.
        low: The least value, also of the items of a list.
        above: The value that it must be greater than.
        high: The greatest value.
        is_secret: Whether its value must not be shown.
        in_shell: Whether it has a flag, a variable and a config key.
        field: The name of its field, which is the keyword of Python.
        is_checked: Whether the kind tells all values of the field; else its class checks them.
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
    in_shell: bool = True
    field: str = ""
    is_checked: bool = False

    @property
    def flag(self) -> str:
        """The flag, such as `--max-tasks`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, such as `APCORE_A2A_MAX_TASKS`."""
        return PREFIX + self.name.upper()

    @property
    def default_text(self) -> str:
        """The default, for people; "" for nothing."""
        if self.otherwise or self.default in (None, "", ()):
            return self.otherwise
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        return ",".join(map(str, _items(self.default)))

    def read(self, value: Any) -> Any:
        """Read a value from text, or from what YAML made of it.

        Raises:
            OptionError: It is no value of this kind.
        """
        kind = self.kind or TEXT
        items = _items(value) if kind.is_list else [value]
        try:
            if any(isinstance(item, NESTED) for item in items):
                raise ValueError
            if kind.is_list:
                texts = " ".join(map(str, items)).replace(",", " ").split()
                return [kind.parse(text) for text in texts]
            return kind.parse(str(value))
        except (ValueError, KeyError):
            shown = "this value" if self.is_secret else repr(value)
            raise OptionError(self.field, f"takes {kind.wants}, not {shown}") from None

    def check(self, value: Any) -> None:
        """Hold the value of a field to its kind and its bounds.

        Raises:
            OptionError: It is no such value.
        """
        if self.kind is None or not self.is_checked or value is self.default:
            return
        is_list = isinstance(value, LISTS)
        if is_list != self.kind.is_list or not all(map(self._fits, _items(value))):
            raise OptionError(self.field, f"must be {self._bounded(self.kind)}")

    def _fits(self, item: Any) -> bool:
        kind = self.kind or TEXT
        return (
            isinstance(item, kind.types)
            and (kind is SWITCH or not isinstance(item, bool))
            and (not self.choices or item in self.choices)
            and (self.low is None or item >= self.low)
            and (self.above is None or item > self.above)
            and (self.high is None or item <= self.high)
        )

    def _bounded(self, kind: Kind) -> str:
        """Return what its values are, with their bounds."""
        high = "" if self.high is None else LONG.get(self.high, f"{self.high:g}")
        if self.above is not None:
            return f"greater than {self.above:g}, and {high} at most"
        if self.low is None:
            return kind.wants
        return (
            f"{kind.wants} from {self.low:g} to {high}"
            if high
            else (f"{kind.wants}, {self.low:g} or more")
        )


def option(default: T, help: str, **said: Any) -> T:
    """Declare a field as an option.

    Args:
        default: Its value when nothing is said.
        help: A sentence that stands alone.
        said: More that `Option` has.
    """
    declared = Option(default=default, help=help, **said)
    return field(default=default, repr=not declared.is_secret, metadata={Option: declared})


def _items(value: Any) -> list[Any]:
    return [*value] if isinstance(value, LISTS) else [value]


@cache
def options_of(declared_in: Any, prefix: str = "") -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in their order.

    Args:
        declared_in: The dataclass.
        prefix: Begins their names in the shell, unless they have been given others.
    """
    result: list[Option] = []
    section = ""
    for each in fields(declared_in):
        declared: Option = each.metadata[Option]
        section = declared.section or section
        kind = declared.kind or _kind(each.type, declared.choices)
        name = declared.name or prefix + each.name
        result.append(
            replace(
                declared,
                field=each.name,
                name=name,
                section=section,
                kind=kind if declared.in_shell else None,
                metavar=declared.metavar or (kind or TEXT).metavar or name.split("_")[-1].upper(),
                is_checked=declared.kind is None,
            )
        )
    return tuple(result)


def _kind(annotation: Any, choices: tuple[str, ...]) -> Kind | None:
    """Return the kind of values of a type, or of this type or None."""
    if choices:
        *others, last = choices
        wants = f"{', '.join(others)} or {last}"
        return Kind(wants, (str,), _one_of({word: word for word in choices}), "|".join(choices))
    types = [kind for kind in get_args(annotation) if kind is not type(None)]
    return KINDS.get(annotation) or (KINDS.get(types[0]) if len(types) == 1 else None)


def check(settings: Any) -> None:
    """Hold the options in a dataclass to their kinds and bounds.

    Raises:
        OptionError: One of them has a value that makes no sense.
    """
    for each in options_of(settings.__class__):
        each.check(getattr(settings, each.field))


def meant(name: str, names: Sequence[str]) -> str:
    """Return a hint at the one of *names* that was probably meant; "" when none is close."""
    found = get_close_matches(name, names, 1)
    return f" (is {found[0]} meant?)" if found else ""


def configured_by(
    settings: Callable[P, S],
) -> Callable[[Callable[[Any, S], R]], Callable[Concatenate[Any, P], R]]:
    """Give a function of a source and settings the fields of the settings as keywords.

    Type checkers take the keywords from the dataclass, so that they are declared nowhere else.

    Args:
        settings: The dataclass of the settings.

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

    def decorate(function: Callable[[Any, S], R]) -> Callable[Concatenate[Any, P], R]:
        keywords = signature(settings).parameters

        @wraps(function)
        def configured(source: Any, /, *args: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in keywords:
                    hint = meant(name, [*keywords])
                    raise TypeError(f"{function.__name__}() has no option {name!r}{hint}")
            return function(source, settings(*args, **options))

        source = Parameter("source", Parameter.POSITIONAL_ONLY, annotation=Any)
        returned = signature(function).return_annotation
        made: Any = configured
        made.__signature__ = Signature([source, *keywords.values()], return_annotation=returned)
        return configured

    return decorate
