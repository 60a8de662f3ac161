"""Registries and modules of apcore for the tests of the converters."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from apcore import ACL, Context, Executor, Registry
from pydantic import BaseModel, Field, field_validator


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Item(BaseModel):
    name: str
    count: int = Field(ge=0)


class Order(BaseModel):
    items: list[Item]
    note: str = ""
    secret: str = ""

    @field_validator("secret")
    @classmethod
    def check_strength(cls, value: str) -> str:
        if value:
            raise ValueError(f"{value} is weak")
        return value


class Total(BaseModel):
    total: int


class OrderModule:
    """Module with pydantic schemas that returns the output given to it."""

    description = "Adds up an order"
    input_schema: type[BaseModel] | dict[str, Any] = Order
    output_schema = Total

    def __init__(self, output: object = None) -> None:
        self.output = {"total": 1} if output is None else output

    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> object:
        return self.output


class CallbackModule:
    """Module without schemas that runs a given function."""

    description = "Does what it is given"
    input_schema = None
    output_schema = None

    def __init__(self, body: Callable[[Any], Awaitable[object]]) -> None:
        self.body = body

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> object:
        return await self.body(context)


@pytest.fixture
def registry(tmp_path: Any) -> Registry:
    new_registry = Registry(extensions_dir=str(tmp_path))
    new_registry.register("shop.order", OrderModule())
    return new_registry


@pytest.fixture
def call(registry: Registry) -> Callable[..., object]:
    """Return a function that runs a module in a real executor."""

    def run(
        module_id: str,
        inputs: dict[str, Any] | None = None,
        *,
        acl: ACL | None = None,
        context: Context[Any] | None = None,
    ) -> object:
        executor = Executor(registry, acl=acl)
        return asyncio.run(executor.call_async(module_id, inputs or {}, context))

    return run


@pytest.fixture
def raised_by(call: Callable[..., object]) -> Callable[..., BaseException]:
    """Return a function that runs a module in a real executor and returns its error."""

    def fail(*args: Any, **options: Any) -> BaseException:
        try:
            result = call(*args, **options)
        except Exception as error:  # whatever is raised: the test compares it
            return error
        pytest.fail(f"nothing was raised; the result is {result!r}")

    return fail


def descriptor(**fields: Any) -> Any:
    """Return a minimal descriptor for the converters."""
    defaults: dict[str, Any] = {
        "module_id": "text.echo",
        "description": "Echoes",
        "tags": [],
        "examples": [],
    }
    defaults |= {"input_schema": {}, "output_schema": {}, "annotations": None, "metadata": {}}
    return SimpleNamespace(**{**defaults, **fields})


@pytest.fixture(name="descriptor")
def descriptor_fixture() -> Callable[..., Any]:
    return descriptor
