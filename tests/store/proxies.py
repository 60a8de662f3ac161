"""Proxies that run in threads: a load balancer, and a network link that can be cut."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Self

ReaderAndWriter = tuple[asyncio.StreamReader, asyncio.StreamWriter]

TIMEOUT = 20
"""Seconds within which a proxy must start and stop."""
CHUNK = 65536
"""Bytes that are forwarded at a time."""


class Proxy(ABC):
    """A TCP proxy on loopback that forwards bytes as they arrive.

    Attributes:
        port: the port that it listens on.
    """

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready, self._stopping = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._main)
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "the proxy does not end"

    @abstractmethod
    async def _connect(self) -> ReaderAndWriter:
        """Open a connection to the upstream server."""

    async def _gate(self, *, back: bool = False) -> None:  # noqa: B027  # no wait by default
        """Wait until bytes may pass in this direction; *back* is towards the client."""

    def _call(self, function: Callable[[], None]) -> None:
        """Call *function* in the proxy's thread and wait until it has returned."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(function)
        self._loop.call_soon_threadsafe(done.set)
        assert done.wait(TIMEOUT)

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward bytes both ways until one side closes."""
        writers = [writer]
        with suppress(OSError):
            try:
                await self._gate()
                upstream_reader, upstream_writer = await self._connect()
                writers.append(upstream_writer)
                await _until_first_ends(
                    self._copy(reader, upstream_writer),
                    self._copy(upstream_reader, writer, back=True),
                )
            finally:
                for open_writer in writers:
                    open_writer.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._gate(back=back)
                writer.write(data)
                await writer.drain()
        await self._gate(back=back)


async def _until_first_ends(*coroutines: Coroutine[None, None, None]) -> None:
    """Run coroutines until the first has ended, then cancel the others."""
    tasks = [*map(asyncio.create_task, coroutines)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


class Balancer(Proxy):
    """A round-robin load balancer that skips servers that refuse connections.

    Attributes:
        ports: the servers' ports; may be replaced at any time.
    """

    def __init__(self, ports: Sequence[int] = ()) -> None:
        super().__init__()
        self.ports = [*ports]
        self._turn = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _connect(self) -> ReaderAndWriter:
        ports = [*self.ports]
        for _ in ports:
            self._turn += 1
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", ports[self._turn % len(ports)])
        raise ConnectionRefusedError


class CuttableLink(Proxy):
    """A link to one server that can be cut like a network: no byte passes, no connection closes.

    Bytes sent to a cut link are not lost: as with TCP, they arrive after `heal`.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._server_port = port
        self._requests, self._responses = asyncio.Event(), asyncio.Event()
        self._requests.set()
        self._responses.set()

    def rerouted_url(self, url: str) -> str:
        """Return *url* with the server's port replaced by this link's."""
        return url.replace(f":{self._server_port}", f":{self.port}")

    def cut(self, *, responses_only: bool = False) -> None:
        """Stop forwarding, in both directions or only responses."""
        self._call(self._responses.clear)
        if not responses_only:
            self._call(self._requests.clear)

    def heal(self) -> None:
        """Forward everything again, including the bytes held back."""
        self._call(self._requests.set)
        self._call(self._responses.set)

    async def _connect(self) -> ReaderAndWriter:
        return await asyncio.open_connection("127.0.0.1", self._server_port)

    async def _gate(self, *, back: bool = False) -> None:
        await (self._responses if back else self._requests).wait()
