"""HTTP for both bindings: read the body, identify the caller, respond with JSON or events."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from apcore_a2a_core import ErrorMapper
from apcore_a2a_core.values import dump_json
from starlette.types import Receive, Scope, Send

from apcore_a2a_server.engine.clients import Caller, ClientDisconnectedError, Connection
from apcore_a2a_server.engine.handler import Events, Handler
from apcore_a2a_server.errors import TooMuchError
from apcore_a2a_server.middleware import caller_of
from apcore_a2a_server.store import Payload


class HttpRequest(NamedTuple):
    """A request whose body has been read."""

    scope: Scope
    body: bytes
    caller: Caller


NO_STORE = (b"cache-control", b"private, no-store")
"""Responses are for their caller alone (RFC 9111 §5.2.2.5)."""
EVENT_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
"""The last one turns off buffering in nginx."""
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment of server-sent events."""
LARGE_BODY = 64 * 1024  # bytes
"""From this size on, bodies are parsed one per iteration of the event loop."""
DRAIN_FACTOR = 8
"""Multiple of the limit up to which a larger body is read, so that the connection can stay open."""


async def read_body(receive: Receive, send: Send, limit: int) -> bytes | None:
    """Return the whole body, using at most *limit* bytes of memory.

    Returns:
        The body; None if it is larger, which is then answered with 413 (RFC 9110 §15.5.14), or
        if the client disconnected.
    """
    body = bytearray()
    size = 0
    has_more = True
    while has_more and size <= limit * DRAIN_FACTOR:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        # a client that still sends when the connection closes may never see the 413: read on
        if size > limit:
            body.clear()
        else:
            body += chunk
        has_more = message.get("more_body", False)
    if size <= limit:
        return bytes(body)
    close = [(b"connection", b"close")] if has_more else []
    error = {"code": -32600, "message": f"The body is larger than {limit} bytes"}
    response = {"jsonrpc": "2.0", "id": None, "error": error}
    await respond(send, response, status=413, headers=close)
    return None


def request_headers(scope: Scope) -> dict[str, str]:
    """Return the request's headers; of a repeated one, the last counts."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def retry_headers(error: Exception) -> list[tuple[bytes, bytes]]:
    """Return `Retry-After` for an error that may pass (RFC 9110 §10.2.3); else no headers."""
    if not isinstance(error, TooMuchError):
        return []
    close = [(b"connection", b"close")] if error.status == 503 else []
    return [(b"retry-after", b"%d" % error.retry_after), *close]


async def respond(
    send: Send,
    document: Any,
    *,
    status: int = 200,
    media_type: bytes = b"application/json",
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """Send *document* as JSON, or unchanged if it is bytes."""
    body = document if isinstance(document, bytes) else dump_json(document)
    length = str(len(body)).encode()
    entity_headers = [(b"content-type", media_type), (b"content-length", length), NO_STORE]
    start_headers = [*entity_headers, *headers]
    await send({"type": "http.response.start", "status": status, "headers": start_headers})
    await send({"type": "http.response.body", "body": body})


async def send_event(send: Send, value: Any) -> None:
    """Answer with one server-sent event."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM_HEADERS})
    await send({"type": "http.response.body", "body": b"data: %s\n\n" % dump_json(value)})


async def send_events(
    send: Send,
    connection: Connection,
    events: Events,
    encode: Callable[[Payload], dict[str, Any]],
) -> None:
    """Send server-sent events until they end or the client disconnects (WHATWG HTML §9.2).

    The `id` of each event is its version of the task.

    Args:
        send: ASGI's `send`.
        connection: The connection of the request.
        events: The events; for None, a comment keeps the connection alive.
        encode: Converts an event into JSON.
    """
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM_HEADERS})
    # a disconnect shows in `receive`, or in a failing `send`: which one depends on the server
    with suppress(ClientDisconnectedError), connection.watched(), connection.sending():
        async with aclosing(events):
            async for event in events:
                body = KEEP_ALIVE
                if event is not None:
                    document = dump_json(encode(event.payload))
                    body = b"id: %d\ndata: %s\n\n" % (event.version, document)
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Endpoint(ABC):
    """An ASGI endpoint that reads the body and holds the connection; bindings respond.

    Args:
        handler: The operations of the protocol.
        mapper: Converts exceptions into JSON-RPC errors.
        max_body: Maximum size of a body, in bytes.
        max_values: Maximum number of JSON values in a body.
    """

    def __init__(
        self, handler: Handler, mapper: ErrorMapper, *, max_body: int, max_values: int
    ) -> None:
        self.handler = handler
        self.mapper = mapper
        self.max_values = max_values
        self._max_body = max_body
        self._turns = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one HTTP request."""
        # before the body is read, so that wrong paths and methods cost no memory
        target = await self.find(scope, send)
        if target is None:
            return
        body = await read_body(receive, send, self._max_body)
        if body is not None:
            if len(body) > LARGE_BODY:
                await self._wait_for_turn()
            host = str((scope.get("client") or ("",))[0])
            with Connection(receive, host) as connection, suppress(ClientDisconnectedError):
                root_path = scope.get("root_path", "")
                caller = Caller(*caller_of(scope), request_headers(scope), connection, root_path)
                await self.answer(target, HttpRequest(scope, body, caller), send)

    async def _wait_for_turn(self) -> None:
        """Wait for an iteration of the event loop in which no other large body is parsed.

        Of many that arrive together, each takes some 50 ms per megabyte to become a task. Small
        requests are answered in between.
        """
        async with self._turns:
            await asyncio.sleep(0)

    @abstractmethod
    async def find(self, scope: Scope, send: Send) -> Any:
        """Return the operation for verb and path; None if the response has been sent already."""

    @abstractmethod
    async def answer(self, target: Any, request: HttpRequest, send: Send) -> None:
        """Perform the operation that `find` has returned, and send the response.

        Raises:
            ClientDisconnectedError: The client disconnected.
        """
