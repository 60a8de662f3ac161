"""Server that sends scripted bytes, and both clients behind one interface."""

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
"""Clients to test."""
WIRES = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")]
"""Bindings and protocol versions to test."""
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
"""Methods of the clients, with valid arguments."""
CARD_PATH = "/.well-known/agent-card.json"


class ConnectionAction(Enum):
    """Actions on a connection."""

    CUT = "break it"
    CLOSE = "close it properly"
    HOLD = "send nothing more until the client disconnects"


CUT, CLOSE, HOLD = ConnectionAction.CUT, ConnectionAction.CLOSE, ConnectionAction.HOLD
Step = bytes | float | ConnectionAction
"""Bytes to send, seconds to wait, or an action on the connection."""


@dataclass(frozen=True)
class Request:
    """Request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_at: float = field(default_factory=monotonic)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def bare_path(self) -> str:
        """Path without its query."""
        return self.path.partition("?")[0]

    @property
    def is_card(self) -> bool:
        return self.bare_path == CARD_PATH


Script = Callable[[Request], Iterable[Step]]


class TcpServer:
    """TCP server in a thread with a separate event loop."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self._faults: list[Exception] = []
        self._open: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle a connection, which is closed afterwards."""
        raise NotImplementedError

    @contextmanager
    def running(self, sock: socket.socket) -> Iterator[None]:
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(sock)))
        thread.start()
        try:
            assert self._started.wait(PATIENCE)
            yield
        finally:
            self._loop.call_soon_threadsafe(self._stopped.set)
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert not self._faults, self._faults

    async def _serve(self, sock: socket.socket) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, sock=sock, limit=2**20)
        self._started.set()
        await self._stopped.wait()
        for _ in range(10):
            await asyncio.sleep(0)  # accept pending connections, before asyncio forgets them
        server.close()
        for task, writer in self._open.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.sleep(0)  # let the transports close

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task
        self._open[task] = writer
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await self.handle(reader, writer)
        except Exception as error:  # reported when the server stops
            self._faults.append(error)
        finally:
            writer.close()


class RawServer(TcpServer):
    """HTTP server with scripted answers; records requests and counts the bytes sent."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self.sent = 0
        self._script = script

    @property
    def calls(self) -> list[Request]:
        """Requests other than those for the Agent Card."""
        return [request for request in self.requests if not request.is_card]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            self.requests.append(request)
            if not await self._answer(request, reader, writer):
                break

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send an answer; return whether the connection can take another request."""
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
                    reset_connection(writer)
                return False
        return True


def reset_connection(writer: asyncio.StreamWriter) -> None:
    """Reset a connection, so that its peer reads an error instead of EOF."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Return the next request of a connection, or None at its end."""
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
def raw(script: Script, sock: socket.socket | None = None) -> Iterator[RawServer]:
    """Run a server that answers each request with the steps of *script*.

    Args:
        script: Returns bytes to send, seconds to wait, and actions on the connection.
        sock: Bound socket; a new one if omitted.
    """
    server = RawServer(script)
    with sock or listener() as listening, server.running(listening):
        yield server


def agent(script: Script, **members: Any) -> Script:
    """Return a script that serves an Agent Card, and passes other requests to *script*."""

    def answer(request: Request) -> Iterable[Step]:
        if not request.is_card:
            return script(request)
        return reply(card(f"http://{request.headers['host']}/", **members))

    return answer


def card(url: str, binding: str = "JSONRPC", version: str = "1.0", **members: Any) -> Json:
    """Return the Agent Card of an agent with one interface."""
    interface = {"url": url, "protocolBinding": binding, "protocolVersion": version}
    return {
        "name": "raw",
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": True},
        **members,
    }


def reply(body: Any = b"", status: int = 200, **headers: str) -> list[Step]:
    """Return a whole answer with *body*: bytes as they are, anything else as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_headers = {
        "content-type": "application/json",
        "content-length": str(len(content)),
        **headers,
    }
    return [head(status, **all_headers) + content]


def head(status: int = 200, **headers: str) -> bytes:
    """Return the head of an answer; underscores in header names stand for hyphens."""
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return f"HTTP/1.1 {status} Said\r\n{''.join(lines)}\r\n".encode("latin-1")


def events(*data: Any, then: Step = CLOSE) -> list[Step]:
    """Return an event stream of *data* (bytes as they are, else JSON events), then *then*."""
    lines = [
        item if isinstance(item, bytes) else b"data: " + json.dumps(item).encode() + b"\n\n"
        for item in data
    ]
    return [head(content_type="text/event-stream"), *lines, then]


def flood(start: bytes, chunk: bytes, total: int = 50 * 2**20) -> Iterator[Step]:
    """Yield *start* and *total* bytes of repeated *chunk*, then break the connection."""
    yield start
    yield from repeat(chunk, total // len(chunk))
    yield CUT


def rpc(request: Request, **members: Any) -> list[Step]:
    """Return a JSON-RPC answer with a result or an error."""
    return reply({"jsonrpc": "2.0", "id": request.json["id"], **members})


def task(id: str = "t-1", state: str = "TASK_STATE_COMPLETED", **members: Any) -> Json:
    """Return a task in the JSON of A2A 1.0."""
    return {"id": id, "contextId": "c-1", "status": {"state": state}, **members}


def http_client(kind: str, **options: Any) -> Any:
    """Return an httpx client without trusted certificates, which are slow to load."""
    client_type: Any = httpx.AsyncClient if kind == "async" else httpx.Client
    return client_type(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False, **options)


class Client:
    """Either client with one interface: `client.do("get_task", "t-1")` returns the task.

    Iterators are returned as lists.
    """

    def __init__(self, kind: str, url: str, **options: Any) -> None:
        self._runner = asyncio.Runner() if kind == "async" else None
        self.http = options.pop("http_client", None) or http_client(kind)
        options = {"timeout": PATIENCE, "retries": 0, "http_client": self.http, **options}
        self.client: Any = (A2AClient if self._runner else SyncA2AClient)(url, **options)

    def do(self, name: str, /, *args: Any, into: list[Any] | None = None, **kwargs: Any) -> Any:
        """Call the method *name*; *into* collects the items of an iterator, even if it fails."""
        items: list[Any] = [] if into is None else into
        result = getattr(self.client, name)(*args, **kwargs)
        if self._runner:
            return self._runner.run(collect(result, items))
        if isinstance(result, Generator):
            for item in result:
                items.append(item)  # one by one, because the next may fail
            return items
        return result

    def first(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Return the first item of the method *name*, and close its iterator."""
        result = getattr(self.client, name)(*args, **kwargs)
        if self._runner:
            return self._runner.run(first_of(result))
        item = next(result)
        result.close()
        return item

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner is None:
            self.http.close()
            return
        with self._runner:
            self._runner.run(self.http.aclose())


async def collect(result: Any, items: list[Any]) -> Any:
    if not isasyncgen(result):
        return await result
    async for item in result:
        items.append(item)
    return items


async def first_of(items: Any) -> Any:
    item = await anext(items)
    await items.aclose()
    return item
