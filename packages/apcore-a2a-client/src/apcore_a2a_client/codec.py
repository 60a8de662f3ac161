"""JSON to frozen models and back, by the models' annotations."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from math import isinf
from types import UnionType
from typing import (
    Any,
    NamedTuple,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import A2AProtocolError, Json

T = TypeVar("T")
NAMES: Any = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a number",
}


def nothing() -> Json:
    """An empty object, for fields that have none."""
    return {}


def load(text: bytes | str) -> Any:
    """The JSON in *text*.

    Raises:
        A2AProtocolError: It is none, or more deeply nested than Python reads.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        raise A2AProtocolError("The agent's answer is not JSON") from None


def dump(value: Any) -> bytes:
    """*value* as compact JSON.

    Raises:
        ValueError: It can't be JSON.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"This can't be sent as JSON: {error}") from None


def _finite(text: str) -> float:
    number = float(text)
    return _refuse(text) if isinf(number) else number


def _refuse(name: str) -> Any:
    raise ValueError(name)


class Word(StrEnum):
    """An enum of the protocol: small letters to us and in 0.3, `PREFIX_NAME` in 1.0."""

    @classmethod
    def _prefix(cls) -> str:
        return ""

    @classmethod
    def read(cls, word: Any) -> Self:
        """The member that is spelt *word* in either version."""
        _typed(word, str)
        for member in cls:
            if word in (member.value, member.wire):
                return member
        raise A2AProtocolError(f"Unknown {cls.__name__}: {word[:50]!r}")

    @property
    def wire(self) -> str:
        """As 1.0 spells it."""
        return self._prefix() + self.name


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def model(cls: type[T]) -> type[T]:
    """Make a frozen dataclass; its `==` and `repr` come from `Model`, which imports faster."""
    return dataclass(frozen=True, slots=True, repr=False, eq=False)(cls)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Model:
    """What A2A sends about, frozen.

    Attributes:
        extra: The fields this version does not know; they are written back as they were.
    """

    extra: Mapping[str, Any] = field(default_factory=nothing, repr=False)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read the JSON form of A2A 1.0, or of 0.3.

        Raises:
            A2AProtocolError: A field is missing, or not what it should be.
        """
        known = _codecs(cls)
        values: Json = {}
        extra: Json = {}
        for name, value in cls._upgraded(dict(_typed(data, dict, cls.__name__))).items():
            if name not in known:
                extra[name] = value
            elif value is not None:
                try:
                    values[known[name].attribute] = known[name].read(value)
                except A2AProtocolError as error:
                    raise A2AProtocolError(f"{name}: {error}") from None
        missing = [n for n, c in known.items() if c.required and c.attribute not in values]
        if missing:
            raise A2AProtocolError(f"{cls.__name__} has no {missing[0]}")
        return cls(**values, extra=extra)

    def to_dict(self) -> Json:
        """The JSON form of A2A 1.0, without fields that say nothing."""
        result = dict(self.extra)
        for name, codec in _codecs(type(self)).items():
            value = getattr(self, codec.attribute)
            if codec.required or value != codec.default:
                result[name] = codec.write(value)
        return result

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        compared = [f.name for f in fields(self) if f.compare]
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    def __repr__(self) -> str:
        """The fields that say something, without secrets."""
        shown = (c for c in _codecs(type(self)).values() if c.shown)
        values = [(c, getattr(self, c.attribute)) for c in shown]
        told = (f"{c.attribute}={v!r}" for c, v in values if c.required or v != c.default)
        return f"{type(self).__name__}({', '.join(told)})"

    @classmethod
    def _upgraded(cls, data: Json) -> Json:
        """*data* in the form of 1.0."""
        data.pop("kind", None)
        return data


@model
class Streamed(Model):
    """What a stream may consist of.

    Attributes:
        event_id: The place in the stream, where the agent numbers events: `subscribe` goes on
            behind it. It belongs to no JSON form.
    """

    event_id: str = field(default="", kw_only=True, compare=False, repr=False)


class Codec(NamedTuple):
    """How a field is read and written."""

    attribute: str
    required: bool
    default: Any
    shown: bool
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


NOT_IN_JSON = ("extra", "event_id")
SENT_BACK = ("id", "task_id", "context_id", "next_cursor", "tenant")
_CODECS: dict[type[Model], dict[str, Codec]] = {}


def _codecs(cls: type[Model]) -> dict[str, Codec]:
    """The codecs of a model's fields, by the fields' names in JSON; made when first needed."""
    if cls in _CODECS:
        return _CODECS[cls]
    types = get_type_hints(cls)
    result: dict[str, Codec] = {}
    for known in fields(cls):
        default = known.default if known.default_factory is MISSING else known.default_factory()
        if known.name not in NOT_IN_JSON:
            head, *tail = known.name.split("_")
            name = head + "".join(map(str.capitalize, tail))
            read, write = _codec(types[known.name])
            read = _sendable if known.name in SENT_BACK else read
            result[name] = Codec(known.name, default is MISSING, default, known.repr, read, write)
    _CODECS[cls] = result
    return result


def _codec(kind: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How values of the type *kind* are read and written."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _codec(arguments[0])
    if origin is tuple:
        read, write = _codec(arguments[0])
        return (
            lambda value: tuple(map(read, _typed(value, list))),
            lambda value: list(map(write, value)),
        )
    if origin is Mapping:
        read, write = _codec(arguments[1])
        return (
            lambda value: {k: read(v) for k, v in _typed(value, dict).items()},
            lambda value: {k: write(v) for k, v in value.items()},
        )
    if kind is Any:
        return (lambda value: value), (lambda value: value)
    if kind is bytes:
        return _from_base64, lambda value: base64.b64encode(value).decode()
    if issubclass(kind, Model):
        return kind.from_dict, kind.to_dict
    if issubclass(kind, Word):
        return kind.read, lambda word: word.wire
    return (lambda value: _typed(value, kind)), (lambda value: value)


def _typed(value: Any, kind: Any, name: str = "it") -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise A2AProtocolError(f"{name} is not {NAMES[kind]}")
    return value


def _sendable(text: Any) -> str:
    """A text that is sent back to the agent."""
    try:
        _typed(text, str).encode()
    except UnicodeError:
        raise A2AProtocolError("it has half a character in it") from None
    return str(text)


def _from_base64(text: Any) -> bytes:
    """Decode base64, of the standard alphabet or the URL's, padded or not (ProtoJSON)."""
    standard = _typed(text, str).rstrip("=").translate({45: "+", 95: "/"})
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise A2AProtocolError("it is not base64") from None
