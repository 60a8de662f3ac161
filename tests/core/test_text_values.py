"""Text from people, converted to values by JSON Schemas."""

from contextlib import suppress
from enum import Enum
from typing import Any, Literal

import pytest
from apcore_a2a_core import PartError
from apcore_a2a_core.text_values import (
    choose,
    fields_of,
    scalar_property,
    takes_nothing,
    value_of_text,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
DATE = {"type": "string", "format": "date"}
DATE_TIME = {"type": "string", "format": "date-time"}
NULL = {"type": "null"}
SIZES = {"enum": ["S", "M", 38, None, True]}
ROOT = {"$defs": {"Size": SIZES}}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", INTEGER, 5),
        (" -12\n", INTEGER, -12),
        ("2.50", NUMBER, 2.5),
        (".5e1", NUMBER, 5.0),
        ("5", {"type": ["integer", "string"]}, 5),
        ("five", {"type": ["integer", "string"]}, "five"),
        ("Yes", BOOLEAN, True),
        ("n", BOOLEAN, False),
        (" as it is ", STRING, " as it is "),
        ("anything", {}, "anything"),
        ("anything", True, "anything"),
        ("2026-01-31", DATE, "2026-01-31"),
        ("20260131", DATE, "2026-01-31"),
        ("2026-01-31 09:30", DATE_TIME, "2026-01-31T09:30:00"),
        ("09:30", {"type": "string", "format": "time"}, "09:30:00"),
        ("me@example.com", {"type": "string", "format": "email"}, "me@example.com"),
        ("m", SIZES, "M"),
        ("38", SIZES, 38),
        ("NULL", SIZES, None),
        ("true.", SIZES, True),
        ("big", {"const": "Big"}, "Big"),
        ("s", {"$ref": "#/$defs/Size"}, "S"),
        ("s", {"allOf": [{"$ref": "#/$defs/Size"}], "default": "M"}, "S"),
        ("7", {"anyOf": [INTEGER, NULL]}, 7),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ('{"a": 1}', {"anyOf": [{"properties": {"a": {}}}, NULL]}, {"a": 1}),
        ("now", {"anyOf": [DATE, {"const": "now"}]}, "now"),
    ],
)
def test_text_is_converted_by_the_schema(text: str, schema: Any, value: Any) -> None:
    converted = value_of_text(text, schema, ROOT)
    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(
    ("text", "schema", "reason"),
    [
        ("5.5", INTEGER, "must be a whole number"),
        ("1_000", INTEGER, "must be a whole number"),
        ("9" * 5000, INTEGER, "must be a whole number"),
        ("1e999", NUMBER, "must be a number"),
        ("nan", NUMBER, "must be a number"),
        ("maybe", BOOLEAN, "must be yes or no"),
        ("Friday", DATE, "must be a date, such as 2026-01-31"),
        ("2026-02-30", DATE_TIME, "must be a date and time, such as 2026-01-31T09:30:00Z"),
        ("xl", {"enum": ["S", "M"]}, "must be one of: S, M"),
        ("a, b", {"type": "array"}, "must be a JSON array"),
        ("x", {"anyOf": [INTEGER, BOOLEAN, NULL]}, "must be a whole number or yes or no"),
        ("x", NULL, "can't be given as text"),
    ],
)
def test_the_reason_for_a_refusal_says_which_text_is_valid(
    text: str, schema: Any, reason: str
) -> None:
    with pytest.raises(PartError) as caught:
        value_of_text(text, schema, ROOT)
    assert str(caught.value) == reason


def test_a_choice_is_made_by_name_or_number() -> None:
    days = ["Friday", "Saturday", "2"]
    assert choose(" saturday! ", days[:2], by_number=True) == "Saturday"
    assert choose("2", days[:2], by_number=True) == "Saturday"
    assert choose("2", days, by_number=True) == "2"
    assert choose("FRIDAY", ["friday", "FRIDAY"]) == "FRIDAY"
    for text, choices in (("0", days[:2]), ("3", days[:2]), ("1", [2, 4]), ("1", days), ("", days)):
        with pytest.raises(PartError):
            choose(text, choices, by_number=True)
    with pytest.raises(PartError, match="and 80 more"):
        choose("x", map(str, range(100)))


@given(st.text(), st.sampled_from([STRING, INTEGER, NUMBER, BOOLEAN, DATE, DATE_TIME, SIZES, {}]))
def test_every_text_is_converted_or_refused(text: str, schema: Any) -> None:
    with suppress(PartError):
        value_of_text(text, schema, ROOT)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Order(BaseModel):
    size: Size
    to: Literal["here", "there"] | None = None
    lines: list[str] = []


def test_models_of_pydantic_are_described_and_take_text() -> None:
    schema = Order.model_json_schema()
    assert scalar_property(schema) == "size"
    assert fields_of(schema) == (
        "JSON with: size (one of small, large), "
        "to (one of here, there, optional), lines (array, optional)"
    )


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"properties": {"a": INTEGER}}, "a"),
        ({"properties": {"a": {"type": "array"}}}, None),
        ({"properties": {"a": {}}}, None),
        ({"properties": {"a": {"anyOf": [INTEGER, {"type": "array"}]}}}, None),
        ({"properties": {"a": {"anyOf": [INTEGER, NULL]}}}, "a"),
        ({"properties": {"a": INTEGER, "b": INTEGER}}, None),
        ({"properties": {"a": INTEGER, "b": INTEGER}, "required": ["b"]}, "b"),
        ({"properties": {"a": INTEGER, "b": INTEGER}, "required": ["c"]}, None),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": STRING}}}}, "a"),
        ({}, None),
    ],
)
def test_text_goes_to_the_only_scalar_or_the_only_required_one(
    schema: Any, name: str | None
) -> None:
    assert scalar_property(schema) == name


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {}}, True),
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({"type": "object", "properties": {}, "additionalProperties": True}, False),
        ({"type": "object"}, False),
        ({}, False),
        ({"properties": {"a": {}}}, False),
    ],
)
def test_only_a_schema_with_empty_properties_takes_nothing(schema: Any, expected: bool) -> None:
    assert takes_nothing(schema) is expected
