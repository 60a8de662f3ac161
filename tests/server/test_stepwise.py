"""Validation in steps accepts and refuses the same values as validation at once."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from apcore_a2a_server.modules.stepwise import TURN, stepwise_schema, stepwise_validator
from apcore_a2a_server.modules.validation import LinearSchema
from jsonschema_rs import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, field_validator
from typing_extensions import TypeAliasType, TypedDict

from .checking_client import Json


class Color(Enum):
    RED = "red"


class Integers(BaseModel):
    kind: Literal["integers"] = "integers"
    values: list[int]


class Fractions(BaseModel):
    kind: Literal["fractions"] = "fractions"
    values: list[float]


class Options(TypedDict, total=False):
    tags: list[str]


@dataclass
class Point:
    x: int
    y: int = 0


class Custom(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True, extra="forbid")
    words: list[Annotated[str, Field(pattern=re.compile("^[a-z]+$"))]]

    @field_validator("words")
    @classmethod
    def sort_words(cls, words: list[str]) -> list[str]:
        return sorted(words)


Nested = TypeAliasType("Nested", "list[Nested | int]")


class Everything(BaseModel):
    dates: list[date] = []
    colors: set[Color] = set()
    pairs: tuple[tuple[int, date], ...] = ()
    amounts: dict[str, Decimal] = {}
    either: Integers | Fractions | None = None
    listed: list[int] | dict[str, int] | list[list[str]] = []
    tagged: list[Annotated[Integers | Fractions, Field(discriminator="kind")]] = []
    options: Options = {}
    points: list[Point] = []
    custom: Custom | None = None
    nested: Nested = []
    defaults: list[dict[str, Any]] = Field(default=[{"type": "list"}])
    inner: "Everything | None" = None


VALID: list[Json] = [
    {},
    {"dates": ["2026-01-02"], "colors": ["red"], "pairs": [[1, "2026-01-02"]]},
    {"amounts": {"a": "1.5", "b": 2}, "options": {"tags": ["x"]}, "points": [{"x": 1}]},
    {"either": {"values": [1, 2]}},
    {"either": {"values": [1, 2.5]}},
    {"listed": [1]},
    {"listed": {"a": 1}},
    {"listed": [["a"]]},
    {"tagged": [{"kind": "integers", "values": [1]}, {"kind": "fractions", "values": [1.5]}]},
    {"custom": {"words": ["b ", "a"]}, "nested": [[1, [2]], 3]},
    {"inner": {"dates": ["2026-01-02"], "inner": {"colors": ["red"]}}},
]
INVALID: list[Json] = [
    {"dates": ["2026-01-02", "x", "y"]},
    {"colors": ["blue"], "pairs": [[1, 2], [3, "2026-01-02"]]},
    {"amounts": {"a": "x", "b": "y"}},
    {"either": {"values": ["x"]}},
    {"listed": ["x"]},
    {"listed": {"a": "x"}},
    {"listed": [[1]]},
    {"tagged": [{"kind": "integers", "values": [1.5]}]},
    {"tagged": [{"kind": "none"}]},
    {"options": {"tags": [1]}, "points": [{"y": 1}]},
    {"custom": {"words": ["A"], "more": 1}},
    {"nested": [["x"]]},
    {"inner": {"inner": {"dates": ["x"]}}},
]


def errors_of(validate: Callable[..., Any], data: Any) -> list[tuple[Any, ...]]:
    with pytest.raises(ValidationError) as caught:
        validate(data, strict=True)
    return [(error["loc"], error["type"], error["msg"]) for error in caught.value.errors()]


@pytest.mark.parametrize("data", VALID)
def test_validation_in_steps_accepts_the_same_values(data: Json) -> None:
    stepwise, text = stepwise_validator(Everything), json.dumps(data)
    expected = Everything.model_validate_json(text, strict=True)
    assert stepwise.validate_json(text, strict=True) == expected
    assert stepwise.validate_python(data) == Everything.model_validate(data)
    assert stepwise.validate_python(expected, strict=True) == expected


@pytest.mark.parametrize("data", INVALID)
def test_validation_in_steps_refuses_the_same_values_and_names_the_first_invalid_item(
    data: Json,
) -> None:
    stepwise, text = stepwise_validator(Everything), json.dumps(data)
    expected = errors_of(Everything.model_validate_json, text)
    errors = errors_of(stepwise.validate_json, text)
    assert errors[0] == expected[0]
    assert {*errors} <= {*expected}


def test_the_rest_of_a_list_is_not_validated_after_an_invalid_item() -> None:
    errors = errors_of(stepwise_validator(Everything).validate_json, '{"dates": ["x", "y"]}')
    assert [location for location, *_ in errors] == [("dates", 0)]


def test_a_model_that_is_a_list_is_validated_in_steps() -> None:
    class Rows(RootModel[list[date]]):
        pass

    stepwise = stepwise_validator(Rows)
    assert stepwise.validate_json('["2026-01-02"]', strict=True) == Rows([date(2026, 1, 2)])
    assert len(errors_of(stepwise.validate_json, '["x", "y"]')) == 1


MEMBERS = [{"n": n} for n in range(30)]
ENUM = {"enum": [*MEMBERS, [1, 2], [True], [], True, 1, "a", None, 2.5]}
IN_ENUM: list[Any] = [{"n": 3}, {"n": 3.0}, [1.0, 2], [True], [], True, 1, 1.0, "a", None, 2.5]
NOT_IN_ENUM: list[Any] = [
    {"n": True},
    {"n": 30},
    {"n": "3"},
    {"n": 3, "m": 1},
    {},
    [1],
    [2, 1],
    False,
    0,
]


@pytest.mark.parametrize(
    ("value", "is_member"),
    [*((value, True) for value in IN_ENUM), *((value, False) for value in NOT_IN_ENUM)],
)
def test_an_enum_of_many_objects_accepts_the_same_values_as_in_the_library(
    value: Any, is_member: bool
) -> None:
    schema, keywords = stepwise_schema(ENUM)
    assert "enum" in keywords
    assert Draft202012Validator(ENUM).is_valid(value) == is_member
    assert Draft202012Validator(schema, keywords={**keywords}).is_valid(value) == is_member


def test_an_enum_of_few_objects_is_left_to_the_library() -> None:
    assert "enum" not in stepwise_schema({"enum": MEMBERS[:5]})[1]


@pytest.mark.parametrize("name", ["default", "enum", "examples", "const", "properties"])
def test_a_list_whose_name_is_a_keyword_is_validated_in_steps_too(name: str) -> None:
    schema = {"properties": {name: {"type": "array", "items": {"type": "integer"}}}}
    in_steps, _ = stepwise_schema(schema)
    assert in_steps["properties"][name]["items"] == {TURN: True, "type": "integer"}


def test_names_and_constants_that_look_like_keywords_are_kept() -> None:
    constant: Json = {"items": {"items": {}}}
    schema = {
        "properties": {"items": {"const": constant}, "enum": {"items": {"type": "string"}}},
        "additionalProperties": False,
    }
    linear = LinearSchema(schema)
    assert linear.model_validate({"items": constant, "enum": ["a"]})
    assert linear.json_schema() is schema
    invalid: list[Json] = [{"items": {"items": []}}, {"enum": [1]}, {"x-apcore-turn": True}]
    for wrong in invalid:
        with pytest.raises(Exception, match="Input validation failed"):
            linear.model_validate(wrong)
