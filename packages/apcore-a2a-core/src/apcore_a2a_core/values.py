"""JSON values and protobuf's: walked by hand, since every request and every result passes here."""

import json
from base64 import b64encode
from datetime import date, time
from math import isfinite
from typing import Any, NoReturn

from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value
from pydantic_core import to_jsonable_python

from .errors import OutputError, PartError

MAX_SAFE = 2**53
"""Up to here a double, and so a protobuf number, holds every integer."""

MAX_DEPTH = 30
"""Containers in each other. upb decodes 100 messages in each other; an object costs three of them
(Value, Struct, map entry), and the stream's response, task and artifact around it some more."""

MAX_KEYS = 5000
"""Object keys in one input: apcore's redaction takes some 24 us for each, on the event loop."""

KEY = 20
"""How many items of an array cost as much as a key, or as another object or array."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate names")
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique)


def load_json(text: str) -> Any:
    """The JSON value that *text* is (RFC 8259): no NaN, no name twice, nothing but Unicode.

    Raises:
        ValueError: it is none, or nested too deep to be read; the error's text is not for callers.

    >>> load_json('{"n": 1}')
    {'n': 1}
    """
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # finds lone surrogates
    return value


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dump_json(value: Any) -> bytes:
    """Return *value* as compact JSON in UTF-8.

    Raises:
        ValueError: a number is not finite.

    >>> dump_json({"n": [1, None]})
    b'{"n":[1,null]}'
    """
    return _ENCODER.encode(value).encode()


def narrow(value: Any, *, max_keys: int = MAX_KEYS, max_depth: int = MAX_DEPTH) -> Any:
    """A copy of a parsed JSON value, with integral floats as integers.

    apcore's validation is strict, while protobuf and many clients write every number as a float.

    Raises:
        PartError: there are too many keys, it is nested too deep, or a number is not finite.

    >>> narrow({"n": 3.0, "x": [0.5]})
    {'n': 3, 'x': [0.5]}
    """
    return _narrow(value, max_depth, [(max_keys + 1) * KEY - 1])


def _narrow(value: Any, depth: int, room: list[int]) -> Any:
    kind = value.__class__
    if kind is float:
        if not isfinite(value):
            raise PartError("Input has a number that is not finite")
        return _number(value)
    if kind is not dict and kind is not list:
        return value
    room[0] -= len(value) * KEY if kind is dict else len(value)
    if not depth or room[0] < 0:
        what = "is nested too deep" if not depth else "has too many keys or items"
        raise PartError(f"Input {what}")
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
    """A protobuf struct as a JSON object with its keys sorted: protobuf keeps them in no order."""
    return {key: from_value(struct.fields[key]) for key in sorted(struct.fields)}


def to_value(obj: object, *, max_depth: int = MAX_DEPTH) -> Value:
    """What a module puts out as a protobuf value.

    Takes what JSON has, dates and times (ISO 8601), bytes (base64), and all that pydantic has a
    form for, as enums, UUIDs, decimals, sets, dataclasses and models; time spans are seconds.

    Raises:
        OutputError: there is something else, a number that is not finite, an integer beyond 2^53,
            text that is no Unicode, or it is nested too deep, as a cycle is.
    """
    value = Value()
    path: list[str | int] = []
    try:
        _fill(value, obj, path, max_depth)
    except OutputError:
        raise
    except ValueError as error:  # protobuf's or pydantic's, with the rejected value in its text
        raise OutputError("something that has no form in JSON", path) from error
    return value


def _fill(value: Value, obj: Any, path: list[str | int], max_depth: int) -> None:
    """Put *obj* into *value*; *path*, the keys that lead there, stays where an error is."""
    kind = obj.__class__
    if kind is str:
        value.string_value = obj
    elif obj is None:
        value.null_value = NULL_VALUE
    elif kind is bool:
        value.bool_value = obj
    elif kind is int or kind is float:
        if (kind is int and abs(obj) > MAX_SAFE) or not isfinite(obj):
            raise OutputError("a number that is not finite, or an integer beyond 2^53,", path)
        value.number_value = obj
    elif kind in (dict, list) and len(path) == max_depth:
        raise OutputError("nesting that is too deep or endless", path)
    elif kind is dict:
        value.struct_value.SetInParent()
        slots = value.struct_value.fields
        for key, item in obj.items():
            if isinstance(key, tuple):
                raise OutputError("a key that has no form in JSON", path)
            name = key if type(key) is str else next(iter(to_jsonable_python({key: None})))
            path.append(name)
            _fill(slots[name], item, path, max_depth)
            path.pop()
    elif kind is list:
        value.list_value.SetInParent()
        for index, item in enumerate(obj):
            path.append(index)
            _fill(value.list_value.values.add(), item, path, max_depth)
            path.pop()
    elif isinstance(obj, date | time):
        value.string_value = obj.isoformat()
    elif isinstance(obj, bytes | bytearray):
        value.string_value = b64encode(obj).decode()
    else:
        plain = to_jsonable_python(obj, timedelta_mode="float", bytes_mode="base64")
        _fill(value, plain, path, max_depth)
