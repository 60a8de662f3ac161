"""gRPC: the binding of A2A 1.0 (§10) with the SDK's servicer, over the same operations as JSON-RPC.

Each call passes through `CallInterceptor`, which does for gRPC what middleware and endpoints do
for HTTP.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import GrpcHandler, GrpcServerCallContextBuilder
from a2a.types import a2a_pb2, a2a_pb2_grpc
from a2a.utils.errors import A2AError, InvalidRequestError, VersionNotSupportedError
from apcore_a2a_core import EXTENSION_URI, Authenticator, ErrorMapper, Identity, error_details
from apcore_a2a_core.dialects import parse_message
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import ParseDict
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # no py.typed

from apcore_a2a_server.engine.clients import Caller, Connection, Slots
from apcore_a2a_server.engine.handler import Handler
from apcore_a2a_server.engine.limits import BodyBytes, Memory
from apcore_a2a_server.errors import RetryLaterError, forget_frames
from apcore_a2a_server.middleware import RateLimiter, log_context
from apcore_a2a_server.middleware.auth import (
    ClientKey,
    authenticate,
    challenge_scheme,
    declared_schemes,
    joined_headers,
    named_client,
    network_of,
)
from apcore_a2a_server.middleware.errors import GRPC_NAMES, Refusal
from apcore_a2a_server.middleware.logs import begin_facts, log_request
from apcore_a2a_server.middleware.rates import check_rate
from apcore_a2a_server.middleware.timeouts import MIN_BYTES_PER_SECOND
from apcore_a2a_server.modules.fairness import share_of
from apcore_a2a_server.store import UnavailableError
from apcore_a2a_server.trace_context import received_trace

from .grpc_limits import GrpcLimits, ReadSlots
from .http import LARGE_BODY
from .operations import store_down_error
from .rest import STATUSES
from .sdk_handler import CALLER, SdkRequestHandler

REQUEST_TYPES = {
    method.name: getattr(a2a_pb2, method.input_type.name)
    for method in a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].methods
}
"""The type of the request of each method."""
UNCOMPRESSED_ONLY = 1
"""Bit set of accepted compression algorithms, with the bit for "no compression" only.

A decompressed message may be a thousand times as large as the compressed one, and gRPC checks the
decompressed size too late.
"""
MIN_PING_INTERVAL = 10
"""Minimum seconds between two pings of a client; clients that ping more often are disconnected."""
PING_TIMEOUT = 20
"""Seconds after which a connection without an answer to a ping is closed."""
IDLE_TIMEOUT = 300
"""Seconds after which a connection without calls is closed; clients reconnect automatically."""
MAX_STATUS = 2048
"""Maximum size of a status with its details, in bytes: clients accept 8 KB of metadata."""
MAX_MESSAGE = 300
"""Maximum length of a status message, in characters; each may take twelve bytes of metadata."""
EXTENSIONS_KEY = "a2a-extensions"
"""Key of the metadata with the extensions that a client requests, or that a response uses."""
DETAILS_KEY = "grpc-status-details-bin"
DETAILS = error_details_pb2.DESCRIPTOR
"""The types of details; the import is needed because `ParseDict` finds only imported types."""

_caller: ContextVar[Caller] = ContextVar("_caller")


class GrpcServer:
    """A gRPC server for the operations of an agent; create it in a running event loop.

    Args:
        handler: The operations of the protocol.
        interceptor: Reads and answers each call.
        limits: The limits of messages and connections.
    """

    def __init__(
        self, handler: Handler, interceptor: "CallInterceptor", limits: GrpcLimits
    ) -> None:
        self._server = grpc.aio.server(
            interceptors=[interceptor],
            options=_channel_options(limits),
            maximum_concurrent_rpcs=limits.max_open_calls,
        )
        servicer = Servicer(SdkRequestHandler(handler), CallContextBuilder())
        generated_code: Any = a2a_pb2_grpc  # without types
        generated_code.add_A2AServiceServicer_to_server(servicer, self._server)

    def bind(self, address: str, certificate: tuple[bytes, bytes] | None = None) -> int:
        """Listen on an address such as `127.0.0.1:50051`, without accepting connections yet.

        Args:
            address: The address.
            certificate: The private key and the certificate chain (PEM) for TLS.

        Returns:
            The port.

        Raises:
            OSError: The server cannot listen on the address.
        """
        try:
            if certificate is None:
                return int(self._server.add_insecure_port(address))
            credentials = grpc.ssl_server_credentials([certificate])
            return int(self._server.add_secure_port(address, credentials))
        except RuntimeError:
            raise OSError(f"Cannot listen on {address} for gRPC") from None

    async def start(self) -> None:
        """Accept connections."""
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Accept no more calls, and return when the running ones have ended.

        Args:
            grace: Seconds after which running calls are aborted. A later `stop` may shorten it.
        """
        await self._server.stop(grace)


def _channel_options(limits: GrpcLimits) -> list[tuple[str, int]]:
    """Return the options of gRPC's core (grpc/impl/channel_arg_names.h)."""
    seconds_by_option = {
        "grpc.server_handshake_timeout_ms": limits.request_timeout,
        "grpc.keepalive_time_ms": limits.keep_alive,
        "grpc.keepalive_timeout_ms": PING_TIMEOUT,
        "grpc.http2.min_ping_interval_without_data_ms": MIN_PING_INTERVAL,
        "grpc.max_connection_idle_ms": IDLE_TIMEOUT,
    }
    return [
        ("grpc.http2.bdp_probe", 0),  # otherwise messages arrive before they have a read slot
        ("grpc.max_receive_message_length", limits.max_body),
        ("grpc.compression_enabled_algorithms_bitset", UNCOMPRESSED_ONLY),
        ("grpc.so_reuseport", 0),  # otherwise another process could listen on the port unnoticed
        *((name, math.ceil(seconds * 1000)) for name, seconds in seconds_by_option.items()),
    ]


class Servicer(GrpcHandler):
    """The SDK's servicer, whose errors `CallInterceptor` handles."""

    async def abort_context(self, error: A2AError, context: Any) -> None:
        """Raise *error* again: the SDK would show clients the text of an error it doesn't know."""
        raise error


class CallContextBuilder(GrpcServerCallContextBuilder):
    """Builder of the SDK's call contexts, with the caller of the current call."""

    def build(self, context: Any) -> ServerCallContext:
        """Return the context of the current call."""
        return ServerCallContext(state={CALLER: _caller.get()})


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Interceptor that reads and answers each call: authentication, rates, limits, errors, logs.

    The SDK's handlers get a message only after the whole message has been read. Stream handlers
    replace them: a stream handler decides about a call before it reads the call's only message.

    Args:
        mapper: Converts exceptions into JSON-RPC errors.
        memory: Counts and limits the bytes that the process keeps.
        limits: The limits of messages and calls.
        auth: The authenticator of callers; None to allow anonymous calls.
        limiter: Counts the requests of each client; None for no limit.
        auth_limiter: Counts, by address, the calls that authentication refuses; None for no limit.
        client_key: Names the client of a call, for limits; None to use the principal or address.
        logs_access: Whether each call is logged.
        on_response: Function to call with the HTTP status that corresponds to each response.
    """

    def __init__(
        self,
        mapper: ErrorMapper,
        memory: Memory,
        limits: GrpcLimits,
        *,
        auth: Authenticator | None = None,
        limiter: RateLimiter | None = None,
        auth_limiter: RateLimiter | None = None,
        client_key: ClientKey | None = None,
        logs_access: bool = True,
        on_response: Callable[[int], None] | None = None,
    ) -> None:
        self._mapper = mapper
        self._memory = memory
        self._limits = limits
        self._auth = auth
        self._scheme = "" if auth is None else challenge_scheme(declared_schemes(auth))
        self._limiter = limiter
        self._auth_limiter = auth_limiter
        self._client_key = client_key
        self._logs_access = logs_access
        self._on_response = on_response
        self._parse_lock = asyncio.Lock()
        self._read_slots = ReadSlots(max(memory.limit // 2 // limits.max_body, 2))
        per_client = share_of(limits.max_open_calls, limits.client_share)
        self._calls = Slots(("calls", "are open"), limits.max_open_calls, per_client)
        self._unread = 0

    def gauges(self) -> dict[str, Callable[[], float]]:
        """Return functions that read the current values, by metric name."""
        return {
            "grpc_open_calls": lambda: len(self._calls),
            "grpc_unread_calls": lambda: self._unread,
        }

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Return the handler of a call; None if there is no such method."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        make_handler: Any = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )

        async def answer(requests: AsyncIterator[bytes], context: Any) -> Any:
            return await self._answer(handler, handler_call_details.method, requests, context)

        return make_handler(answer, response_serializer=handler.response_serializer)

    async def _answer(
        self, handler: Any, path: str, requests: AsyncIterator[bytes], context: Any
    ) -> Any:
        """Answer one call; return the response, or None when a stream has been written."""
        start, status = time.perf_counter(), 499  # in case the client disconnects
        host = host_of(context.peer())
        begin_facts(client=host)
        try:
            with Connection() as connection:
                try:
                    result = await self._perform(handler, path, requests, context, connection)
                except asyncio.CancelledError:  # gRPC cancels calls whose client has left
                    connection.disconnected = True
                    raise
            status = result.status if isinstance(result, Failure) else 200
            if isinstance(result, Failure):
                await result.abort(context)
            return result
        finally:
            if self._on_response is not None and status != 499:
                self._on_response(status)
            if self._logs_access:
                log_request("gRPC", path, status, start)

    async def _perform(
        self,
        handler: Any,
        path: str,
        requests: AsyncIterator[bytes],
        context: Any,
        connection: Connection,
    ) -> Any:
        """Perform the operation of a call; return its response, None for a stream, or a failure."""
        method = path.rpartition("/")[2]
        log_context(operation=method)
        try:
            headers = _headers_of(context.invocation_metadata())
            caller = await self._admit(headers, connection, network_of(host_of(context.peer())))
            if isinstance(caller, Refusal):
                return _failure_from_refusal(caller)
            self._take_slot(caller.client, context)
            version = headers.get("a2a-version", "").strip()
            if ".".join(version.split(".")[:2]) not in ("", "1.0"):
                raise VersionNotSupportedError
            message = await self._receive(REQUEST_TYPES[method], requests, caller)
            if isinstance(message, Failure):
                return message
            _caller.set(caller)
            if EXTENSION_URI in map(str.strip, headers.get(EXTENSIONS_KEY, "").split(",")):
                await context.send_initial_metadata(((EXTENSIONS_KEY, EXTENSION_URI),))
            if not handler.response_streaming:
                return await handler.unary_unary(message, context)
            async with aclosing(handler.unary_stream(message, context)) as responses:
                async for response in responses:
                    await context.write(response)
        except Exception as error:  # the mapper decides what clients see of any exception
            failure = self._failure_from(error)
            forget_frames(error)
            return failure
        return None

    async def _admit(
        self, headers: Mapping[str, str], connection: Connection, address: str
    ) -> Caller | Refusal:
        """Return the caller, or the refusal of its call."""
        trace = received_trace(headers)
        if trace is not None:
            log_context(trace_id=trace.trace_id)
        authenticated: tuple[str, Identity | None] | Refusal = ("", None)
        if self._auth is not None:
            authenticated = await authenticate(
                self._auth, headers, self._scheme, address, self._auth_limiter
            )
        if isinstance(authenticated, Refusal):
            return authenticated
        principal, identity = authenticated
        client = ""
        if self._client_key is not None:
            client = named_client(self._client_key, headers, principal, identity)
        client = client or principal or address
        refusal = None
        if self._limiter is not None:
            refusal = await check_rate(self._limiter, principal, client)
        return refusal or Caller(
            principal, identity, headers, connection, client=client, trace=trace
        )

    def _take_slot(self, client: str, context: Any) -> None:
        """Count a call of *client* until its response has been sent.

        That may be long after the operation has ended, if the client does not read the response.

        Raises:
            RetryLaterError: The client, or all clients together, have too many open calls.
        """

        def leave(_: Any) -> None:
            self._calls.leave(client)

        self._calls.take(client)
        context.add_done_callback(leave)

    async def _receive(
        self, request_type: Any, requests: AsyncIterator[bytes], caller: Caller
    ) -> Any:
        """Return the only message of a call, or a failure if the message is late.

        `Memory` counts the message until the call ends, because the SDK's servicer keeps it.

        Raises:
            InvalidRequestError: The call has no message, or its message is malformed.
            BodySizeError: The message has too many values.
            RetryLaterError: There is no memory for the message.
        """
        body = await self._read(requests, caller.client)
        if isinstance(body, Failure):
            return body
        BodyBytes(self._memory, caller, is_kept=True).grow(len(body))
        if len(body) > LARGE_BODY:
            async with self._parse_lock:  # let the event loop do other work between large messages
                await asyncio.sleep(0)
        return parse_message(request_type, body, self._limits.max_values)

    async def _read(self, requests: AsyncIterator[bytes], client: str) -> "bytes | Failure":
        """Return the only message of a call, unparsed, or a failure if the message is late.

        Raises:
            InvalidRequestError: The call has no message.
        """
        transfer_seconds = self._limits.max_body / MIN_BYTES_PER_SECOND
        self._unread += 1
        try:
            timeout = self._limits.request_timeout + transfer_seconds
            async with asyncio.timeout(timeout), self._read_slots.hold(client):
                body = await anext(requests, None)
        except TimeoutError:
            return Failure(408, "DEADLINE_EXCEEDED", "The request did not arrive in time")
        finally:
            self._unread -= 1
        if body is None:
            raise InvalidRequestError("The call has no message")
        return body

    def _failure_from(self, error: Exception) -> "Failure":
        """Return the failure for an exception, with the same message as in JSON-RPC."""
        if isinstance(error, UnavailableError):  # raised by the events of a stream
            error = store_down_error(error)
        rpc_error = self._mapper.to_jsonrpc_error(error)
        status, code = STATUSES.get(type(error), (500, "INTERNAL"))
        seconds = error.retry_after if isinstance(error, RetryLaterError) else None
        details = [*error_details(rpc_error), *_retry_details(seconds)]
        return Failure(status, code, rpc_error["message"], details)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that ends a call (A2A 1.0 §10.6).

    Attributes:
        status: The corresponding HTTP status, for logs and metrics.
        code: The name of the gRPC status.
        message: The message for the client.
        details: Typed objects in ProtoJSON, such as `google.rpc.ErrorInfo`.
        metadata: Trailing metadata.
    """

    status: int
    code: str
    message: str
    details: Iterable[dict[str, Any]] = ()
    metadata: Iterable[tuple[str, str]] = ()

    async def abort(self, context: Any) -> None:
        """End the call with this failure; raises the exception that gRPC expects."""
        code, message = grpc.StatusCode[self.code], self.message[:MAX_MESSAGE]
        status = status_pb2.Status(code=code.value[0], message=message)
        for detail in self.details:
            packed = ParseDict(detail, AnyMessage())
            if status.ByteSize() + packed.ByteSize() < MAX_STATUS:
                status.details.append(packed)
        metadata = (*self.metadata, (DETAILS_KEY, status.SerializeToString()))
        await context.abort(code, message, metadata)


def _failure_from_refusal(refusal: Refusal) -> Failure:
    """Return the failure for the refusal of a call."""
    status, message, headers = refusal
    retry_after, challenge = headers.get("retry-after"), headers.get("www-authenticate")
    details = _retry_details(retry_after)
    metadata = [] if challenge is None else [("www-authenticate", challenge)]
    return Failure(status, GRPC_NAMES[status], message, details, metadata)


def _retry_details(seconds: object | None) -> list[dict[str, Any]]:
    """Return the detail that says when the client may retry; none without *seconds*."""
    if seconds is None:
        return []
    return [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"}]


def _headers_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """Return text metadata as headers; names are in lower case, as in HTTP/2."""
    return joined_headers(
        [(name, value) for name, value in metadata or () if isinstance(value, str)]
    )


def host_of(peer: str) -> str:
    """Return the address of a peer such as `ipv4:192.0.2.1:5000`; "" if it has none.

    A socket for both versions of IP shows an IPv4 client as `::ffff:192.0.2.1`.
    Return the IPv4 address, so that limits see one address for a client.
    """
    version, _, address = unquote(peer).partition(":")
    host = address.rpartition(":")[0].strip("[]")
    if version != "ipv6":
        return host if version == "ipv4" else ""
    mapped = IPv6Address(host).ipv4_mapped
    return host if mapped is None else str(mapped)
