"""HTTP transport that posts to webhooks at checked addresses, and ignores response bodies."""

import asyncio
import ssl
import time
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httpcore

from apcore_a2a_server.store.webhooks import AttemptReason

from .guard import BusyError, Guard, RefusedError
from .settings import PushSettings
from .signing import Headers

MAX_WAIT = 3600
"""Maximum delay that a receiver can ask for with `Retry-After`, in seconds."""
KEEP_ALIVE = 15.0
"""Seconds until an idle connection is closed."""
READ_SIZE = 1024
"""Maximum size of one read, in bytes; other asyncio tasks can run before the next read."""
MAX_READ = 64 * 1024
"""Maximum number of bytes that are read from a response, including headers and framing."""

_principal: ContextVar[str] = ContextVar("apcore_a2a_push_principal")
"""The principal of the current post; httpcore passes no context to its network backend."""


class WebhookResponse(NamedTuple):
    """The response to a post, or the reason why there is none.

    Attributes:
        status: The HTTP status; 0 without a response.
        reason: A description of the failure for logs and clients, without text from the receiver.
        retry_after: Seconds to wait, if the receiver asks for a delay (RFC 9110 §10.2.3).
        kind: The kind of failure; ignored after a success.
    """

    status: int
    reason: str
    retry_after: float = 0
    kind: AttemptReason = "status"

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx; redirects are failures and are not followed."""
        return 200 <= self.status < 300


class WebhookTransport:
    """Transport that posts to webhooks; it follows no redirects, and ignores proxy variables.

    Args:
        settings: The timeout, proxy and TLS settings.
        guard: The guard that checks URLs and addresses.
    """

    def __init__(self, settings: PushSettings, guard: Guard) -> None:
        self._timeout = settings.timeout
        self._guard = guard
        proxy = None if settings.proxy is None else _proxy(settings.proxy)
        self._pool = httpcore.AsyncConnectionPool(
            settings.ssl_context or ssl.create_default_context(),
            proxy,
            max_connections=None,  # the queue limits deliveries per owner and host
            keepalive_expiry=KEEP_ALIVE,
            network_backend=GuardedBackend(guard if proxy is None else None),
        )

    async def post(
        self, url: str, headers: Headers, body: bytes, principal: str
    ) -> WebhookResponse:
        """Post *body* to a principal's webhook; failures are returned as a response too."""
        _principal.set(principal)
        result = None
        failure: tuple[str, AttemptReason]
        try:
            self._guard.target(url)  # raises if the settings no longer allow the URL
            async with asyncio.timeout(self._timeout), self._stream(url, headers, body) as response:
                result = _webhook_response(response)
                # a connection is reused only if the response was read to its end
                async for _ in response.aiter_stream():
                    continue
                return result
        except (TimeoutError, httpcore.TimeoutException):
            failure = f"no answer in {self._timeout:g} s", "timeout"
        except BusyError:
            failure = "its host can't be resolved now", "unresolved"
        except RefusedError:
            failure = "its address is not allowed", "not_allowed"
        except Exception as error:  # of httpcore, h11, anyio, ssl or the system: show only its type
            failure = type(error).__name__, "connection"
        # A status counts even if reading the body fails: the receiver has decided by then.
        return result or WebhookResponse(0, failure[0], kind=failure[1])

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def _stream(
        self, url: str, headers: Headers, body: bytes
    ) -> AbstractAsyncContextManager[httpcore.Response]:
        url_parts = urlsplit(url)
        target = f"{url_parts.path or '/'}{'?' if url_parts.query else ''}{url_parts.query}"
        # Given a string, httpcore would drop a ; and the rest of the path after it.
        core_url = httpcore.URL(
            scheme=url_parts.scheme,
            host=(url_parts.hostname or "").encode(),
            port=url_parts.port,
            target=target.encode(),
        )
        headers = [("host", url_parts.netloc), *headers]
        timeouts = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._timeout)}
        return self._pool.stream(
            "POST", core_url, headers=headers, content=body, extensions=timeouts
        )


class _BoundedStream(httpcore.AsyncNetworkStream):
    """A network stream that limits the bytes read after each write."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._bytes_read = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - it is httpcore's
        if self._bytes_read >= MAX_READ:
            raise httpcore.ReadError("The response is too long")
        data = await self._inner.read(min(max_bytes, READ_SIZE), timeout)
        self._bytes_read += len(data)
        # A read of buffered TLS data does not suspend: without this sleep, an endless response
        # would keep the event loop from running anything else until `MAX_READ` bytes are read.
        await asyncio.sleep(0)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - it is httpcore's
        self._bytes_read = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is httpcore's
    ) -> httpcore.AsyncNetworkStream:
        try:
            inner = await self._inner.start_tls(ssl_context, server_hostname, timeout)
            return _BoundedStream(inner)
        except asyncio.CancelledError:
            # httpcore closes the stream if the handshake fails, but not if a timeout cancels it.
            await self._inner.aclose()
            raise


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """A network backend that connects only to addresses that the guard has checked.

    The names are resolved here and not by httpcore, so that no second lookup can return an
    unchecked address.

    Args:
        guard: The guard; None for connections to the operator's proxy, which are not checked.
    """

    def __init__(self, guard: Guard | None) -> None:
        backend: Any = httpcore.AnyIOBackend()  # without anyio, httpcore defines it differently
        self._inner: httpcore.AsyncNetworkBackend = backend
        self._guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - it is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a host, at the first of its addresses that accepts the connection.

        Raises:
            RefusedError: The host has no address, or has an address that is not allowed.
            BusyError: Too many names are being resolved.
        """
        addresses = (
            [host]
            if self._guard is None
            else await self._guard.addresses(host, port, _principal.get())
        )
        # The time left is shared equally, so that an address that drops packets leaves time for the
        # addresses after it.
        start = time.monotonic()

        def timeout_share(addresses_left: int) -> float | None:
            elapsed = time.monotonic() - start
            return None if timeout is None else max(timeout - elapsed, 0) / addresses_left

        for index, address in enumerate(addresses[:-1]):
            seconds = timeout_share(len(addresses) - index)
            try:
                return _BoundedStream(await self._inner.connect_tcp(address, port, seconds))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return _BoundedStream(await self._inner.connect_tcp(addresses[-1], port, timeout_share(1)))


def _proxy(proxy_url: str) -> httpcore.Proxy:
    """Return the proxy at *proxy_url*, which may contain a user and a password."""
    url_parts = urlsplit(proxy_url)
    user, password = url_parts.username, unquote(url_parts.password or "")
    return httpcore.Proxy(proxy_url, None if user is None else (unquote(user), password))


def _webhook_response(response: httpcore.Response) -> WebhookResponse:
    headers = {name.lower(): value for name, value in response.headers}
    retry_after = _retry_after(headers.get(b"retry-after"))
    return WebhookResponse(response.status, f"status {response.status}", retry_after)


def _retry_after(value: bytes | None) -> float:
    """Return the delay that a `Retry-After` header asks for, in seconds; 0 if there is none."""
    text = (value or b"").decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), MAX_WAIT)
    try:
        retry_date = parsedate_to_datetime(text)
        seconds = (retry_date.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return 0
    return min(max(seconds, 0), MAX_WAIT)
