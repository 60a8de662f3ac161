"""Proxies, each in a thread of its own: a balancer, and a wire that can be cut."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Self

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]

PATIENCE = 20
"""Seconds in which a proxy begins and ends."""
CHUNK = 65536
"""Bytes that are passed on at a time."""


class Proxy(ABC):
    """Listens on loopback, and passes on whatever comes, at once and unread.

    Attributes:
        port: where it listens.
    """

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready, self._ended = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._main)
        self._works: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the proxy does not end"

    @abstractmethod
    async def _connect(self) -> Ends:
        """A connection to where things are passed on to."""

    async def _gate(self, *, back: bool = False) -> None:  # noqa: B027 - most are always open
        """Wait until something may pass, there or back."""

    def _do(self, work: Callable[[], None]) -> None:
        """Do something in the proxy's thread, and return when it is done."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(work)
        self._loop.call_soon_threadsafe(done.set)
        assert done.wait(PATIENCE)

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        work = asyncio.create_task(self._pass(reader, writer))
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on both ways, until one side ends."""
        ends = [writer]
        with suppress(OSError):
            try:
                await self._gate()
                there, back = await self._connect()
                ends.append(back)
                await _either(self._copy(reader, back), self._copy(there, writer, back=True))
            finally:
                for end in ends:
                    end.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._gate(back=back)
                writer.write(data)
                await writer.drain()
        await self._gate(back=back)


async def _either(*works: Coroutine[None, None, None]) -> None:
    """Do all of these until one of them is done."""
    tasks = [*map(asyncio.create_task, works)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


class Balancer(Proxy):
    """Gives each connection to the next of several servers that takes it.

    Attributes:
        ports: where these listen; may be exchanged while it works.
    """

    def __init__(self, ports: Sequence[int] = ()) -> None:
        super().__init__()
        self.ports = [*ports]
        self._turn = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _connect(self) -> Ends:
        ports = [*self.ports]
        for _ in ports:
            self._turn += 1
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", ports[self._turn % len(ports)])
        raise ConnectionRefusedError


class Wire(Proxy):
    """A way to one server that can be cut, as a network is: nothing comes, and nothing is closed.

    What is sent meanwhile is not lost but late: it arrives when the wire is whole again, as TCP
    would have it.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._to = port
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._there.set()
        self._back.set()

    def leading_to(self, url: str) -> str:
        """The address of the same server by this way."""
        return url.replace(f":{self._to}", f":{self.port}")

    def cut(self, *, there: bool = True) -> None:
        """Let nothing pass any more; or no answers, when what is asked still comes *there*."""
        self._do(self._back.clear)
        if there:
            self._do(self._there.clear)

    def heal(self) -> None:
        """Let everything pass, also what was held back."""
        self._do(self._there.set)
        self._do(self._back.set)

    async def _connect(self) -> Ends:
        return await asyncio.open_connection("127.0.0.1", self._to)

    async def _gate(self, *, back: bool = False) -> None:
        await (self._back if back else self._there).wait()
