"""Sends notifications to judged addresses, and reads the status of the answer alone."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httpcore

from .guard import Guard, RefusedError
from .settings import PushSettings

MAX_WAIT = 3600
"""Seconds that a receiver may ask us to wait, at most."""
KEEP_ALIVE = 15.0
PIECE = 1024
"""Bytes that are read at a time: what they hold is parsed without giving way to others."""
MAX_READ = 64 * 1024
"""Bytes that are read of an answer, heads and framing included."""

_principal: ContextVar[str] = ContextVar("apcore_a2a_push_principal")
"""For whom a connection is opened: httpcore hands nothing on to its backend."""


class Answer(NamedTuple):
    """The outcome of one attempt.

    Attributes:
        status: the HTTP status; 0 when there was none.
        reason: what to log; no text of the receiver's.
        retry_after: seconds that the receiver asks for (RFC 9110 §10.2.3).
    """

    status: int
    reason: str
    retry_after: float = 0

    @property
    def is_success(self) -> bool:
        """2xx; a redirect is none, and is not followed."""
        return 200 <= self.status < 300


class WebhookTransport:
    """Posts to webhooks: judged addresses, no redirects, no proxy of the environment.

    Args:
        settings: How.
        guard: Judges the addresses.
    """

    def __init__(self, settings: PushSettings, guard: Guard) -> None:
        self._seconds = settings.timeout
        context = settings.ssl_context or ssl.create_default_context()
        limits: dict[str, Any] = {
            "ssl_context": context,
            "max_connections": None,  # the queue bounds them, for each principal
            "keepalive_expiry": KEEP_ALIVE,
        }
        self._pool: httpcore.AsyncConnectionPool
        if settings.proxy is None:
            self._pool = httpcore.AsyncConnectionPool(network_backend=Backend(guard), **limits)
        else:  # it is ours, wherever it is
            self._pool = httpcore.AsyncHTTPProxy(
                settings.proxy,
                proxy_auth=_credentials(settings.proxy),
                network_backend=Backend(None),
                **limits,
            )

    async def post(
        self, url: str, headers: list[tuple[str, str]], body: bytes, principal: str
    ) -> Answer:
        """Send *body* for a principal; whatever comes of it is an answer."""
        _principal.set(principal)
        heads: list[Answer] = []
        try:
            async with asyncio.timeout(self._seconds):
                await self._post(url, headers, body, heads.append)
        except TimeoutError:
            heads.append(Answer(0, f"no answer in {self._seconds:g} s"))
        except RefusedError:
            heads.append(Answer(0, "its address is not allowed"))
        except Exception as error:  # of httpcore, h11, anyio, ssl, the system: texts are not ours
            heads.append(Answer(0, type(error).__name__))
        return heads[0]  # what comes of the rest of an answer does not matter

    async def close(self) -> None:
        """Close what is open."""
        await self._pool.aclose()

    async def _post(
        self,
        url: str,
        headers: list[tuple[str, str]],
        body: bytes,
        on_head: Callable[[Answer], None],
    ) -> None:
        parts = urlsplit(url)
        place = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        # httpcore takes a ; and what follows it off the path of a text
        address = httpcore.URL(
            scheme=parts.scheme,
            host=(parts.hostname or "").encode(),
            port=parts.port,
            target=place.encode(),
        )
        headers = [("host", parts.netloc), *headers]
        timeouts = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._seconds)}
        async with self._pool.stream(
            "POST", address, headers=headers, content=body, extensions=timeouts
        ) as response:
            named = {name.lower(): value for name, value in response.headers}
            wait = _retry_after(named.get(b"retry-after"))
            on_head(Answer(response.status, f"status {response.status}", wait))
            async for _ in response.aiter_stream():  # so that its connection can be used again
                continue


class _Stream(httpcore.AsyncNetworkStream):
    """A stream of bounded answers, that is closed, too, when its TLS handshake is given up."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._read = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - it is httpcore's
        if self._read >= MAX_READ:
            raise httpcore.ReadError("The answer is too long")
        data = await self._inner.read(min(max_bytes, PIECE), timeout)
        self._read += len(data)
        await asyncio.sleep(0)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - it is httpcore's
        self._read = 0
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
            return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))
        except asyncio.CancelledError:  # httpcore closes it at others alone
            await self._inner.aclose()
            raise


class Backend(httpcore.AsyncNetworkBackend):
    """Connects by anyio to the very addresses that were judged, and leaves nothing open.

    Args:
        guard: Judges where connections lead; None for those to a proxy, which is ours.
    """

    def __init__(self, guard: Guard | None) -> None:
        anyio: Any = httpcore.AnyIOBackend()  # httpcore's types know none when anyio is missing
        self._inner: httpcore.AsyncNetworkBackend = anyio
        self._guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - it is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to one of the host's addresses, in their order.

        Raises:
            RefusedError: The host has an address that is not allowed.
        """
        addresses = (
            [host]
            if self._guard is None
            else await self._guard.addresses(host, port, _principal.get())
        )
        share = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return _Stream(await self._inner.connect_tcp(address, port, share))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return _Stream(await self._inner.connect_tcp(addresses[-1], port, share))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - it is httpcore's
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """No webhook has such an address.

        Raises:
            RefusedError: Always.
        """
        raise RefusedError("The webhook's URL must have a host")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._inner.sleep(seconds)


def _credentials(proxy: str) -> tuple[str, str] | None:
    """User and password in the address of a proxy."""
    parts = urlsplit(proxy)
    return (
        None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    )


def _retry_after(value: bytes | None) -> float:
    """Seconds from a `Retry-After`: a number of them, or a date; 0 when it says nothing."""
    text = (value or b"").decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), MAX_WAIT)
    try:
        moment = parsedate_to_datetime(text)
        seconds = (moment.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return 0
    return min(max(seconds, 0), MAX_WAIT)
