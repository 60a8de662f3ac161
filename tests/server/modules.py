"""Well-behaved and misbehaving modules."""

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
"""Text that only the operator may see."""


class Text(BaseModel):
    text: str


class Item(BaseModel):
    name: str
    count: int = Field(ge=1)


class Order(BaseModel):
    customer: Text
    items: list[Item]


class CaseInput(BaseModel):
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
    """A module that returns its inputs."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return inputs


class JsonTextModule(Module):
    """A module that returns its inputs as JSON text, exactly."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"json": json.dumps(inputs)}


class AnyObjectModule(JsonTextModule):
    """A module whose schema accepts any object."""

    input_schema: ClassVar[Any] = {"type": "object"}


class OrderTotal(Module):
    input_schema = Order

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"total": sum(item["count"] for item in inputs["items"])}


class Slow(Module):
    """A module that runs until it is canceled."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> None:
        await asyncio.Event().wait()


class Nested(Module):
    """A module that calls another with wrong inputs, or a module that does not exist."""

    input_schema = CaseInput

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Any:
        executor: Any = context.executor
        return await executor.call_async(inputs["what"], {"wrong": SECRET}, context)


class FatalError(BaseException):
    """An error outside the `Exception` hierarchy."""


class UnprintableError(Exception):
    """An exception whose `str()` raises."""

    def __str__(self) -> str:
        raise ValueError(SECRET)


class DetailedError(SchemaValidationError):
    """An error whose details have other types than apcore's own."""

    def __init__(self) -> None:
        super().__init__(SECRET)
        self.details: Any = {"errors": [SECRET], "call_chain": 5}


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError(SECRET),
    "key": lambda: KeyError(SECRET),
    "input": lambda: InvalidInputError("no \ud800 text"),
    "schema": lambda: SchemaValidationError(SECRET),
    "details": DetailedError,
    "exit": lambda: SystemExit(SECRET),
    "interrupt": lambda: KeyboardInterrupt(SECRET),
    "fatal": lambda: FatalError(SECRET),
    "canceled": lambda: asyncio.CancelledError(SECRET),
    "unprintable": UnprintableError,
    "memory": lambda: MemoryError(SECRET),
    "depth": lambda: RecursionError(SECRET),
    "stop": lambda: StopAsyncIteration(SECRET),
    "group": lambda: ExceptionGroup(SECRET, [ValueError(SECRET)]),
}


def chosen_exception(inputs: Inputs) -> BaseException:
    return EXCEPTIONS[inputs["what"]]()


class RaisingModule(Module):
    input_schema = CaseInput

    def execute(self, inputs: Inputs, context: Context[Any]) -> None:
        raise chosen_exception(inputs)


class AsyncRaisingModule(Module):
    input_schema = CaseInput

    async def execute(self, inputs: Inputs, context: Context[Any]) -> None:
        await asyncio.sleep(0)
        raise chosen_exception(inputs)


class StreamRaisingModule(AsyncRaisingModule):
    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Inputs]:
        yield {"chunk": 1}
        raise chosen_exception(inputs)


def cyclic() -> Inputs:
    loop: Inputs = {}
    loop["again"] = loop
    return loop


def deep(levels: int) -> Inputs:
    nested: Inputs = {}
    for _ in range(levels):
        nested = {"a": nested}
    return nested


OUTPUTS: dict[str, Any] = {
    "nan": {"value": float("nan")},
    "infinity": {"rows": [float("-inf")]},
    "long integer": {"value": 10**5000},
    "object": {"value": object()},
    "bare object": object(),
    "function": {"value": deep},
    "cyclic": cyclic(),
    "deep": deep(200),
    "surrogate": {"value": "\ud800"},
    "surrogate key": {"\ud800": 1},
    "surrogate name": {"\ud800": b"1"},
    "bare surrogate": "\ud800",
    "tuple key": {(1, 2): 3},
}


class BadOutputModule(Module):
    """A module with outputs that cannot be sent as JSON."""

    input_schema = CaseInput

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Any:
        return OUTPUTS[inputs["what"]]


class BadStreamModule(BadOutputModule):
    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Any]:
        yield {"chunk": 1}
        yield OUTPUTS[inputs["what"]]


def registry() -> Registry:
    registry = Registry()
    for name, module in {
        "echo": Echo(),
        "mirror": Mirror(),
        "json": JsonTextModule(),
        "anything": AnyObjectModule(),
        "order.total": OrderTotal(),
        "slow": Slow(),
        "nested": Nested(),
        "raises": RaisingModule(),
        "raises.later": AsyncRaisingModule(),
        "raises.stream": StreamRaisingModule(),
        "bad_output": BadOutputModule(),
        "bad_output.stream": BadStreamModule(),
    }.items():
        registry.register(name, module)
    return registry


def app() -> Starlette:
    return create_app(registry(), url="http://127.0.0.1", shutdown_timeout=0)
