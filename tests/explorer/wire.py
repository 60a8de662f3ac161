"""What lies between a page and its agent, and can break."""

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.serving import PATIENCE, listener


class Wire:
    """Carries bytes to an agent and back, until it is cut.

    Attributes:
        url: Where it begins.
    """

    def __init__(self, agent: str) -> None:
        self.url = ""
        self._port = urlsplit(agent).port
        self._whole = True
        self._ends: set[StreamWriter] = set()
        self._carried: set[asyncio.Task[None] | None] = set()
        self._loop = asyncio.new_event_loop()

    def cut(self) -> None:
        """Break all connections, and allow no others."""
        self._do(False)

    def mend(self) -> None:
        """Allow connections again."""
        self._do(True)

    def _do(self, whole: bool) -> None:
        done = threading.Event()

        def change() -> None:
            self._whole = whole
            for end in () if whole else self._ends:
                end.transport.abort()
            done.set()

        self._loop.call_soon_threadsafe(change)
        assert done.wait(PATIENCE)

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        if not self._whole:
            writer.transport.abort()
            return
        self._carried.add(asyncio.current_task())
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._ends |= {writer, back}
        await asyncio.gather(_pump(reader, back), _pump(there, writer))
        self._ends -= {writer, back}

    async def _serve(self, began: threading.Event, over: asyncio.Event) -> None:
        with listener() as sock:
            self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            async with await asyncio.start_server(self._carry, sock=sock):
                began.set()
                await over.wait()
                for end in self._ends:
                    end.transport.abort()
                await asyncio.gather(*filter(None, self._carried), return_exceptions=True)

    @contextmanager
    def laid(self) -> Iterator["Wire"]:
        """Carry as long as this lasts."""
        began, over = threading.Event(), asyncio.Event()
        thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(began, over),)
        )
        thread.start()
        try:
            assert began.wait(PATIENCE)
            yield self
        finally:
            self._loop.call_soon_threadsafe(over.set)
            thread.join(PATIENCE)
            assert not thread.is_alive()
            self._loop.close()


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
