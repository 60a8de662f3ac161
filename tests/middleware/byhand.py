"""Hand-made requests: as ASGI scopes, and as bytes over TCP."""

import json
import re
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import uvicorn
from apcore import Identity
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_server.middleware.timeouts import request_timeout_protocol
from starlette.types import ASGIApp, Message, Receive

from tests.server.checking_client import Agent
from tests.serving import PATIENCE, listener

Headers = Sequence[tuple[str, str]]
KEY = "the long random key of ada"
OTHER_KEY = "the long random key of bob"
WITH_KEY = [("X-API-Key", KEY)]
HOSTILE = "a\r\nb\x1b[31mc\u2028d\x00e\x85f\u202eg\u2066h\x7fi\u200bj\u061c"
"""Text with line breaks, terminal controls and invisible characters."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
LONG = 100_000  # characters of a value that must be shortened in logs
WIDTH = 1000
"""Characters that a value in a log record may have."""
TIMEOUT = 2.0
"""Seconds in which a request must arrive at the agent that the tests share."""
CARD = "/.well-known/agent-card.json"


def authenticator() -> APIKeyAuthenticator:
    """Return an authenticator with API keys for ada and bob."""
    return APIKeyAuthenticator({KEY: Identity("ada"), OTHER_KEY: Identity("bob")})


@dataclass(frozen=True)
class Answer:
    """Answer of an application; its header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def fail_if_read() -> Message:
    """Fail: a receive function for a request whose body must not be read."""
    raise AssertionError("the body was read")


def body(content: bytes = b"") -> Receive:
    """Return a receive function for a body in one piece, after which the client disconnects."""
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


async def ask(
    app: ASGIApp,
    method: str = "GET",
    path: str = "/",
    headers: Headers = (),
    receive: Receive = fail_if_read,
    **scope: Any,
) -> Answer:
    """Return the answer of *app*; *scope* overrides members of the ASGI scope."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope_sent = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in headers],
        "client": ("192.0.2.1", 49152),
        "server": ("agent.example", 80),
        **scope,
    }
    await app(scope_sent, receive, send)
    answer_headers = {
        n.decode("latin-1"): v.decode("latin-1") for n, v in sent[0].get("headers", ())
    }
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], answer_headers, content)


class Connection:
    """TCP connection to an agent."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read_until(self, end: bytes = b"\r\n\r\n") -> bytes:
        """Return all bytes up to *end*, or to the end of the connection."""
        while end not in self._buffer and (piece := self._socket.recv(65536)):
            self._buffer += piece
        received, _, self._buffer = self._buffer.partition(end)
        return received

    def read_all(self) -> bytes:
        """Return all bytes until the connection is closed."""
        while piece := self._socket.recv(65536):
            self._buffer += piece
        return self._buffer


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Yield a connection to the agent at *url*; reads fail after PATIENCE seconds."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), PATIENCE) as sock:
        yield Connection(sock)


@asynccontextmanager
async def uvicorn_with_timeout(
    app: ASGIApp, seconds: float
) -> AsyncIterator[tuple[uvicorn.Server, tuple[str, int]]]:
    """Run *app* in this event loop with our protocol; yield the server and its address."""
    config = uvicorn.Config(app, http=request_timeout_protocol(seconds), lifespan="off")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    with listener() as sock:
        await server.startup([sock])
        yield server, sock.getsockname()
        await server.shutdown()


def request(
    target: str = "/", headers: str = "", content: bytes = b"", verb: str = "POST"
) -> bytes:
    """Return the bytes of a request, with *headers* as given."""
    length = f"Content-Length: {len(content)}\r\n" if content else ""
    return (
        f"{verb} {target} HTTP/1.1\r\nHost: x\r\n{length}{headers}\r\n".encode("latin-1") + content
    )


def status_of(head: bytes) -> int:
    """Return the status in the first line of an answer; 0 if there is no answer."""
    return int(head[9:12] or 0)


AUTHENTICATED = f"X-API-Key: {KEY}\r\nA2A-Version: 1.0\r\n"
HEALTH = request("/health", verb="GET")


def message(skill: str = "echo", *, method: str = "SendMessage", **content: Any) -> bytes:
    """Return the JSON-RPC body of a message."""
    params = Agent(httpx.Client(), "1.0").params(skill, content or {"text": "hello"})
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(call).encode()


def message_request(skill: str = "echo", headers: str = "", **content: Any) -> bytes:
    """Return a request that sends a message."""
    return request("/", AUTHENTICATED + headers, message(skill, **content))
