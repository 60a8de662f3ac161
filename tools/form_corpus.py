"""Write the schemas and inputs that the explorer's form is tested with.

Usage: python tools/form_corpus.py [FILE]

Most schemas are pydantic's, each with inputs that its model accepts; the others are written by
hand, in the manner of OpenAPI and of older drafts of JSON Schema. `npm test` in the explorer's
`web` folder reads the file.
"""

import json
import sys
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, Json, SecretStr, create_model
from typing_extensions import TypedDict

FILE = Path(__file__).parents[1] / "packages/apcore-a2a-explorer/web/src/form/corpus/schemas.json"


class Colour(StrEnum):
    """An enum of strings."""

    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    """An enum of integers."""

    LOW = 1
    HIGH = 2


class Place(BaseModel):
    """A place in a city."""

    city: str
    zip: str | None = None


class Node(BaseModel):
    """A model with a list of itself."""

    label: str
    children: list["Node"] = []


class Linked(BaseModel):
    """A model that may hold itself."""

    value: int
    next: "Linked | None" = None


class Cat(BaseModel):
    """One branch of a union."""

    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    """The other branch."""

    kind: Literal["dog"] = "dog"
    name: str


class Point(NamedTuple):
    """A named tuple."""

    x: float
    y: float


class Movie(TypedDict, total=False):
    """A typed dictionary."""

    title: str
    year: int


class Open(BaseModel):
    """A model that allows further members."""

    model_config = ConfigDict(extra="allow")
    name: str


class Image(BaseModel):
    """A picture of an item."""

    url: str
    name: str


class Item(BaseModel):
    """The item of FastAPI's tutorial."""

    name: str = Field(examples=["Foo"])
    description: str | None = Field(default=None, title="The description", max_length=300)
    price: float = Field(gt=0, description="The price must be greater than zero")
    tax: float | None = None
    tags: set[str] = set()
    images: list[Image] | None = None


# Name, type, and JSON values that the type accepts
TYPES: list[tuple[str, Any, list[Any]]] = [
    ("string", str, ["a", "two\nlines"]),
    ("limited string", Annotated[str, Field(min_length=2, max_length=5)], ["abc"]),
    ("pattern", Annotated[str, Field(pattern="^[A-Z]+$")], ["ABC"]),
    ("integer", int, [0, -3, 2**53 - 1]),
    ("limited integer", Annotated[int, Field(ge=1, le=9)], [5]),
    ("number", float, [0.25, -1e15, 3]),
    ("decimal", Decimal, [1.5, "0.1000000000000000000001"]),
    ("boolean", bool, [True, False]),
    ("null", None, [None]),
    ("any", Any, [None, 1, "a", True, [1, "a"], {"a": {"b": []}}]),
    ("enum", Colour, ["red"]),
    ("integer enum", Level, [2]),
    ("literal", Literal["a", "b", 3], ["b", 3]),
    ("one literal", Literal["only"], ["only"]),
    ("date", date, ["2024-02-29"]),
    ("date-time", datetime, ["2024-02-29T12:30:00Z", "2024-02-29T12:30:00+02:00"]),
    ("time", time, ["12:30:00Z"]),
    ("duration", timedelta, ["P1DT2H"]),
    ("uuid", UUID, ["00000000-0000-4000-8000-000000000000"]),
    ("url", AnyUrl, ["https://example.com/a"]),
    ("secret", SecretStr, ["hunter2"]),
    ("json", Json[list[int]], ["[1, 2]"]),
    ("bytes", bytes, ["plain"]),
    ("list of strings", list[str], [[], ["a", "b"]]),
    ("list of any", list, [[1, "a", None, {"b": 1}]]),
    ("list of lists", list[list[int]], [[[1], [2, 3], []]]),
    ("list of models", list[Place], [[{"city": "Rome"}, {"city": "Bonn", "zip": "1"}]]),
    ("set of literals", set[Literal["a", "b", "c"]], [["a", "c"], []]),
    ("list of enums", list[Colour], [["red", "red"], ["green"]]),
    ("frozen set", frozenset[int], [[1, 2]]),
    ("tuple", tuple[str, int], [["a", 1]]),
    ("tuple of any length", tuple[int, ...], [[1, 2, 3]]),
    ("named tuple", Point, [[1, 2.5]]),
    ("empty tuple", tuple[()], [[]]),
    ("map of strings", dict[str, str], [{}, {"team": "math", "a.b": "c"}]),
    ("map of any", dict[str, Any], [{"depth": 3, "deep": {"a": [1]}}]),
    ("map of models", dict[str, Place], [{"home": {"city": "Rome"}}]),
    ("map of lists", dict[str, list[int]], [{"a": [1, 2]}]),
    ("map with integer keys", dict[int, str], [{"1": "a"}]),
    ("map", dict, [{"a": 1}]),
    ("typed dict", Movie, [{"title": "Alien", "year": 1979}, {}]),
    ("model", Place, [{"city": "Rome"}, {"city": "Rome", "zip": "1"}]),
    ("open model", Open, [{"name": "a", "more": [1], "__proto__": "data"}]),
    ("recursive list", Node, [{"label": "a", "children": [{"label": "b", "children": []}]}]),
    ("recursive model", Linked, [{"value": 1, "next": {"value": 2, "next": None}}]),
    ("optional model", Place | None, [None, {"city": "Rome"}]),
    ("union of scalars", int | str, [1, "a"]),
    ("union of a scalar and a list", str | list[str], ["a", ["a", "b"]]),
    ("union of models", Place | Image, [{"city": "Rome"}, {"url": "u", "name": "n"}]),
    (
        "discriminated union",
        Annotated[Cat | Dog, Field(discriminator="kind")],
        [{"kind": "cat", "lives": 3}, {"kind": "dog", "name": "Rex"}],
    ),
    ("list of a union", list[Cat | Dog], [[{"kind": "dog", "name": "Rex"}, {"kind": "cat"}]]),
    ("FastAPI's item", Item, [{"name": "Foo", "price": 35.4, "tags": ["a"], "images": []}]),
    ("default", Annotated[int, Field(default=20)], [20, 21]),
    ("default list", Annotated[list[str], Field(default=["a"])], [["b"]]),
]

PET = {
    "type": "object",
    "required": ["petType"],
    "properties": {"petType": {"type": "string"}, "name": {"type": "string"}},
}

# Name, schema, and JSON values that the schema accepts
HAND_WRITTEN: list[tuple[str, Any, list[Any]]] = [
    ("true", True, [1, {"a": 1}]),
    ("empty", {}, ["a", [1]]),
    ("several types", {"type": ["string", "integer", "null"]}, ["a", 1, None]),
    ("OpenAPI nullable", {"type": "string", "nullable": True}, ["a"]),
    (
        "OpenAPI allOf",
        {"allOf": [PET, {"type": "object", "properties": {"packSize": {"type": "integer"}}}]},
        [{"petType": "dog", "packSize": 3}],
    ),
    (
        "OpenAPI file",
        {"type": "string", "format": "byte"},
        ["aGVsbG8="],
    ),
    (
        "encoded content",
        {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
        ["aGVsbG8="],
    ),
    ("tuple of draft 7", {"type": "array", "items": [{"type": "string"}, {}]}, [["a", [1]]]),
    (
        "tuple with further items",
        {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        [["a", 1, 2], ["a"]],
    ),
    (
        "titled constants",
        {"oneOf": [{"const": 1, "title": "One"}, {"const": "two", "title": "Two"}]},
        [1, "two"],
    ),
    (
        "exactly one of two members",
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        [{"a": "x"}, {"b": "x"}],
    ),
    ("pattern properties", {"patternProperties": {"^x-": {"type": "integer"}}}, [{"x-a": 1}]),
    ("no type", {"minimum": 3}, [5]),
    ("another document", {"$ref": "https://example.com/schema.json"}, [{"a": 1}, "a"]),
]


def entries() -> Iterator[dict[str, Any]]:
    """Yield the name, schema and inputs of each entry; an input is an object `{"value": …}`."""
    for name, value_type, values in TYPES:
        model = create_model("Input", value=(value_type, ...))
        inputs = [{"value": value} for value in values]
        for valid_input in inputs:
            model.model_validate_json(json.dumps(valid_input))
        yield {"name": name, "schema": model.model_json_schema(), "inputs": inputs}
    for name, schema, values in HAND_WRITTEN:
        wrapped_schema = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
        yield {
            "name": name,
            "schema": wrapped_schema,
            "inputs": [{"value": value} for value in values],
        }


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    path.write_text(json.dumps(list(entries()), indent=1) + "\n")
    print(f"{path}: {len(TYPES) + len(HAND_WRITTEN)} schemas")
