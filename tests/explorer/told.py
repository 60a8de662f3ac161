"""A module whose stream is told by the test, chunk by chunk."""

import asyncio
import threading
from collections.abc import AsyncIterator
from queue import SimpleQueue
from typing import Any

from apcore import Context, ModuleAnnotations

from tests.server.modules import Inputs, Module
from tests.serving import PATIENCE


class Telling:
    """A stream under way: the test says what comes of it.

    Attributes:
        inputs: What it was called with.
        over: Set when it has ended, or was made to.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.over = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    def say(self, *chunks: Any) -> None:
        """Let these be the next chunks."""
        for chunk in chunks:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, (chunk,))

    def end(self) -> None:
        """Let nothing more come."""
        self._loop.call_soon_threadsafe(self._chunks.put_nowait, ())

    async def chunks(self) -> AsyncIterator[Any]:
        """What the module streams."""
        try:
            while chunk := await self._chunks.get():
                yield chunk[0]
        finally:
            self.over.set()


class Told(Module):
    """Streams what the test says, when it says it."""

    annotations = ModuleAnnotations(streaming=True)

    def __init__(self) -> None:
        self._tellings: SimpleQueue[Telling] = SimpleQueue()

    def telling(self) -> Telling:
        """The stream that somebody has begun, or is about to."""
        return self._tellings.get(timeout=PATIENCE)

    async def execute(self, inputs: Inputs, context: "Context[Any]") -> Any:
        return [chunk async for chunk in self.stream(inputs, context)]

    async def stream(self, inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Any]:
        telling = Telling(inputs)
        self._tellings.put(telling)
        async for chunk in telling.chunks():
            yield chunk
