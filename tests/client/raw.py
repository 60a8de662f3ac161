"""A server that says byte by byte what a script tells it to, and both clients to ask it."""

import asyncio
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from inspect import isasyncgen
from itertools import repeat
from time import monotonic
from typing import Any

import httpx
from apcore_a2a_client import A2AClient, PushNotificationConfig, SyncA2AClient

from tests.serving import PATIENCE, listener

Json = dict[str, Any]
KINDS = ["async", "sync"]
"""The clients."""
WIRES = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")]
"""What they speak."""
CONFIG = PushNotificationConfig(task_id="t-1", url="http://127.0.0.1/")
OPERATIONS: dict[str, tuple[Any, ...]] = {
    "send_message": ("hi",),
    "stream_message": ("hi",),
    "call": ("skill", "hi"),
    "stream": ("skill", "hi"),
    "subscribe": ("t-1",),
    "get_task": ("t-1",),
    "cancel_task": ("t-1",),
    "list_tasks": (),
    "iter_tasks": (),
    "set_push_config": (CONFIG,),
    "get_push_config": ("t-1", "p-1"),
    "list_push_configs": ("t-1",),
    "delete_push_config": ("t-1", "p-1"),
    "extended_card": (),
}
"""What they do, with arguments that will do."""
CARD_PATH = "/.well-known/agent-card.json"


class Then(Enum):
    """What a script may do to its connection."""

    CUT = "break it"
    CLOSE = "close it in good order"
    HOLD = "say nothing more until the client goes"


CUT, CLOSE, HOLD = Then.CUT, Then.CLOSE, Then.HOLD
Step = bytes | float | Then
"""What to send, seconds to wait, or what to do to the connection."""


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=monotonic)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def place(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    @property
    def is_card(self) -> bool:
        return self.place == CARD_PATH


Script = Callable[[Request], Iterable[Step]]


class Sockets:
    """A TCP server in a thread with an event loop of its own."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self._faults: list[Exception] = []
        self._open: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._settled = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Do what is to be done with a connection; it is closed then."""
        raise NotImplementedError

    @contextmanager
    def running(self, sock: socket.socket) -> Iterator[None]:
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(sock)))
        thread.start()
        try:
            assert self._settled.wait(PATIENCE)
            yield
        finally:
            self._loop.call_soon_threadsafe(self._stopped.set)
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert not self._faults, self._faults

    async def _serve(self, sock: socket.socket) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, sock=sock, limit=2**20)
        self._settled.set()
        await self._stopped.wait()
        for _ in range(10):
            await asyncio.sleep(0)  # who has connected is heard, before asyncio forgets of them
        server.close()
        for task, writer in self._open.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task
        self._open[task] = writer
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await self.handle(reader, writer)
        except Exception as error:  # the test is told when it ends
            self._faults.append(error)
        finally:
            writer.close()


class Raw(Sockets):
    """The server: its address, what it was asked, and how much it could send."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self.sent = 0
        self._script = script

    @property
    def asked(self) -> list[Request]:
        """The requests but those for the card."""
        return [request for request in self.requests if not request.is_card]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            self.requests.append(request)
            if not await self._answer(request, reader, writer):
                break

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection is still good for another request."""
        for step in self._script(request):
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
                self.sent += len(step)
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step is HOLD:
                await reader.read()
                return False
            else:
                if step is CUT:
                    reset(writer)
                return False
        return True


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection, so that its other end reads an error and not an end."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection; None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    try:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except asyncio.IncompleteReadError:
        return None
    return Request(method, path, headers, body)


@contextmanager
def raw(script: Script, sock: socket.socket | None = None) -> Iterator[Raw]:
    """A server that answers each request with what *script* gives for it.

    Args:
        script: Gives bytes to send, seconds to wait, or what to do to the connection.
        sock: Where to listen, if that is known already.
    """
    server = Raw(script)
    with sock or listener() as given, server.running(given):
        yield server


def agent(script: Script, **members: Any) -> Script:
    """A script with a card at its usual place, and *script* for everything else."""

    def answered(request: Request) -> Iterable[Step]:
        if not request.is_card:
            return script(request)
        return reply(card(f"http://{request.headers['host']}/", **members))

    return answered


def card(url: str, binding: str = "JSONRPC", version: str = "1.0", **members: Any) -> Json:
    """The card of an agent at one address."""
    interface = {"url": url, "protocolBinding": binding, "protocolVersion": version}
    return {
        "name": "raw",
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": True},
        **members,
    }


def reply(body: Any = b"", status: int = 200, **headers: str) -> list[Step]:
    """A whole answer: bytes as they are, and anything else as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"content-type": "application/json", "content-length": str(len(content)), **headers}
    return [head(status, **given) + content]


def head(status: int = 200, **headers: str) -> bytes:
    """The head of an answer; an underscore in a header's name stands for a hyphen."""
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return f"HTTP/1.1 {status} Said\r\n{''.join(lines)}\r\n".encode("latin-1")


def events(*data: Any, then: Step = CLOSE) -> list[Step]:
    """A stream of events: bytes as they are, and anything else as JSON in an event."""
    lines = [
        each if isinstance(each, bytes) else b"data: " + json.dumps(each).encode() + b"\n\n"
        for each in data
    ]
    return [head(content_type="text/event-stream"), *lines, then]


def endless(start: bytes, chunk: bytes, total: int = 50 * 2**20) -> Iterator[Step]:
    """*chunk* again and again; at *total* bytes the client has had its chance."""
    yield start
    yield from repeat(chunk, total // len(chunk))
    yield CUT


def rpc(request: Request, **members: Any) -> list[Step]:
    """A JSON-RPC answer with a result or an error."""
    return reply({"jsonrpc": "2.0", "id": request.json["id"], **members})


def task(id: str = "t-1", state: str = "TASK_STATE_COMPLETED", **members: Any) -> Json:
    """A task as A2A 1.0 has it."""
    return {"id": id, "contextId": "c-1", "status": {"state": state}, **members}


def http_client(kind: str, **options: Any) -> Any:
    """An httpx client; it knows no certificates, for loading them takes most of a test's time."""
    made: Any = httpx.AsyncClient if kind == "async" else httpx.Client
    return made(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False, **options)


class Client:
    """Either client, asked alike: `client.do("get_task", "t-1")` gives the task.

    What a method iterates is given as a list.
    """

    def __init__(self, kind: str, url: str, **options: Any) -> None:
        self._runner = asyncio.Runner() if kind == "async" else None
        self.http = options.pop("http_client", None) or http_client(kind)
        options = {"timeout": PATIENCE, "retries": 0, "http_client": self.http, **options}
        self.client: Any = (A2AClient if self._runner else SyncA2AClient)(url, **options)

    def do(self, name: str, /, *args: Any, into: list[Any] | None = None, **kwargs: Any) -> Any:
        """What the method *name* gives; *into* gets what it iterates, even if it fails."""
        items: list[Any] = [] if into is None else into
        given = getattr(self.client, name)(*args, **kwargs)
        if self._runner:
            return self._runner.run(awaited(given, items))
        if isinstance(given, Generator):
            for item in given:
                items.append(item)  # as they come, for one may fail
            return items
        return given

    def first(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """The first of what the method *name* iterates, which is left then."""
        given = getattr(self.client, name)(*args, **kwargs)
        if self._runner:
            return self._runner.run(first_of(given))
        item = next(given)
        given.close()
        return item

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner is None:
            self.http.close()
            return
        with self._runner:
            self._runner.run(self.http.aclose())


async def awaited(given: Any, items: list[Any]) -> Any:
    if not isasyncgen(given):
        return await given
    async for item in given:
        items.append(item)
    return items


async def first_of(given: Any) -> Any:
    item = await anext(given)
    await given.aclose()
    return item
