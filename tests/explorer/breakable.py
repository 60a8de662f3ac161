"""A TCP proxy between a page and its agent; a test can break its connections."""

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.serving import PATIENCE, listener


class BreakableProxy:
    """A TCP proxy to an agent.

    Attributes:
        url: Its own address.
    """

    def __init__(self, agent: str) -> None:
        self.url = ""
        self._port = urlsplit(agent).port
        self._open = True
        self._writers: set[StreamWriter] = set()
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._loop = asyncio.new_event_loop()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._set_open(False)

    def restore(self) -> None:
        """Accept connections again."""
        self._set_open(True)

    def _set_open(self, is_open: bool) -> None:
        done = threading.Event()

        def change() -> None:
            self._open = is_open
            for writer in () if is_open else self._writers:
                writer.transport.abort()
            done.set()

        self._loop.call_soon_threadsafe(change)
        assert done.wait(PATIENCE)

    async def _forward(self, reader: StreamReader, writer: StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        self._tasks.add(asyncio.current_task())
        agent_reader, agent_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, agent_writer}
        await asyncio.gather(_pump(reader, agent_writer), _pump(agent_reader, writer))
        self._writers -= {writer, agent_writer}

    async def _serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        with listener() as sock:
            self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            async with await asyncio.start_server(self._forward, sock=sock):
                started.set()
                await stop.wait()
                for writer in self._writers:
                    writer.transport.abort()
                await asyncio.gather(*filter(None, self._tasks), return_exceptions=True)

    @contextmanager
    def running(self) -> Iterator["BreakableProxy"]:
        """Run the proxy in a thread."""
        started, stop = threading.Event(), asyncio.Event()
        thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(started, stop),)
        )
        thread.start()
        try:
            assert started.wait(PATIENCE)
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join(PATIENCE)
            assert not thread.is_alive()
            self._loop.close()


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
