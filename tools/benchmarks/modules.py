"""The apcore modules under load. They do nothing, so that what is measured is the way to them."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from apcore import Registry
from pydantic import BaseModel

JsonObject = dict[str, Any]


class Text(BaseModel):
    text: str


class Pace(BaseModel):
    count: float  # not every server keeps integers
    pause: float


class Stamp(BaseModel):
    at: float


class Nap(BaseModel):
    seconds: float


class Noop:
    """Gives its text back."""

    description = "Gives its text back"
    input_schema: ClassVar = Text
    output_schema: ClassVar = Text

    async def execute(self, inputs: JsonObject, context: object) -> JsonObject:
        return {"text": inputs["text"]}


class Chunks:
    """Streams `count` stamps of the monotonic clock, `pause` seconds apart."""

    description = "Streams stamps of the clock"
    input_schema: ClassVar = Pace
    output_schema: ClassVar = Stamp

    async def execute(self, inputs: JsonObject, context: object) -> JsonObject:
        return {"at": time.monotonic()}

    async def stream(self, inputs: JsonObject, context: object) -> AsyncIterator[JsonObject]:
        for _ in range(int(inputs["count"])):
            yield {"at": time.monotonic()}
            await asyncio.sleep(inputs["pause"])


class Sleep:
    """Sleeps for so many seconds."""

    description = "Sleeps"
    input_schema: ClassVar = Nap
    output_schema: ClassVar = Nap

    async def execute(self, inputs: JsonObject, context: object) -> JsonObject:
        await asyncio.sleep(inputs["seconds"])
        return inputs


def registry(extra: int = 0) -> Registry:
    """The modules of the benchmark, and so many more no-ops."""
    found = Registry()
    found.register("bench.noop", Noop())
    found.register("bench.chunks", Chunks())
    found.register("bench.sleep", Sleep())
    for number in range(extra):
        found.register(f"bench.more_{number}", Noop())
    return found
