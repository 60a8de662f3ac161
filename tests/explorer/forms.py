"""Skills with every kind of input that a form can show."""

import asyncio
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from apcore import (
    Context,
    InvalidInputError,
    ModuleAnnotations,
    ModuleExample,
    Registry,
    SchemaValidationError,
)
from pydantic import BaseModel, Field

from tests.server.modules import Inputs, Module

from . import agent


def schema(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    """Return the JSON Schema of an object that may have only these members."""
    return {
        "type": "object",
        "properties": properties,
        "required": required or [],
        "additionalProperties": False,
    }


class Mirror(Module):
    """Returns its inputs."""

    description: ClassVar[str] = "Returns its inputs"

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return inputs


class Kinds(Mirror):
    input_schema: ClassVar[Any] = schema(
        ["code", "count"],
        code={"type": "string", "title": "Code", "pattern": "^[A-Z]{3}$"},
        count={"type": "integer", "title": "Count", "minimum": 1, "maximum": 9},
        share={"type": "number", "title": "Share", "exclusiveMaximum": 1},
        loud={"type": "boolean", "title": "Loud"},
        colour={"type": "string", "title": "Colour", "enum": ["red", "green"]},
        speed={"type": "string", "title": "Speed", "enum": ["slow", "fast"], "default": "fast"},
        day={"type": "string", "title": "Day", "format": "date"},
        mail={"type": "string", "title": "Mail", "format": "email"},
        site={"type": "string", "title": "Site", "format": "uri"},
        nick={"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}], "title": "Nick"},
        age={"type": ["integer", "null"], "title": "Age", "default": None},
    )


class Address(BaseModel):
    city: str = Field(min_length=1)
    zip: str | None = None


class Person(BaseModel):
    name: str
    address: Address


class Line(BaseModel):
    sku: str
    quantity: int = Field(default=1, ge=1)


class Order(BaseModel):
    """A customer's order."""

    customer: Person
    lines: list[Line] = Field(min_length=1)
    notes: list[str] = []


class Nested(Mirror):
    """Nested models, arrays of objects and arrays of strings."""

    input_schema = Order
    examples: ClassVar[Any] = [
        ModuleExample(
            title="Two teas",
            inputs={
                "customer": {"name": "Ada", "address": {"city": "London"}},
                "lines": [{"sku": "tea", "quantity": 2}],
            },
        )
    ]


class Node(BaseModel):
    label: str
    children: list["Node"] = Field(default_factory=list)


class Tree(Mirror):
    """A recursive model."""

    input_schema = Node


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Everything(BaseModel):
    """Members of types that are hard to show in a form."""

    anything: Any
    labels: dict[str, str] = {}
    size: tuple[int, str]
    flags: set[Literal["a", "b", "c"]] = set()
    home: Address | None = None
    pet: Cat | Dog = Field(discriminator="kind")
    amount: Decimal = Decimal(20)
    photo: Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})] = ""
    pages: list[Annotated[str, Field(json_schema_extra={"format": "byte"})]] = []


class Awkward(Mirror):
    input_schema = Everything


CASH = schema(["cash"], cash={"type": "integer", "title": "Cash"}) | {"title": "In cash"}
CARD = schema(["number"], number={"type": "string", "title": "Number"}) | {"title": "By card"}


class Choices(Mirror):
    """Members that take one of several types."""

    input_schema: ClassVar[Any] = schema(
        ["payment"],
        payment={"title": "Payment", "oneOf": [CASH, CARD]},
        size={
            "title": "Size",
            "anyOf": [
                {"type": "integer", "title": "A number"},
                {"type": "string", "title": "A name"},
            ],
        },
    )


class Picky(Module):
    """Refuses some inputs that its schema allows."""

    description: ClassVar[str] = "Refuses some inputs that its schema allows"
    input_schema: ClassVar[Any] = schema(
        ["who"],
        who=schema(["name"], name={"type": "string", "title": "Name"}) | {"title": "Who"},
        seats={"type": "array", "title": "Seats", "items": {"type": "integer"}},
    )

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        if inputs["who"]["name"] == "Eve":
            error = {"code": "known", "message": "There is no such person"}
            raise SchemaValidationError(errors=[{"field": "who.name", **error}])
        if 13 in inputs.get("seats", []):
            index = inputs["seats"].index(13)
            error = {"code": "free", "message": "The seat is taken"}
            raise SchemaValidationError(errors=[{"field": f"seats.{index}", **error}])
        if inputs["who"]["name"] == "Mallory":
            raise InvalidInputError("Mallory is not welcome")
        return inputs


class Fails(Module):
    description: ClassVar[str] = "Always fails"
    input_schema: ClassVar[Any] = schema(["text"], text={"type": "string", "title": "Text"})

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        await asyncio.sleep(0)
        raise RuntimeError("hunter2")


class Says(Module):
    """Returns its text."""

    description: ClassVar[str] = "Repeats its text"
    documentation: ClassVar[str] = "# How to speak\n\nSay **anything**: it comes back."
    tags: ClassVar[list[str]] = ["parrot"]
    annotations = ModuleAnnotations(open_world=True, cacheable=True)
    input_schema: ClassVar[Any] = schema(["text"], text={"type": "string", "title": "Text"})
    output_schema: ClassVar[Any] = schema(["said"], said={"type": "string", "title": "Said"})

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"said": inputs["text"]}


class Digits(Module):
    """Returns a sentence with all digits of a number."""

    description: ClassVar[str] = "Writes a number to its last digit"
    input_schema: ClassVar[Any] = schema(["number"], number={"type": "integer", "title": "Number"})

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"number": f"It is {inputs['number']}."}


def registry() -> Registry:
    """Return the modules above, and those of examples/."""
    modules = agent.registry()
    for name, module in {
        "form.kinds": Kinds(),
        "form.nested": Nested(),
        "form.tree": Tree(),
        "form.choices": Choices(),
        "form.awkward": Awkward(),
        "form.picky": Picky(),
        "form.fails": Fails(),
        "form.says": Says(),
        "form.digits": Digits(),
    }.items():
        modules.register(name, module)
    return modules
