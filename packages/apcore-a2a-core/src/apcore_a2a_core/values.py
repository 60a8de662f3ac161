"""JSON values: reading them within bounds, writing them, and converting outputs to them."""

import re
from base64 import b64encode
from datetime import date, time
from itertools import accumulate
from math import inf, isfinite
from typing import Any, TypeGuard, TypeVar

from msgspec import DecodeError, json
from pydantic_core import to_jsonable_python

from .data import Json
from .errors import OutputError, PartError

T = TypeVar("T")

MAX_SAFE = 2**53
"""The largest integer up to which a double represents all integers exactly."""

MAX_DEPTH = 30
"""Maximum depth of nested objects and arrays in inputs and outputs. Protobuf clients accept 100
levels in responses; an object costs three (Value, Struct, map entry)."""

MAX_BITS = 14_284
"""Maximum size of an integer, in bits: 4,300 digits, the most that Python converts to text."""

MAX_KEYS = 5000
"""Maximum number of object keys in one input: apcore's redaction takes 24 microseconds for each."""

MAX_VALUES = 100_000
"""Maximum number of values in a JSON text: parsing and converting them takes about 100 ms."""

MAX_DIGIT_COST = 2 * 10**8
"""Maximum sum of the squared digit counts of all integers in a large JSON text: the time to read or
write an integer grows with the square of its digit count, and is 0.1 ms for 4,300 digits."""

LONG_TEXT = 64 * 1024
"""Length in characters from which a text is long. Integers in a shorter JSON text need no check,
since they take 2 ms at most (see `MAX_DIGIT_COST`). Converting or validating a shorter text takes
less than 1 ms (see `is_large_or_long`)."""

MAX_NESTING = 64
"""Maximum depth of nested objects and arrays in a JSON text."""

CONTAINERS = frozenset({dict, list})
FLAT = frozenset({str, int, bool, type(None)})
"""Types of values that `narrow` does not change."""
LARGE = 500
"""Maximum number of values in JSON that is converted or validated in the event loop."""

DIGITS = re.compile(r"\.?[0-9]+")
"""Digits of a number; those after a point are a fraction, not an integer."""
NO_BRACKETS = re.compile(r"[^\[\]{}]+")

KEY_COST = 20
"""An object key counts as much as this number of array items; see `MAX_KEYS`."""


_DECODER = json.Decoder()
_ENCODER = json.Encoder()
_DECODERS: dict[type[Any], json.Decoder[Any]] = {}


class JsonSizeError(ValueError):
    """JSON with too many values or long integers, or nested too deeply; the message says which."""


def is_object(value: object) -> TypeGuard[Json]:
    """Return whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether *value* is a JSON array."""
    return isinstance(value, list)


def object_at(node: object, *keys: str) -> Json | None:
    """Return the object at the path *keys* in *node*, or None if there is none."""
    for key in keys:
        node = node.get(key) if is_object(node) else None
    return node if is_object(node) else None


def object_of(owner: object, name: str, *keys: str) -> Json:
    """Return the object at the path *keys* in the attribute *name* of *owner*; empty if missing."""
    return object_at(getattr(owner, name, None), *keys) or {}


def load_json(text: str | bytes, max_values: int = MAX_VALUES) -> Any:
    """Parse strict JSON (RFC 8259): no NaN, no lone surrogates.

    Bytes are UTF-8. Of members with the same name, the last counts. Integers are exact up to the
    4,300 digits that Python parses.

    Raises:
        JsonSizeError: The text has too many values or long integers, or is nested too deeply; it
            was not parsed.
        ValueError: The text is not strict JSON. The message is not for clients.

    >>> load_json('{"n": 1}')
    {'n': 1}
    """
    if not _is_small(text, max_values):
        text = text.decode() if isinstance(text, bytes) else text
        check_json_size(text, max_values)
    try:
        return _DECODER.decode(text)
    except (DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def check_json_size(text: str, max_values: int = MAX_VALUES) -> None:
    """Refuse JSON that would take long to parse, without parsing it.

    Each object or array counts as one value, and so does each value in it. The content of strings
    does not count: a string with a table may have a million commas, but is parsed quickly.

    Raises:
        JsonSizeError: The text has too many values or long integers, or is nested too deeply.
    """
    if _is_small(text, max_values):
        return
    unescaped = text.replace("\\\\", "").replace('\\"', "") if "\\" in text else text
    # a value and its name are at most two strings, each between two quotes
    if unescaped.count('"') > 4 * max_values:
        raise JsonSizeError(f"has more than {max_values} values")
    outside = "".join(unescaped.split('"')[::2])
    brackets = outside.count("[") + outside.count("{")
    if brackets + outside.count(",") >= max_values:
        raise JsonSizeError(f"has more than {max_values} values")
    if brackets > MAX_NESTING:
        steps = (1 if bracket in "[{" else -1 for bracket in NO_BRACKETS.sub("", outside))
        if max(accumulate(steps)) > MAX_NESTING:
            raise JsonSizeError(f"is nested deeper than {MAX_NESTING}")
    integers = (digits for digits in DIGITS.findall(outside) if digits[0] != ".")
    if sum(len(digits) ** 2 for digits in integers) > MAX_DIGIT_COST:
        raise JsonSizeError("has too many long integers")


def _is_small(text: str | bytes, max_values: int) -> bool:
    """Return whether JSON is so short, with so few brackets, that its size need not be checked."""
    if isinstance(text, bytes):
        brackets = text.count(b"[") + text.count(b"{")
    else:
        brackets = text.count("[") + text.count("{")
    return brackets <= MAX_NESTING and len(text) < min(LONG_TEXT, max_values)


def is_large(value: Any, limit: int = LARGE) -> bool:
    """Return whether *value* has more than *limit* values, counting no further than that.

    >>> is_large({"a": [1, 2]}), is_large([0] * 1000)
    (False, True)
    """
    if (
        value.__class__ is dict
        and len(value) <= limit
        and CONTAINERS.isdisjoint(map(type, value.values()))
    ):
        return False  # the usual case; the rest of this function takes twice as long
    counted: list[Any] = [value]
    for item in counted:  # grows during the loop
        if item.__class__ in CONTAINERS:
            if len(counted) + len(item) > limit + 1:
                return True
            counted += item.values() if item.__class__ is dict else item
    return False


def dump_json(value: Any) -> bytes:
    """Return *value* as compact JSON in UTF-8.

    *value* may contain objects of `apcore_a2a_core.data`. Numbers that are not finite become null;
    `to_json` refuses them in outputs beforehand.

    >>> dump_json({"n": [1, None]})
    b'{"n":[1,null]}'
    """
    return _ENCODER.encode(value)


def read_json(kind: type[T], body: bytes) -> T:
    """Parse a value of *kind*, a type in `apcore_a2a_core.data`, from JSON that `dump_json` wrote.

    >>> from apcore_a2a_core.data import Part
    >>> read_json(Part, dump_json(Part(data=2**70))).data == 2**70
    True
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = json.Decoder(kind)
    value: T = decoder.decode(body)
    return value


def size_of(value: Any) -> int:
    """Return the size of *value* as JSON, in bytes."""
    return len(_ENCODER.encode(value))


def text_size(value: Any, limit: float = inf) -> int:
    """Return the number of characters and items in *value*: a lower bound for its size as JSON.

    Long texts are not encoded, because encoding takes milliseconds for each megabyte. In nested
    values, counting ends soon after *limit*.

    >>> text_size({"text": "abc", "list": [1, 2]})
    15
    """
    if value.__class__ is dict and (flat_size := _flat_text_size(value)) is not None:
        return len(value) + flat_size
    total, counted = 0, [value]
    for item in counted:  # grows during the loop
        if item.__class__ is str:
            total += len(item)
        elif item.__class__ in CONTAINERS:
            total += len(item)
            if total < limit:
                counted += [*item, *item.values()] if item.__class__ is dict else item
        if total >= limit:
            break
    return total


def _flat_text_size(value: dict[Any, Any]) -> int | None:
    """Return the number of characters in an object; None if it contains arrays or objects.

    Most values are flat: for these, this loop is much faster than the walk in `text_size`.
    """
    total = 0
    for name, item in value.items():
        if name.__class__ is str:  # outputs of modules may have other keys
            total += len(name)
        if item.__class__ is str:
            total += len(item)
        elif item.__class__ in CONTAINERS:
            return None
    return total


def is_large_or_long(value: Any) -> bool:
    """Return whether *value* is so large, or has such long texts, that its conversion takes long.

    >>> is_large_or_long({"text": "x" * 100_000}), is_large_or_long({"text": "x"})
    (True, False)
    >>> is_large_or_long({"x" * 100_000: 1})
    True
    """
    if value.__class__ is dict and len(value) <= LARGE:
        flat_size = _flat_text_size(value)
        if flat_size is not None:
            return flat_size >= LONG_TEXT
    return is_large(value) or text_size(value, LONG_TEXT) >= LONG_TEXT


def narrow(value: Any, *, max_keys: int = MAX_KEYS, max_depth: int = MAX_DEPTH) -> Any:
    """Return a copy of a parsed JSON value, with integral floats up to `MAX_SAFE` as integers.

    apcore's validation is strict, while clients that use protobuf write every number as a float.

    Raises:
        PartError: There are too many keys or items, the nesting is too deep, or a number is not
            finite.

    >>> narrow({"n": 3.0, "x": [0.5]})
    {'n': 3, 'x': [0.5]}
    """
    if (
        value.__class__ is dict
        and len(value) <= LARGE
        and len(value) <= max_keys
        and max_depth
        and FLAT.issuperset(map(type, value.values()))
    ):
        return {**value}  # the usual case; the rest takes three times as long
    budget = (max_keys + 1) * KEY_COST - 1  # one too few for max_keys + 1 keys
    return _narrow(value, max_depth, [budget])


def _narrow(value: Any, depth: int, budget: list[int]) -> Any:
    kind = value.__class__
    if kind is float:
        if not isfinite(value):
            raise PartError("Input has a number that is not finite")
        return _narrow_number(value)
    if kind is not dict and kind is not list:
        return value
    budget[0] -= len(value) * KEY_COST if kind is dict else len(value)
    if not depth or budget[0] < 0:
        problem = "is nested too deeply" if not depth else "has too many keys or items"
        raise PartError(f"Input {problem}")
    if kind is list:
        return [v if type(v) is str else _narrow(v, depth - 1, budget) for v in value]
    return {k: v if type(v) is str else _narrow(v, depth - 1, budget) for k, v in value.items()}


def _narrow_number(number: float) -> float:
    return int(number) if number.is_integer() and abs(number) <= MAX_SAFE else number


def to_json(obj: object, *, max_depth: int = MAX_DEPTH) -> Any:
    """Convert a module's output to JSON values, with integral floats up to `MAX_SAFE` as integers.

    Accepts JSON types, dates and times (ISO 8601), bytes (base64), and all types that pydantic
    can serialize, such as enums, UUIDs, decimals, sets, dataclasses and models. Time spans become
    seconds.

    Raises:
        OutputError: A value has another type, is a number that is too long or not finite, is text
            with lone surrogates, or is nested too deeply (or cyclic).

    >>> to_json({"at": date(2026, 1, 31), "n": 3.0})
    {'at': '2026-01-31', 'n': 3}
    """
    path: list[str | int] = []
    try:
        return _convert(obj, path, max_depth)
    except OutputError:
        raise
    except ValueError as error:  # its text may have the rejected value, so hide it
        raise OutputError("a value that JSON cannot represent", path) from error


def _name_of(key: Any, path: list[str | int]) -> str:
    """Return the name in JSON for a key that is not a string."""
    if isinstance(key, tuple):
        raise OutputError("a key that JSON cannot represent", path)
    name: str = next(iter(to_jsonable_python({key: None})))
    return name


def _convert(obj: Any, path: list[str | int], max_depth: int) -> Any:
    """Return *obj* as JSON; after an error, *path* has the keys that lead to the faulty value."""
    kind = obj.__class__
    if kind is str:
        if not obj.isascii():
            obj.encode()  # fails for lone surrogates
        return obj
    if obj is None or kind is bool:
        return obj
    if kind is int:
        if obj.bit_length() > MAX_BITS:
            raise OutputError("an integer that is too long", path)
        return obj
    if kind is float:
        if not isfinite(obj):
            raise OutputError("a number that is not finite", path)
        return _narrow_number(obj)
    if kind in (dict, list) and len(path) == max_depth:
        raise OutputError("nesting that is too deep or endless", path)
    if kind is dict:
        members: dict[str, Any] = {}
        for key, item in obj.items():
            name = key if key.__class__ is str else _name_of(key, path)
            if item.__class__ is str and name.isascii() and item.isascii():
                members[name] = item  # the usual case, which needs no recursive call
                continue
            path.append(name)
            if not name.isascii():
                name.encode()
            members[name] = _convert(item, path, max_depth)
            path.pop()
        return members
    if kind is list:
        items: list[Any] = []
        for index, item in enumerate(obj):
            path.append(index)
            items.append(_convert(item, path, max_depth))
            path.pop()
        return items
    if isinstance(obj, date | time):
        return obj.isoformat()
    if isinstance(obj, bytes | bytearray):
        return b64encode(obj).decode()
    # pydantic would write bytes in these containers as URL-safe base64
    if isinstance(obj, tuple | set | frozenset):
        return _convert([*obj], path, max_depth)
    if isinstance(obj, dict):
        return _convert({**obj}, path, max_depth)
    jsonable = to_jsonable_python(obj, timedelta_mode="float", bytes_mode="base64")
    return _convert(jsonable, path, max_depth)
