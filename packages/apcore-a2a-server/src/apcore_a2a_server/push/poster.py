"""Sends a notification to a judged address, and looks at the status of the answer alone."""

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httpcore

from .errors import RefusedError
from .guard import Guard
from .network import Backend
from .settings import PushSettings

MAX_WAIT = 3600
"""Seconds that a receiver may ask us to wait, at most."""
KEEP_ALIVE = 15.0


class Answer(NamedTuple):
    """What came of one attempt.

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


class Poster:
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
            "max_connections": None,  # the outbox bounds them, for each principal
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

    async def post(self, url: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        """Send *body*; whatever comes of it is an answer."""
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
        patience = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._seconds)}
        async with self._pool.stream(
            "POST", address, headers=headers, content=body, extensions=patience
        ) as response:
            named = {name.lower(): value for name, value in response.headers}
            wait = _retry_after(named.get(b"retry-after"))
            on_head(Answer(response.status, f"status {response.status}", wait))
            async for _ in response.aiter_stream():  # so that its connection can be used again
                continue


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
