"""A module whose stream the test controls, chunk by chunk."""

import asyncio
import threading
from collections.abc import AsyncIterator
from queue import SimpleQueue
from typing import Any

from apcore import Context, ModuleAnnotations

from tests.server.modules import Inputs, Module
from tests.serving import PATIENCE


class ScriptedStream:
    """A running stream whose chunks the test sends.

    Attributes:
        inputs: The inputs of the call.
        ended: Set when the stream has ended or was canceled.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.ended = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    def send(self, *chunks: Any) -> None:
        """Stream these chunks."""
        for chunk in chunks:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, (chunk,))

    def end(self) -> None:
        """End the stream."""
        self._loop.call_soon_threadsafe(self._chunks.put_nowait, ())

    async def chunks(self) -> AsyncIterator[Any]:
        """Yield the chunks that the test sends."""
        try:
            while chunk := await self._chunks.get():
                yield chunk[0]
        finally:
            self.ended.set()


class ScriptedModule(Module):
    """A module that streams the chunks that the test sends."""

    annotations = ModuleAnnotations(streaming=True)

    def __init__(self) -> None:
        self._streams: SimpleQueue[ScriptedStream] = SimpleQueue()

    def next_stream(self) -> ScriptedStream:
        """Return the next stream, once a client has started it."""
        return self._streams.get(timeout=PATIENCE)

    async def execute(self, inputs: Inputs, context: "Context[Any]") -> Any:
        return [chunk async for chunk in self.stream(inputs, context)]

    async def stream(self, inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Any]:
        stream = ScriptedStream(inputs)
        self._streams.put(stream)
        async for chunk in stream.chunks():
            yield chunk
