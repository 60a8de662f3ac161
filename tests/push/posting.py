"""Posting of notifications, with host names that resolve to addresses of a test's choice."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import trustme
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.guard import Guard, Resolve
from apcore_a2a_server.push.transport import WebhookResponse, WebhookTransport

from tests.client.raw import TcpServer
from tests.serving import PATIENCE

NAME = "hooks.example.com"
OUTSIDE, HERE = "93.184.215.14", "127.0.0.1"
CA = trustme.CA()
Post = Callable[..., Awaitable[WebhookResponse]]


def port_of(server: TcpServer) -> int:
    """Return the port of a server."""
    port = urlsplit(server.url).port
    assert port
    return port


class FakeResolver:
    """Resolver that returns its answers in turn, and the last one repeatedly."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.lookups: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int, principal: str) -> list[str]:
        self.lookups.append((host, port))
        return self.answers[min(len(self.lookups), len(self.answers)) - 1]


def trusting(ca: trustme.CA) -> ssl.SSLContext:
    """Return a TLS context that trusts only *ca*; loading the system's authorities is slow."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca.configure_trust(context)
    return context


@asynccontextmanager
async def posting(resolve: Resolve | None = None, **options: Any) -> AsyncIterator[Post]:
    """Yield a function that posts to a URL."""
    settings = PushSettings(**{"ssl_context": trusting(CA), "timeout": PATIENCE, **options})
    transport = WebhookTransport(settings, Guard(settings, resolve))

    async def post(url: str, body: bytes = b"{}") -> WebhookResponse:
        length = ("Content-Length", str(len(body)))
        return await transport.post(url, [length], body, "ada")

    try:
        yield post
    finally:
        await transport.close()
