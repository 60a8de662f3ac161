"""HTTP for JSON-RPC and REST: read the body, identify the caller, send JSON or events."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

from a2a.utils.errors import A2AError
from apcore_a2a_core import EXTENSION_URI, ErrorMapper
from apcore_a2a_core.data import Artifact, Message, Task, TaskStatusUpdateEvent
from apcore_a2a_core.dialects import BodySizeError, Document
from apcore_a2a_core.records import content_size
from apcore_a2a_core.values import dump_json
from msgspec import Struct
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from apcore_a2a_server.engine.clients import Caller, ClientDisconnectedError, Connection
from apcore_a2a_server.engine.handler import Handler
from apcore_a2a_server.engine.limits import MAX_UNCOUNTED_BODY, BodyBytes, Memory
from apcore_a2a_server.errors import RetryLaterError
from apcore_a2a_server.middleware import caller_of, client_of
from apcore_a2a_server.middleware.auth import headers_of
from apcore_a2a_server.middleware.errors import TENANT, path_of
from apcore_a2a_server.middleware.front import TRACE
from apcore_a2a_server.middleware.tenant_paths import agent_root_path
from apcore_a2a_server.modules.tenants import Tenant
from apcore_a2a_server.modules.threads import value_thread
from apcore_a2a_server.store import Event, Payload, UnavailableError
from apcore_a2a_server.store.subscribers import EventBatches

T = TypeVar("T")

logger = logging.getLogger("apcore_a2a_server")


class HttpRequest(Struct):
    """A request whose body has been read."""

    scope: Scope
    body: bytes
    size: int
    caller: Caller

    def take_body(self) -> bytes:
        """Return the body and drop it, since the task of the request may run for a long time."""
        body, self.body = self.body, b""
        return body


Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
DirectRoutes: TypeAlias = Mapping[tuple[str, str], Route]
"""Routes by method and exact path."""

CLOSE = (b"connection", b"close")
FOUND_TENANT = "apcore_a2a.found_tenant"
"""Key of the `Tenant` in the ASGI scope of a request for a tenant."""
NO_STORE = (b"cache-control", b"private, no-store")
"""The header of responses that no cache may keep (RFC 9111 §5.2.2.5)."""
EVENT_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
"""The last header turns off buffering in nginx."""
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment of server-sent events."""
EXTENSION_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")
"""The header with the extensions that a client wants to use, in 1.0 (§3.2.6) and 0.3."""
EXTENSION_HEADER_NAMES = frozenset(header.decode() for header in EXTENSION_HEADERS)
"""The names of these headers, as in `Caller.headers`."""
EXTENSIONS = frozenset({EXTENSION_URI.encode()})
"""The extensions on the agent's card."""
LARGE_BODY = 64 * 1024  # bytes
"""Size above which bodies are decoded in a thread."""
DRAIN_FACTOR = 8
"""A body larger than the limit is read up to this multiple of the limit, so that the connection
can stay open."""


async def read_body(
    receive: Receive, limit: int, body_bytes: BodyBytes
) -> tuple[bytes | A2AError, bool]:
    """Read the body; drop it if it is too large or there is no memory for it.

    Args:
        receive: ASGI's `receive`.
        limit: Maximum size of the body, in bytes.
        body_bytes: Counts the bytes of the body; a small body is not counted, so that tasks can be
            canceled even when memory is full.

    Returns:
        The body, or an error if the body is too large (RFC 9110 §15.5.14) or there is no memory for
        it; and whether the whole body has arrived.

    Raises:
        ClientDisconnectedError: The client disconnected.
    """
    message = await receive()
    is_last = message["type"] == "http.request" and not message.get("more_body", False)
    if is_last and len(message.get("body", b"")) <= min(limit, MAX_UNCOUNTED_BODY):
        return message.get("body", b""), True  # the usual case
    body = bytearray()
    size = 0
    refusal: A2AError | None = None
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        chunk = message.get("body", b"")
        size += len(chunk)
        body += chunk
        try:
            body_bytes.grow(len(body))
        except RetryLaterError as error:
            refusal = error
        if size > limit or refusal is not None:
            body.clear()
            body_bytes.release()
        has_more = message.get("more_body", False)
        # read on: a client that still sends when the connection closes may never see the answer
        if not has_more or size > limit * DRAIN_FACTOR:
            break
        message = await receive()
    if size > limit:
        refusal = BodySizeError(f"The body is larger than {limit} bytes")
    return refusal or bytes(body), not has_more


def with_extension_headers(scope: Scope, send: Send) -> Send:
    """Return a `send` that adds a header with the requested extensions that the agent supports.

    The header has the same name as in the request: `A2A-Extensions`, or `X-A2A-Extensions` in 0.3.
    """
    headers: list[tuple[bytes, bytes]] = []
    for header in EXTENSION_HEADERS:
        values = [value for name, value in scope["headers"] if name == header]
        requested = {uri.strip() for value in values for uri in value.split(b",")}
        if supported := requested & EXTENSIONS:
            headers.append((header, b", ".join(sorted(supported))))

    async def send_with_extensions(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return send_with_extensions if headers else send


def retry_headers(error: Exception) -> list[tuple[bytes, bytes]]:
    """Return the headers of a temporary error (RFC 9110 §10.2.3); none for other errors."""
    if not isinstance(error, RetryLaterError):
        return []
    close = [CLOSE] if error.status == 503 else []
    return [(b"retry-after", b"%d" % error.retry_after), *close]


async def respond(
    send: Send,
    document: Any,
    *,
    status: int = 200,
    media_type: bytes = b"application/json",
    headers: Headers = (),
) -> None:
    """Send *document* as JSON, or unchanged if it is bytes."""
    body = document if isinstance(document, bytes) else dump_json(document)
    length = str(len(body)).encode()
    entity_headers = [(b"content-type", media_type), (b"content-length", length), NO_STORE]
    start_headers = [*entity_headers, *headers]
    await send({"type": "http.response.start", "status": status, "headers": start_headers})
    await send({"type": "http.response.body", "body": body})


def event_stream_start() -> AsgiMessage:
    """Return the start of a response with events."""
    # a list for each response, since a user's middleware may add to it
    return {"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM_HEADERS]}


async def send_event(send: Send, value: Any) -> None:
    """Answer with one server-sent event."""
    await send(event_stream_start())
    await send({"type": "http.response.body", "body": b"data: %s\n\n" % dump_json(value)})


class Stream(NamedTuple):
    """The events of a stream, and the function that converts them to JSON.

    Attributes:
        events: The events.
        encode: Converts an event to JSON in a dialect.
        client: The client that reads the events.
        prefix: Bytes before each converted event.
        suffix: Bytes after it.
    """

    events: EventBatches
    encode: Callable[[Payload], Document]
    client: str
    prefix: bytes = b""
    suffix: bytes = b""


WRITE_SIZE = 64 * 1024  # bytes
"""Size from which a write takes no more events, to keep the buffer for a slow client small."""


async def send_events(send: Send, connection: Connection, stream: Stream) -> None:
    """Send server-sent events until they end or the client disconnects (WHATWG HTML §9.2).

    The `id` of each event is its version. Events that are already waiting share a write. For a
    batch without events, a comment is sent, which keeps the connection alive.

    If the store can't be used, no traceback is logged, only one line: there may be many streams.

    Args:
        send: ASGI's `send`.
        connection: The connection of the request.
        stream: The events.
    """
    await send(event_stream_start())
    try:
        await _send_batches(send, connection, stream)
    except UnavailableError as error:
        # The response stays incomplete, so that the client knows that events may be missing.
        reason, extra = type(error).__name__, {"event": "stream_interrupted"}
        logger.warning("A stream was interrupted: %s", reason, extra=extra)


async def _send_batches(send: Send, connection: Connection, stream: Stream) -> None:
    # a disconnect shows in `receive`, or in a failing `send`: which one depends on the server
    with suppress(ClientDisconnectedError), connection.watched():
        async with aclosing(stream.events):
            async for batch in stream.events:
                try:  # not around the loop: stores raise OSError, too
                    await _send_batch(send, batch, stream)
                except OSError:  # the client has disconnected (ASGI 2.4)
                    connection.disconnected = True
                    return
                del batch  # it may be large, and the wait for the next one long
        with suppress(OSError):  # the client has all events
            await send({"type": "http.response.body", "body": b""})


async def _send_batch(send: Send, batch: Sequence[Event], stream: Stream) -> None:
    frames: list[bytes] = []
    size = 0
    for event in batch:
        if size >= WRITE_SIZE:
            await send({"type": "http.response.body", "body": b"".join(frames), "more_body": True})
            frames.clear()
            size = 0
        payload = event.payload
        if _is_large(payload):
            document = await dump(stream.encode, payload, stream.client)
        else:  # `dump` would do the same, but a coroutine for each event is costly
            document = dump_json(stream.encode(payload))
        frame = b"id: %d\ndata: %s%s%s\n\n"
        frames.append(frame % (event.version, stream.prefix, document, stream.suffix))
        size += len(frames[-1])
    body = b"".join(frames) or KEEP_ALIVE
    await send({"type": "http.response.body", "body": body, "more_body": True})


MANY_PARTS = 1000
"""Number of parts above which a task or an event is converted in a thread.

Converting that many parts takes milliseconds.
"""
LONG_CONTENT = 256 * 1024
"""Number of characters from which a task or an event is converted in a thread, too."""


async def dump(encode: Callable[[Payload], Document], payload: Payload, client: str) -> bytes:
    """Return a task or an event as JSON, converted in a thread if it is large.

    Args:
        encode: Converts the payload to JSON in a dialect.
        payload: The task or the event.
        client: The client that gets the JSON.
    """
    if _is_large(payload):
        return await value_thread.call(lambda: dump_json(encode(payload)), client=client)
    return dump_json(encode(payload))


def _is_large(payload: Payload) -> bool:
    """Return whether a task or an event has many parts, or long contents."""
    if isinstance(payload, TaskStatusUpdateEvent):
        return False
    holders: list[Artifact | Message]
    if isinstance(payload, Task):
        holders = [*payload.artifacts, *payload.history]
    else:
        holders = [payload.artifact]
    count = size = 0
    for holder in holders:
        count += len(holder.parts)
        if count > MANY_PARTS:
            return True
        for part in holder.parts:
            size += content_size(part, LONG_CONTENT)
    return size >= LONG_CONTENT


class Endpoint(ABC):
    """Base of the ASGI endpoints: reads bodies and sends streams; subclasses send other responses.

    Args:
        handler: The operations of the protocol.
        mapper: Converts exceptions into JSON-RPC errors.
        memory: Counts and limits the bytes that the process keeps.
        max_body: Maximum size of a body, in bytes.
        max_values: Maximum number of JSON values in a body.
    """

    def __init__(
        self,
        handler: Handler,
        mapper: ErrorMapper,
        *,
        memory: Memory,
        max_body: int,
        max_values: int,
    ) -> None:
        self.handler = handler
        self.mapper = mapper
        self.max_values = max_values
        self._memory = memory
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one HTTP request."""
        # before the body is read, so that wrong paths and methods cost no memory
        target = await self.find(scope, send)
        if target is None:
            return
        with Connection(receive) as connection:
            try:
                request = await self._read(scope, receive, send, connection)
                if request is None:
                    return
                if not request.caller.headers.keys().isdisjoint(EXTENSION_HEADER_NAMES):
                    send = with_extension_headers(scope, send)
                stream = await self.answer(target, request, send)
                del request  # a stream may be open for hours
                if stream is not None:
                    await send_events(send, connection, stream)
            except ClientDisconnectedError:
                return  # without an answer

    async def _read(
        self, scope: Scope, receive: Receive, send: Send, connection: Connection
    ) -> HttpRequest | None:
        """Read the request; None if it was refused."""
        tenant: Tenant | None = scope.get(FOUND_TENANT)
        headers = headers_of(scope)
        root_path = scope.get("root_path", "") if tenant is None else agent_root_path(scope)
        principal, identity = caller_of(scope)
        client = client_of(scope)
        scheme, trace = scope.get("scheme", "http"), scope.get(TRACE)
        caller = Caller(
            principal, identity, headers, connection, root_path, tenant, client, scheme, trace
        )
        body_bytes = BodyBytes(self._memory, caller)
        body, is_complete = await read_body(receive, self._max_body, body_bytes)
        if isinstance(body, A2AError):
            close = [] if is_complete else [CLOSE]
            await self.refuse(send, body, [*retry_headers(body), *close])
            return None
        return HttpRequest(scope, body, len(body), caller)

    async def decode(self, request: HttpRequest, function: Callable[..., T], *args: Any) -> T:
        """Call a *function* that decodes the body, in a thread if the body is large.

        A megabyte of small values takes some 100 ms; meanwhile, small requests are answered. Only
        one large body is decoded at a time.
        """
        if request.size > LARGE_BODY:
            return await value_thread.call(function, *args, client=request.caller.client)
        return function(*args)

    @abstractmethod
    async def find(self, scope: Scope, send: Send) -> Any:
        """Return the target for `answer`; None if the response has been sent already."""

    @abstractmethod
    async def refuse(self, send: Send, error: A2AError, headers: Headers = ()) -> None:
        """Send an error response, for example if the body is too large."""

    @abstractmethod
    async def answer(self, target: Any, request: HttpRequest, send: Send) -> Stream | None:
        """Perform the requested operation, and send the response.

        Returns:
            The response if it is a stream, which `__call__` sends; else None.

        Raises:
            ClientDisconnectedError: The client disconnected.
        """


class DirectRouter:
    """ASGI middleware that passes requests directly to some routes, without Starlette's router.

    All other requests go to Starlette. The middleware comes last, so that the routes are behind all
    other middleware.

    Args:
        app: Starlette's router, wrapped in its exception handler.
        routes: The routes.
    """

    def __init__(self, app: ASGIApp, routes: DirectRoutes) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the connection to its route, or to Starlette."""
        route = None
        if scope["type"] == "http" and TENANT not in scope:
            route = self._routes.get((scope["method"], path_of(scope)))
        if route is None:
            await self._app(scope, receive, send)
            return
        # Starlette's router sets these, too, and users' middleware may read them
        scope["route"], scope["endpoint"] = route, route.endpoint
        await route.app(scope, receive, send)
