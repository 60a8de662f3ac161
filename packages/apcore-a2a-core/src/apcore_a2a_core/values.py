"""Conversion between JSON and protobuf values, written by hand because every request needs it."""

import json
import re
from base64 import b64encode
from datetime import date, time
from itertools import accumulate
from math import isfinite
from typing import Any, NoReturn

from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value
from pydantic_core import to_jsonable_python

from .errors import OutputError, PartError

MAX_SAFE = 2**53
"""Up to here a double, and so a protobuf number, represents every integer exactly."""

MAX_DEPTH = 30
"""Maximum depth of nested objects and arrays. Protobuf's parser (upb) accepts 100 nested messages;
an object costs three (Value, Struct, map entry), and the messages around it a few more."""

MAX_KEYS = 5000
"""Maximum number of object keys in one input: apcore's redaction takes 24 us for each."""

MAX_VALUES = 100_000
"""Maximum number of values in a JSON text: parsing and converting them takes some 100 ms."""

MAX_NESTING = 64
"""Maximum depth of nested objects and arrays in a JSON text."""

MAX_DIGITS = 1000
"""Digits of an integer up to which `int` is fast; a double has at most 309."""

INT_DIGITS = 4300
"""Digits of an integer up to which Python parses it."""

LARGE = 500
"""Number of values from which on it takes too long to check a value on the event loop."""

NO_BRACKETS = re.compile(r"[^\[\]{}]+")

KEY_COST = 20
"""Cost of an object key, in array items; see `MAX_KEYS`."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate names")
    return members


def _integer(digits: str) -> float:
    """Parse an integer in linear time; a long one as a float, which is refused like 1e999."""
    if len(digits) <= MAX_DIGITS:
        return int(digits)
    if len(digits) > INT_DIGITS:
        raise ValueError("too many digits")
    return float(digits)


_DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique, parse_int=_integer)


class JsonSizeError(ValueError):
    """JSON with too many values, or nested too deep; the message names the bound."""


def load_json(text: str, max_values: int = MAX_VALUES) -> Any:
    """Parse strict JSON (RFC 8259): no NaN, no duplicate names, no lone surrogates.

    Raises:
        JsonSizeError: The text has too many values, or is nested too deep; it was not parsed.
        ValueError: The text is not strict JSON. The message is not for callers.

    >>> load_json('{"n": 1}')
    {'n': 1}
    """
    check_json_size(text, max_values)
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # fails for lone surrogates
    return value


def check_json_size(text: str, max_values: int = MAX_VALUES) -> None:
    """Refuse JSON that takes long to parse, without parsing it.

    Objects and arrays count as well as the values in them. The content of strings does not count:
    a table in a string has a million commas, and is parsed at once.

    Raises:
        JsonSizeError: The text has too many values, or is nested too deep.
    """
    opened = text.count("[") + text.count("{")
    if opened <= MAX_NESTING and opened + text.count(",") < max_values:
        return
    unescaped = text.replace("\\\\", "").replace('\\"', "") if "\\" in text else text
    # a value and its name are at most two strings, each between two quotes
    if unescaped.count('"') > 4 * max_values:
        raise JsonSizeError(f"has more than {max_values} values")
    outside = "".join(unescaped.split('"')[::2])
    opened = outside.count("[") + outside.count("{")
    if opened + outside.count(",") >= max_values:
        raise JsonSizeError(f"has more than {max_values} values")
    if opened > MAX_NESTING:
        steps = (1 if bracket in "[{" else -1 for bracket in NO_BRACKETS.sub("", outside))
        if max(accumulate(steps)) > MAX_NESTING:
            raise JsonSizeError(f"is nested deeper than {MAX_NESTING}")


def is_large(value: object, limit: int = LARGE) -> bool:
    """Return whether *value* has more than *limit* values, counting no further than that.

    >>> is_large({"a": [1, 2]}), is_large([0] * 1000)
    (False, True)
    """
    pending: list[Any] = [value]
    count = 0
    while pending and count <= limit:
        item = pending.pop()
        kind = item.__class__
        if kind is dict or kind is list:
            count += len(item)
            if count <= limit:
                pending += item.values() if kind is dict else item
    return count > limit


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dump_json(value: Any) -> bytes:
    """Return *value* as compact JSON in UTF-8.

    Raises:
        ValueError: A number is not finite.

    >>> dump_json({"n": [1, None]})
    b'{"n":[1,null]}'
    """
    return _ENCODER.encode(value).encode()


def narrow(value: Any, *, max_keys: int = MAX_KEYS, max_depth: int = MAX_DEPTH) -> Any:
    """Return a copy of a parsed JSON value, with integral floats as integers.

    apcore's validation is strict, while protobuf and many clients write every number as a float.

    Raises:
        PartError: There are too many keys, too deep a nesting, or a number that is not finite.

    >>> narrow({"n": 3.0, "x": [0.5]})
    {'n': 3, 'x': [0.5]}
    """
    return _narrow(value, max_depth, [(max_keys + 1) * KEY_COST - 1])


def _narrow(value: Any, depth: int, budget: list[int]) -> Any:
    kind = value.__class__
    if kind is float:
        if not isfinite(value):
            raise PartError("Input has a number that is not finite")
        return _number(value)
    if kind is not dict and kind is not list:
        return value
    budget[0] -= len(value) * KEY_COST if kind is dict else len(value)
    if not depth or budget[0] < 0:
        problem = "is nested too deep" if not depth else "has too many keys or items"
        raise PartError(f"Input {problem}")
    if kind is list:
        return [v if type(v) is str else _narrow(v, depth - 1, budget) for v in value]
    return {k: v if type(v) is str else _narrow(v, depth - 1, budget) for k, v in value.items()}


def _number(number: float) -> float:
    return int(number) if number.is_integer() and abs(number) <= MAX_SAFE else number


def from_value(value: Value) -> Any:
    """Convert a protobuf value to JSON, with integral floats as integers.

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
    """Convert a protobuf struct to a JSON object, with sorted keys: protobuf has no order."""
    return {key: from_value(struct.fields[key]) for key in sorted(struct.fields)}


def to_value(obj: object, *, max_depth: int = MAX_DEPTH) -> Value:
    """Convert the output of a module to a protobuf value.

    Accepts JSON types, dates and times (ISO 8601), bytes (base64), and all types that pydantic
    can serialize, such as enums, UUIDs, decimals, sets, dataclasses and models. Time spans become
    seconds.

    Raises:
        OutputError: There is another type, a number that is not finite, an integer beyond 2^53,
            text with lone surrogates, or the nesting is too deep (or cyclic).
    """
    value = Value()
    path: list[str | int] = []
    try:
        _fill(value, obj, path, max_depth)
    except OutputError:
        raise
    except ValueError as error:  # from protobuf or pydantic: its text has the rejected value
        raise OutputError("a value that JSON cannot represent", path) from error
    return value


def _fill(value: Value, obj: Any, path: list[str | int], max_depth: int) -> None:
    """Copy *obj* into *value*; after an error, *path* has the keys that lead to its place."""
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
                raise OutputError("a key that JSON cannot represent", path)
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
