"""The receiver of notifications from remote agents, as an ASGI application."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from apcore_a2a_client import PushNotificationConfig

TOKEN_HEADER = b"x-a2a-notification-token"
MAX_BODY = 64 * 1024 * 1024
"""Maximum number of bytes of a notification that are read; its content is not used."""
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class WebhookReceiver:
    """An ASGI application that receives notifications of remote tasks.

    A notification must have the token of a task, and only says that this task has changed. Nothing
    else in the notification is trusted, because the task is then fetched from its agent.

    Args:
        url: The address at which the agents reach this application.

    Raises:
        ValueError: The URL is not http or https, or has no host, or no path beyond `/`.

    Example:
        ```python
        from apcore_a2a_remote import RemoteAgent, WebhookReceiver

        receiver = WebhookReceiver("https://gateway.example.com/remote/notifications")
        agent = RemoteAgent(
            "https://reports.example.com", name="reports", wait="webhook", receiver=receiver
        )
        print([*agent.routes()])
        #> ['/remote/notifications']
        ```
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path in ("", "/"):
            problem = "must be http or https with a host and a path"
            raise ValueError(f"The URL of a receiver {problem}, not {url!r}")
        self.url = url
        self.path = parts.path
        self._expected: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}

    @contextmanager
    def expecting(self) -> Generator[tuple[PushNotificationConfig, asyncio.Event]]:
        """Yield a push config for a task, and an `asyncio.Event` that its notifications set."""
        token, event = secrets.token_urlsafe(32), asyncio.Event()
        self._expected[token] = asyncio.get_running_loop(), event
        try:
            yield PushNotificationConfig(self.url, token=token), event
        finally:
            del self._expected[token]

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Respond with 204; 405 to all but POST, 401 without the token of an expected task."""
        if scope["type"] != "http":
            return
        if scope["method"] != "POST":
            await _respond(send, 405)
            return
        headers = dict(scope["headers"])
        expected = self._expected.get(headers.get(TOKEN_HEADER, b"").decode("latin-1"))
        if expected is None:
            await _respond(send, 401)
            return
        size, has_more = 0, True
        while has_more and size <= MAX_BODY:
            message = await receive()
            size += len(message.get("body", b""))
            has_more = message.get("more_body", False)
        loop, event = expected
        loop.call_soon_threadsafe(event.set)
        await _respond(send, 204)


async def _respond(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0")] if status != 204 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
