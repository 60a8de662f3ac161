"""Modules that behave, and modules that do not."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

from apcore import Context, InvalidInputError, Registry, SchemaValidationError
from apcore_a2a_server import create_app
from pydantic import BaseModel, Field
from starlette.applications import Starlette

Inputs = dict[str, Any]

SECRET = "db password=hunter2 /etc/secret/path"
"""What nobody but the operator may get to read."""


class Text(BaseModel):
    text: str


class Item(BaseModel):
    name: str
    count: int = Field(ge=1)


class Order(BaseModel):
    customer: Text
    items: list[Item]


class What(BaseModel):
    what: str


class Module:
    description: ClassVar[str] = "A module of the tests"
    input_schema: ClassVar[Any] = None
    output_schema: ClassVar[Any] = None


class Echo(Module):
    input_schema = Text
    output_schema = Text

    def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"text": inputs["text"]}


class Mirror(Module):
    """Gives back what it gets."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return inputs


class Seen(Module):
    """Tells in text what it has got, to the last digit."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"seen": json.dumps(inputs)}


class Anything(Seen):
    """Takes any object."""

    input_schema: ClassVar[Any] = {"type": "object"}


class OrderTotal(Module):
    input_schema = Order

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"total": sum(item["count"] for item in inputs["items"])}


class Slow(Module):
    """Works until somebody stops it."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> None:
        await asyncio.Event().wait()


class Nested(Module):
    """Calls another module with the wrong inputs, or one that is not there."""

    input_schema = What

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Any:
        executor: Any = context.executor
        return await executor.call_async(inputs["what"], {"wrong": SECRET}, context)


class FatalError(BaseException):
    """No exception that anybody expects."""


class UnspeakableError(Exception):
    """Raises when it is shown."""

    def __str__(self) -> str:
        raise ValueError(SECRET)


class DetailedError(SchemaValidationError):
    """Has details of other types than apcore's own."""

    def __init__(self) -> None:
        super().__init__(SECRET)
        self.details: Any = {"errors": [SECRET], "call_chain": 5}


MISDEEDS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError(SECRET),
    "key": lambda: KeyError(SECRET),
    "input": lambda: InvalidInputError("no \ud800 text"),
    "schema": lambda: SchemaValidationError(SECRET),
    "details": DetailedError,
    "exit": lambda: SystemExit(SECRET),
    "interrupt": lambda: KeyboardInterrupt(SECRET),
    "fatal": lambda: FatalError(SECRET),
    "canceled": lambda: asyncio.CancelledError(SECRET),
    "unspeakable": UnspeakableError,
    "memory": lambda: MemoryError(SECRET),
    "depth": lambda: RecursionError(SECRET),
    "stop": lambda: StopAsyncIteration(SECRET),
    "group": lambda: ExceptionGroup(SECRET, [ValueError(SECRET)]),
}


def misdeed(inputs: Inputs) -> BaseException:
    return MISDEEDS[inputs["what"]]()


class Raises(Module):
    input_schema = What

    def execute(self, inputs: Inputs, context: Context[Any]) -> None:
        raise misdeed(inputs)


class RaisesLater(Module):
    input_schema = What

    async def execute(self, inputs: Inputs, context: Context[Any]) -> None:
        await asyncio.sleep(0)
        raise misdeed(inputs)


class RaisesInStream(RaisesLater):
    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Inputs]:
        yield {"chunk": 1}
        raise misdeed(inputs)


def endless() -> Inputs:
    loop: Inputs = {}
    loop["again"] = loop
    return loop


def deep(levels: int) -> Inputs:
    found: Inputs = {}
    for _ in range(levels):
        found = {"a": found}
    return found


OUTPUTS: dict[str, Any] = {
    "nan": {"value": float("nan")},
    "infinity": {"rows": [float("-inf")]},
    "large integer": {"value": 2**60},
    "larger integer": {"value": 10**400},
    "object": {"value": object()},
    "bare object": object(),
    "function": {"value": deep},
    "endless": endless(),
    "deep": deep(200),
    "surrogate": {"value": "\ud800"},
    "surrogate key": {"\ud800": 1},
    "surrogate name": {"\ud800": b"1"},
    "bare surrogate": "\ud800",
    "tuple key": {(1, 2): 3},
}


class Puts(Module):
    """Puts out what protocols do not carry."""

    input_schema = What

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Any:
        return OUTPUTS[inputs["what"]]


class PutsInStream(Puts):
    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Any]:
        yield {"chunk": 1}
        yield OUTPUTS[inputs["what"]]


def registry() -> Registry:
    found = Registry()
    for name, module in {
        "echo": Echo(),
        "mirror": Mirror(),
        "seen": Seen(),
        "anything": Anything(),
        "order.total": OrderTotal(),
        "slow": Slow(),
        "nested": Nested(),
        "raises": Raises(),
        "raises.later": RaisesLater(),
        "raises.stream": RaisesInStream(),
        "puts": Puts(),
        "puts.stream": PutsInStream(),
    }.items():
        found.register(name, module)
    return found


def app() -> Starlette:
    return create_app(registry(), url="http://127.0.0.1", shutdown_timeout=0)
