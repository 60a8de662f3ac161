"""Conversion of human-written text to the values that a JSON Schema allows (FR-MSG-003)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from math import isfinite
from typing import Any

from .data import Json
from .errors import PartError, clean
from .schema import Schema, properties_of, resolved, types_of
from .values import dump_json, is_array, load_json

SCALARS = frozenset({"string", "integer", "number", "boolean"})
"""Types whose values people write as plain text."""

INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,100}(?:\.[0-9]{0,100})?|\.[0-9]{1,100})(?:[eE][+-]?[0-9]{1,3})?"
)
BOOLEANS = {
    **dict.fromkeys(("true", "yes", "y"), True),
    **dict.fromkeys(("false", "no", "n"), False),
}

MAX_SHOWN = 20
"""Maximum number of fields or choices that an error message names."""
MAX_SHOWN_LENGTH = 100
"""Maximum length of a field or choice in an error message, in characters."""


def value_of_text(text: str, schema: object, root: Schema) -> Any:
    """Convert *text* to a value for *schema*; the value is not validated.

    Numbers and yes/no are converted; dates and times are normalized to ISO 8601; members of an
    enumeration are found ignoring case; and arrays and objects are parsed as JSON.

    Args:
        text: The text.
        schema: The schema of the value.
        root: The root schema, in which each `$ref` of *schema* is looked up.

    Raises:
        PartError: The text cannot be converted; the error says what is expected.

    >>> value_of_text("5", {"type": "integer"}, {})
    5
    >>> value_of_text("friday", {"enum": ["Friday", "Saturday"]}, {})
    'Friday'
    """
    alternatives = [*_alternatives(schema, root)]
    reasons: list[str] = []
    for alternative in alternatives:
        try:
            return _convert(text, alternative)
        except PartError as error:
            reasons.append(str(error))
    if not reasons:  # for a schema that accepts only null
        raise PartError("can't be given as text")
    raise PartError(" or ".join(dict.fromkeys(reasons)).replace(" or must be ", " or "))


def choose(text: str, choices: Iterable[Any], *, by_number: bool = False) -> Any:
    """Return the choice that *text* names, ignoring case and final `.` or `!`.

    Args:
        text: The text.
        choices: The choices, as JSON.
        by_number: Whether *text* may also be the position of a choice, counted from 1; ignored if
            a choice is itself a number.

    Raises:
        PartError: The text names none of them.

    >>> choose("2", ["Friday", "Saturday"], by_number=True)
    'Saturday'
    """
    choice_list = [*choices]
    words = [word_of(choice) for choice in choice_list]
    stripped = text.strip()
    folded = {stripped.casefold(), stripped.rstrip(".!").casefold()}
    if stripped in words:
        return choice_list[words.index(stripped)]
    for word, choice in zip(words, choice_list, strict=True):
        if word.casefold() in folded:
            return choice
    if by_number and INTEGER.fullmatch(stripped) and can_be_numbered(choice_list):
        number = int(stripped)
        if 1 <= number <= len(choice_list):
            return choice_list[number - 1]
    raise PartError(f"must be one of: {_join_shown(words)}")


def can_be_numbered(choices: Iterable[Any]) -> bool:
    """Return whether choices can be chosen by their position: none of them is itself a number."""
    return not any(NUMBER.fullmatch(word_of(choice)) for choice in choices)


def word_of(choice: Any) -> str:
    """Return a choice as people write it: text as it is, anything else as JSON."""
    return choice if isinstance(choice, str) else dump_json(choice).decode()


def scalar_property(schema: Schema) -> str | None:
    """Return the name of the only (or else the only required) property if it takes plain text.

    >>> scalar_property({"properties": {"n": {"type": "integer"}, "m": {}}, "required": ["n"]})
    'n'
    """
    root = resolved(schema, schema)
    properties = properties_of(root)
    required = root.get("required", [])
    names: Sequence[Any] = [*properties] if len(properties) == 1 else required
    if len(names) != 1 or names[0] not in properties:
        return None
    name: str = names[0]
    return name if is_scalar(properties[name], schema) else None


def is_scalar(schema: object, root: Schema) -> bool:
    """Return whether all values of *schema*, except null, can be written as plain text."""
    alternatives = [*_alternatives(schema, root)]
    return bool(alternatives) and all(
        _choices(alternative) or (types_of(alternative) and types_of(alternative) <= SCALARS)
        for alternative in alternatives
    )


def takes_nothing(schema: Schema) -> bool:
    """Return whether *schema* declares an object without any properties.

    >>> takes_nothing({"type": "object", "properties": {}}), takes_nothing({"type": "object"})
    (True, False)
    """
    root = resolved(schema, schema)
    other_keywords = ("additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf")
    return root.get("properties") == {} and not any(root.get(name) for name in other_keywords)


def fields_of(schema: Schema) -> str:
    """Describe the JSON that the schema of an object allows, for an error message.

    >>> fields_of({"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]})
    'JSON with: a (integer), b (any, optional)'
    """
    root = resolved(schema, schema)
    required = root.get("required", [])
    fields = [
        f"{name} ({kind_of(field, schema)}{'' if name in required else ', optional'})"
        for name, field in properties_of(root).items()
    ]
    return f"JSON with: {_join_shown(fields)}" if fields else "a JSON object"


def kind_of(schema: object, root: Schema) -> str:
    """Describe in a few words which values *schema* allows.

    >>> kind_of({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, {})
    'date'
    """
    kinds: list[str] = []
    for alternative in _alternatives(schema, root):
        if choices := _choices(alternative):
            kinds.append(f"one of {_join_shown(map(word_of, choices))}")
        elif alternative.get("format") in TIMES:
            kinds.append(alternative["format"])
        else:
            kinds += sorted(types_of(alternative)) or ["any"]
    return " or ".join(dict.fromkeys(kinds)) or "any"


def _alternatives(schema: object, root: Schema) -> Iterable[Json]:
    """Yield the alternatives in a schema, without null: a value must match one of them."""
    node = resolved(schema, root)
    branches = node.get("anyOf") or node.get("oneOf")
    for branch in branches if is_array(branches) else [node]:
        alternative = resolved(branch, root)
        if alternative.get("type") != "null":
            yield alternative


def _choices(schema: Json) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    choices = schema.get("enum")
    return choices if is_array(choices) else []


def _convert(text: str, schema: Json) -> Any:
    if choices := _choices(schema):
        return choose(text, choices)
    types = types_of(schema)
    stripped = text.strip()
    if "integer" in types and INTEGER.fullmatch(stripped):
        return int(stripped)
    if "number" in types and NUMBER.fullmatch(stripped) and isfinite(float(stripped)):
        return float(stripped)
    if "boolean" in types and stripped.lower() in BOOLEANS:
        return BOOLEANS[stripped.lower()]
    if "string" in types or not types:
        return _normalized_time(text, schema.get("format", ""))
    if types & {"array", "object"}:
        with suppress(ValueError):
            return load_json(text)
    raise PartError(f"must be {' or '.join(NOUNS.get(kind, kind) for kind in sorted(types))}")


NOUNS = {
    "array": "a JSON array",
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "object": "a JSON object",
}

TIMES: Mapping[str, tuple[Callable[[str], date | time], str]] = {
    "date": (date.fromisoformat, "a date, such as 2026-01-31"),
    "date-time": (datetime.fromisoformat, "a date and time, such as 2026-01-31T09:30:00Z"),
    "time": (time.fromisoformat, "a time, such as 09:30:00"),
}
"""For each format of a date or time: the function that parses ISO 8601, and a noun for errors."""


def _normalized_time(text: str, format_name: str) -> str:
    """Return *text*, normalized to ISO 8601 if *format_name* is a format for dates or times."""
    if format_name not in TIMES:
        return text
    parse, noun = TIMES[format_name]
    try:
        return parse(text.strip()).isoformat()
    except ValueError:
        raise PartError(f"must be {noun}") from None


def _join_shown(words: Iterable[str]) -> str:
    cleaned_words = [clean(word, MAX_SHOWN_LENGTH) for word in words]
    hidden_count = len(cleaned_words) - MAX_SHOWN
    more = [f"and {hidden_count} more"] if hidden_count > 0 else []
    return ", ".join([*cleaned_words[:MAX_SHOWN], *more])
