"""Conversion of JSON to frozen models and back, according to the models' annotations."""

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

from .errors import A2AProtocolError, Json, upper_snake

T = TypeVar("T")
JSON_TYPE_NAMES: Any = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a number",
}


def empty_object() -> Json:
    """Return an empty JSON object, as the default of a field."""
    return {}


def load(text: bytes | str) -> Any:
    """Parse *text*, JSON from the agent.

    Raises:
        A2AProtocolError: The text is not JSON, or nested too deeply for Python.
    """
    try:
        return json.loads(text, parse_constant=_refuse_literal, parse_float=_parse_finite_float)
    except (ValueError, RecursionError):
        raise A2AProtocolError("The agent's response is not JSON") from None


def dump(value: Any) -> bytes:
    """Return *value*, the body of a request, as compact JSON.

    Raises:
        ValueError: The value cannot be represented as JSON.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The request can't be sent as JSON: {error}") from None


def _parse_finite_float(literal: str) -> float:
    number = float(literal)
    return _refuse_literal(literal) if isinf(number) else number


def _refuse_literal(literal: str) -> Any:
    raise ValueError(literal)


class ProtocolEnum(StrEnum):
    """An enumeration of A2A.

    Members are spelled like `"working"` in Python and 0.3, and like `TASK_STATE_WORKING` in 1.0.
    """

    @classmethod
    def read(cls, spelling: Any) -> Self:
        """Return the member with that spelling, in either version.

        Raises:
            A2AProtocolError: There is no such member.
        """
        _check_type(spelling, str)
        for member in cls:
            if spelling in (member.value, member.wire):
                return member
        raise A2AProtocolError(f"Unknown {cls.__name__}: {spelling[:50]!r}")

    @property
    def wire(self) -> str:
        """The spelling of 1.0."""
        return f"{upper_snake(type(self).__name__)}_{self.name}"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def model(cls: type[T]) -> type[T]:
    """Make *cls* a frozen dataclass with the `==` and `repr` of `Model`.

    Generating them for each class would slow down the import.
    """
    return dataclass(frozen=True, slots=True, repr=False, eq=False)(cls)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Model:
    """Base class of all objects of the protocol; they are frozen.

    Attributes:
        extra: Unknown fields; they are written back unchanged.
    """

    extra: Mapping[str, Any] = field(default_factory=empty_object, repr=False)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Create an object from *data*, which is JSON of A2A 1.0 or 0.3.

        Raises:
            A2AProtocolError: A field is missing or invalid.
        """
        codecs = _codecs(cls)
        values: Json = {}
        extra: Json = {}
        for name, value in cls._upgrade(dict(_check_type(data, dict, cls.__name__))).items():
            if name not in codecs:
                extra[name] = value
            elif value is not None:
                try:
                    values[codecs[name].attribute] = codecs[name].read(value)
                except A2AProtocolError as error:
                    raise A2AProtocolError(f"{name}: {error}") from None
        for name, codec in codecs.items():
            if codec.required and codec.attribute not in values:
                raise A2AProtocolError(f"{cls.__name__} has no {name}")
        return cls(**values, extra=extra)

    def to_dict(self) -> Json:
        """Return the JSON of A2A 1.0, without optional fields that have their default."""
        result = dict(self.extra)
        for name, codec in _codecs(type(self)).items():
            value = getattr(self, codec.attribute)
            if codec.required or value != codec.default:
                result[name] = codec.write(value)
        return result

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        # `event_id` is not compared: a task that was fetched equals the same task from a stream.
        names = [field.name for field in fields(self) if field.compare]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __repr__(self) -> str:
        """Show the fields, except secrets and optional fields that have their default."""
        shown: list[str] = []
        for codec in _codecs(type(self)).values():
            value = getattr(self, codec.attribute)
            if codec.shown and (codec.required or value != codec.default):
                shown.append(f"{codec.attribute}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def _upgrade(cls, data: Json) -> Json:
        """Return *data*, JSON of either version, in the format of 1.0."""
        data.pop("kind", None)
        return data


@model
class StreamedModel(Model):
    """Base class of the models that can be events of a stream.

    Attributes:
        event_id: The id of the event, to pass to `subscribe` as `last_event_id`; empty if the agent
            does not number events. Not part of the JSON.
    """

    event_id: str = field(default="", kw_only=True, compare=False, repr=False)


class Codec(NamedTuple):
    """Reader and writer of a field.

    Attributes:
        attribute: The name of the attribute in Python.
        required: Whether the JSON must have the field.
        default: The default of the attribute, if the field is not required.
        shown: Whether `repr` shows the field.
        read: Converts the JSON of the field to the value of the attribute.
        write: Converts the value of the attribute to JSON.
    """

    attribute: str
    required: bool
    default: Any
    shown: bool
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


FROM_URL_ALPHABET = str.maketrans("-_", "+/")
NOT_IN_JSON = ("extra", "event_id")
ECHOED_FIELDS = ("id", "task_id", "context_id", "next_cursor", "tenant")
"""Fields that requests send back to the agent."""
_CODECS: dict[type[Model], dict[str, Codec]] = {}


def _codecs(cls: type[Model]) -> dict[str, Codec]:
    """Return the codecs of a model's fields by their names in JSON; built on first use."""
    if cls in _CODECS:
        return _CODECS[cls]
    # Resolving annotations takes milliseconds: too slow for the import of the package.
    types = get_type_hints(cls)
    result: dict[str, Codec] = {}
    for model_field in fields(cls):
        name, factory = model_field.name, model_field.default_factory
        default = model_field.default if factory is MISSING else factory()
        if name not in NOT_IN_JSON:
            first_word, *words = name.split("_")
            json_name = first_word + "".join(map(str.capitalize, words))
            read, write = _reader_and_writer(types[name])
            read = _check_encodable if name in ECHOED_FIELDS else read
            required = default is MISSING
            result[json_name] = Codec(name, required, default, model_field.repr, read, write)
    _CODECS[cls] = result
    return result


def _reader_and_writer(annotation: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the functions that read and write values of an annotated type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return _reader_and_writer(arguments[0])  # the other member of the union is None
    if origin is tuple:
        read, write = _reader_and_writer(arguments[0])
        return (
            lambda value: tuple(map(read, _check_type(value, list))),
            lambda value: list(map(write, value)),
        )
    if origin is Mapping:
        read, write = _reader_and_writer(arguments[1])
        return (
            lambda value: {key: read(item) for key, item in _check_type(value, dict).items()},
            lambda value: {key: write(item) for key, item in value.items()},
        )
    if annotation is Any:
        return (lambda value: value), (lambda value: value)
    if annotation is bytes:
        return _decode_base64, lambda value: base64.b64encode(value).decode()
    if issubclass(annotation, Model):
        return annotation.from_dict, annotation.to_dict
    if issubclass(annotation, ProtocolEnum):
        return annotation.read, lambda member: member.wire
    return (lambda value: _check_type(value, annotation)), (lambda value: value)


def _check_type(value: Any, expected: Any, name: str = "it") -> Any:
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise A2AProtocolError(f"{name} is not {JSON_TYPE_NAMES[expected]}")
    return value


def _check_encodable(value: Any) -> str:
    # JSON can hold half of a surrogate pair, which a later request could not send back.
    try:
        _check_type(value, str).encode()
    except UnicodeError:
        raise A2AProtocolError("it has an unpaired surrogate, which is not text") from None
    return str(value)


def _decode_base64(value: Any) -> bytes:
    # ProtoJSON allows the standard and the URL alphabet, with and without padding.
    standard = _check_type(value, str).rstrip("=").translate(FROM_URL_ALPHABET)
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise A2AProtocolError("it is not base64") from None
