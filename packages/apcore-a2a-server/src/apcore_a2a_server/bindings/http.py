"""HTTP for both bindings: read a body, know the caller, answer with JSON or with events."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from apcore_a2a_core import ErrorMapper
from apcore_a2a_core.values import dump_json
from starlette.types import Receive, Scope, Send

from apcore_a2a_server.engine.clients import Caller, Connection, HungUpError
from apcore_a2a_server.engine.handler import Events, Handler
from apcore_a2a_server.errors import TooMuchError
from apcore_a2a_server.middleware import caller_of
from apcore_a2a_server.store import Payload


class Asked(NamedTuple):
    """A request that has been read."""

    scope: Scope
    headers: Mapping[str, str]
    body: bytes
    connection: Connection

    @property
    def caller(self) -> Caller:
        """The caller; anonymous without authentication."""
        principal, identity = caller_of(self.scope)
        mount = self.scope.get("root_path", "")
        return Caller(principal, identity, self.headers, self.connection, mount)


NO_STORE = (b"cache-control", b"private, no-store")
"""Answers are for who asked (RFC 9111 §5.2.2.5)."""
EVENT_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n\n"
DRAIN_FACTOR = 8
"""A body over the limit is read on, up to so many times the limit, to keep the connection."""


async def read_body(receive: Receive, send: Send, limit: int) -> bytes | None:
    """The whole body, in at most *limit* bytes of memory.

    None when it is larger, which has been answered with 413 then (RFC 9110 §15.5.14), or
    when the client hung up.
    """
    body = bytearray()
    size = 0
    more = True
    while more and size <= limit * DRAIN_FACTOR:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            body.clear()
        else:
            body += chunk
        more = message.get("more_body", False)
    if size <= limit:
        return bytes(body)
    close = [(b"connection", b"close")] if more else []
    error = {"code": -32600, "message": f"The body is larger than {limit} bytes"}
    reply = {"jsonrpc": "2.0", "id": None, "error": error}
    await respond(send, reply, status=413, headers=close)
    return None


def headers_of(scope: Scope) -> dict[str, str]:
    """The request's headers; of a repeated one the last counts."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def connection_of(scope: Scope, receive: Receive) -> Connection:
    """The client's end of a request whose body has been read."""
    return Connection(receive, str((scope.get("client") or ("",))[0]))


def retry_after(error: Exception) -> list[tuple[bytes, bytes]]:
    """The headers of an error that is no fault of the request (RFC 9110 §10.2.3)."""
    if not isinstance(error, TooMuchError):
        return []
    close = [(b"connection", b"close")] if error.status == 503 else []
    return [(b"retry-after", b"%d" % error.retry_after), *close]


async def respond(
    send: Send,
    value: Any,
    *,
    status: int = 200,
    media_type: bytes = b"application/json",
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """Send *value* as JSON."""
    body = dump_json(value)
    length = str(len(body)).encode()
    told = [(b"content-type", media_type), (b"content-length", length), NO_STORE]
    start = [*told, *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def send_events(
    send: Send,
    connection: Connection,
    events: Events,
    encode: Callable[[Payload], dict[str, Any]],
) -> None:
    """Answer with server-sent events until they end or the client is gone (WHATWG HTML §9.2).

    The `id` of each is its version of the task.

    Args:
        send: ASGI's.
        connection: The client's end.
        events: The events; None stands for a sign of life.
        encode: Makes the JSON of one event.
    """
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
    with suppress(HungUpError), connection.watched(), connection.losing():
        async with aclosing(events):
            async for event in events:
                body = KEEP_ALIVE
                if event is not None:
                    data = dump_json(encode(event.payload))
                    body = b"id: %d\ndata: %s\n\n" % (event.version, data)
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Endpoint(ABC):
    """Reads a request's body and holds its connection; a binding answers it.

    Args:
        handler: Does what is asked for.
        mapper: From exceptions to errors.
        max_body: The largest body, in bytes.
    """

    def __init__(self, handler: Handler, mapper: ErrorMapper, *, max_body: int) -> None:
        self.handler = handler
        self.mapper = mapper
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        found = await self.find(scope, send)
        if found is None:
            return
        body = await read_body(receive, send, self._max_body)
        if body is not None:
            with connection_of(scope, receive) as connection, suppress(HungUpError):
                asked = Asked(scope, headers_of(scope), body, connection)
                await self.answer(found, asked, send)

    @abstractmethod
    async def find(self, scope: Scope, send: Send) -> Any:
        """Find the operation by verb and path; None when the request has been refused."""

    @abstractmethod
    async def answer(self, found: Any, asked: Asked, send: Send) -> None:
        """Answer what was found.

        Raises:
            HungUpError: The client has gone.
        """
