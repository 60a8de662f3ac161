"""JSON values and protobuf's: walked by hand, since every request and every result passes here."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

from google.protobuf.struct_pb2 import NULL_VALUE, ListValue, Struct, Value

from .errors import OutputError, PartError, clean

MAX_SAFE = 2**53
"""Up to here a double, and so a protobuf number, holds every integer."""

MAX_DEPTH = 30
"""Containers in each other. upb decodes 100 messages in each other; an object costs three of them
(Value, Struct, map entry), and the stream's response, task and artifact around it some more."""

MAX_KEYS = 5000
"""Object keys in one input: apcore's redaction takes some 24 us for each, on the event loop."""


def narrow(value: Any, *, max_keys: int = MAX_KEYS, max_depth: int = MAX_DEPTH) -> Any:
    """A copy of a parsed JSON value, with integral floats as integers.

    apcore's validation is strict, while protobuf and many clients write every number as a float.

    Raises:
        PartError: there are too many keys, it is nested too deep, or a number is not finite.

    >>> narrow({"n": 3.0, "x": [0.5]})
    {'n': 3, 'x': [0.5]}
    """
    return _narrow(value, max_depth, [max_keys])


def _narrow(value: Any, depth: int, room: list[int]) -> Any:
    kind = value.__class__
    if kind is float:
        if not isfinite(value):
            raise PartError("Input has a number that is not finite")
        return _number(value)
    if kind is not dict and kind is not list:
        return value
    room[0] -= len(value) if kind is dict else 0
    if not depth or room[0] < 0:
        raise PartError("Input is nested too deep" if not depth else "Input has too many keys")
    if kind is list:
        return [v if type(v) is str else _narrow(v, depth - 1, room) for v in value]
    return {k: v if type(v) is str else _narrow(v, depth - 1, room) for k, v in value.items()}


def _number(number: float) -> float:
    return int(number) if number.is_integer() and abs(number) <= MAX_SAFE else number


def from_value(value: Value) -> Any:
    """A protobuf value as a JSON value, with integral floats as integers.

    >>> from_value(Value(number_value=3.0))
    3
    """
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return _number(value.number_value)
    if kind == "struct_value":
        return from_struct(value.struct_value)
    if kind == "list_value":
        return [from_value(item) for item in value.list_value.values]
    return None if kind is None or kind == "null_value" else getattr(value, kind)


def from_struct(struct: Struct) -> dict[str, Any]:
    """A protobuf struct as a JSON object, with integral floats as integers."""
    return {key: from_value(value) for key, value in struct.fields.items()}


def to_value(obj: object, *, max_depth: int = MAX_DEPTH) -> Value:
    """What a module puts out as a protobuf value.

    Takes what JSON has, and dates and times (ISO 8601), time spans (seconds), enums (their value),
    UUIDs, decimals and paths (text), bytes (base64), sets, dataclasses and pydantic models.

    Raises:
        OutputError: there is something else, a number that is not finite, an integer beyond 2^53,
            text that is no Unicode, or it is nested too deep, as a cycle is.
    """
    value = Value()
    try:
        _fill(value, obj, max_depth)
    except UnicodeEncodeError as error:
        raise located(error) from None
    return value


def to_struct(obj: Mapping[Any, object]) -> Struct:
    """A mapping as a protobuf struct; see `to_value`."""
    return to_value(dict(obj)).struct_value


def _fill(value: Value, obj: Any, depth: int) -> None:
    kind = obj.__class__
    if kind is str:
        value.string_value = obj
    elif obj is None:
        value.null_value = NULL_VALUE
    elif kind is bool:
        value.bool_value = obj
    elif kind is int or kind is float:
        if (kind is int and abs(obj) > MAX_SAFE) or not isfinite(obj):
            raise OutputError("a number that is not finite, or an integer beyond 2^53,")
        value.number_value = obj
    elif kind is not dict and kind is not list:
        _fill(value, plain(obj), depth)
    elif not depth:
        raise OutputError("nesting that is too deep or endless")
    elif kind is dict:
        _fill_struct(value.struct_value, obj, depth - 1)
    else:
        _fill_list(value.list_value, obj, depth - 1)


def _fill_struct(struct: Struct, obj: dict[Any, object], depth: int) -> None:
    struct.SetInParent()
    slots = struct.fields
    for key, item in obj.items():
        name = key if type(key) is str else _key(key)
        try:
            _fill(slots[name], item, depth)
        except (OutputError, UnicodeEncodeError) as error:
            raise located(error, f".{clean(name, 60)}") from error.__cause__


def _fill_list(values: ListValue, items: list[object], depth: int) -> None:
    values.SetInParent()
    add = values.values.add
    for index, item in enumerate(items):
        try:
            _fill(add(), item, depth)
        except (OutputError, UnicodeEncodeError) as error:
            raise located(error, f"[{index}]") from error.__cause__


def _key(key: object) -> str:
    name = key if key is None else plain(key)
    if isinstance(name, dict | list):
        raise OutputError("a key that has no form in JSON")
    return str(name)


def located(error: Exception, step: str = "") -> OutputError:
    """*error*, a step nearer to the root of the output; protobuf refuses lone surrogates."""
    refusal = error if isinstance(error, OutputError) else OutputError("text that is not Unicode")
    refusal.path = step + refusal.path
    return refusal


PLAIN: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    (Enum, lambda obj: obj.value),
    (str, str.__str__),
    (int, int),
    (float, float),
    (Mapping, dict),
    ((list, tuple, set, frozenset), list),
    ((date, time), lambda obj: obj.isoformat()),
    (timedelta, timedelta.total_seconds),
    ((bytes, bytearray, memoryview), lambda obj: b64encode(obj).decode()),
    ((UUID, Decimal, PurePath), str),
)


def plain(obj: Any) -> object:
    """*obj* in JSON's own types, one level deep; see `to_value`."""
    convert = next((convert for kinds, convert in PLAIN if isinstance(obj, kinds)), None)
    if convert:
        return convert(obj)
    try:
        if is_dataclass(obj):
            return {field.name: getattr(obj, field.name) for field in fields(obj)}
        return obj.model_dump(mode="json")
    except (AttributeError, TypeError, ValueError) as error:
        raise OutputError("an object that has no form in JSON") from error
