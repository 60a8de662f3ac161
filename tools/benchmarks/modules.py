"""The apcore modules that are called. They do almost nothing, so only the overhead is measured."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from apcore import Registry
from pydantic import BaseModel

JsonObject = dict[str, Any]


class Text(BaseModel):
    """Input and output of `Noop`."""

    text: str


class Pace(BaseModel):
    """Input of `Chunks`; the pause is in seconds."""

    count: float  # some servers turn integers into floats
    pause: float


class Stamp(BaseModel):
    """Output of `Chunks`: a time of the monotonic clock, in seconds."""

    at: float


class Nap(BaseModel):
    """Input and output of `Sleep`."""

    seconds: float


class Noop:
    """Returns its text."""

    description = "Returns its text"
    input_schema: ClassVar = Text
    output_schema: ClassVar = Text

    async def execute(self, inputs: JsonObject, context: object) -> JsonObject:
        """Return the inputs."""
        return {"text": inputs["text"]}


class Chunks:
    """Streams `count` stamps of the monotonic clock, `pause` seconds apart."""

    description = "Streams stamps of the clock"
    input_schema: ClassVar = Pace
    output_schema: ClassVar = Stamp

    async def execute(self, inputs: JsonObject, context: object) -> JsonObject:
        """Return a single stamp."""
        return {"at": time.monotonic()}

    async def stream(self, inputs: JsonObject, context: object) -> AsyncIterator[JsonObject]:
        """Yield the stamps."""
        for _ in range(int(inputs["count"])):
            yield {"at": time.monotonic()}
            await asyncio.sleep(inputs["pause"])


class Sleep:
    """Sleeps for a number of seconds."""

    description = "Sleeps"
    input_schema: ClassVar = Nap
    output_schema: ClassVar = Nap

    async def execute(self, inputs: JsonObject, context: object) -> JsonObject:
        """Return the inputs after sleeping."""
        await asyncio.sleep(inputs["seconds"])
        return inputs


def registry(extra: int = 0) -> Registry:
    """Return the modules of the benchmark, and *extra* further no-ops."""
    modules = Registry()
    modules.register("bench.noop", Noop())
    modules.register("bench.chunks", Chunks())
    modules.register("bench.sleep", Sleep())
    for number in range(extra):
        modules.register(f"bench.more_{number}", Noop())
    return modules
