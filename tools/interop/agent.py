"""The agent that the clients call: five skills, each of them also the only skill of a tenant."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from apcore import Context, InvalidInputError, ModuleAnnotations, Registry
from apcore_a2a_auth import APIKeyAuthenticator, hash_key
from apcore_a2a_core import Prompt, Reply
from pydantic import BaseModel

from tests.serving import running

NUMBERS = ("one ", "two ", "three")
OPTIONS = {
    "name": "Tea room",
    "description": "Tea room with drinks and tables.",
    "default_skill": "tea.echo",
    "text_results": True,
}
PRICE = {"tea": "green", "cents": 450}


class Echo:
    """A skill that takes and returns text."""

    description = "Repeats what it hears."
    input_schema, output_schema = Prompt, Reply

    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        """Return the text."""
        return {"text": f"You said: {inputs['text']}"}


class Count:
    """A skill that streams text."""

    description = "Counts to three."
    annotations = ModuleAnnotations(streaming=True)
    input_schema, output_schema = Prompt, Reply

    async def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        """Return the text of the whole stream."""
        return {"text": "".join(NUMBERS)}

    async def stream(
        self, inputs: dict[str, Any], context: Context[Any]
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield one number at a time."""
        for number in NUMBERS:
            yield {"text": number}
            await asyncio.sleep(0.05)  # so that each number is an event of its own


class Table:
    """A skill that asks a question."""

    description = "Books a table."
    input_schema: ClassVar[Any] = None
    output_schema = Reply

    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        """Ask for the day, then book."""
        if "day" not in inputs:
            context.services.ask("For which day?", field="day", choices=["Friday", "Saturday"])
        return {"text": f"Booked for {inputs['day']}."}


class Price:
    """A skill whose result is data."""

    description = "Tells a price."
    input_schema: ClassVar[Any] = None
    output_schema: ClassVar[Any] = None

    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        """Return the price."""
        return PRICE


class OrderInput(BaseModel):
    """Number of cups."""

    cups: int


class Order:
    """A skill that refuses non-integers before a task exists; for large numbers, its task fails."""

    description = "Orders cups of tea."
    input_schema = OrderInput
    output_schema: ClassVar[Any] = None

    def execute(self, inputs: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        """Order, if there is enough tea."""
        if inputs["cups"] > 10:
            raise InvalidInputError("We have tea for 10 cups")
        return inputs


@contextmanager
def serving() -> Iterator[tuple[str, str]]:
    """Serve the agent without and with authentication; yield both URLs, in this order."""
    skills = {
        "echo": Echo(),
        "count": Count(),
        "table": Table(),
        "price": Price(),
        "order": Order(),
    }
    registry = Registry()
    for name, module in skills.items():
        registry.register(f"tea.{name}", module)
    tenants = {name: f"tea.{name}" for name in skills}
    auth = APIKeyAuthenticator({hash_key("a key that no client has"): "waiter"})
    with (
        running(registry, **OPTIONS, tenants=tenants) as url,
        running(registry, **OPTIONS, auth=auth) as locked,
    ):
        yield url, locked
