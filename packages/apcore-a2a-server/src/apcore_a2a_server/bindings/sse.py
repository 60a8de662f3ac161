"""Server-sent events over ASGI (WHATWG HTML §9.2), one `id` per version of a task."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

from starlette.types import Send

from apcore_a2a_server.engine.clients import Connection, HungUpError
from apcore_a2a_server.store import Event, Payload

from .http import dump

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n\n"


class EventStream:
    """An ASGI response that sends events until they end or the client is gone.

    Args:
        events: The events; None stands for a sign of life.
        encode: Makes the JSON of one event.
    """

    def __init__(
        self, events: AsyncGenerator[Event | None], encode: Callable[[Payload], dict[str, Any]]
    ) -> None:
        self._events = events
        self._encode = encode

    async def send(self, send: Send, connection: Connection) -> None:
        """Send all of them over *connection*."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        with suppress(HungUpError), connection.watched(), connection.losing():
            async with aclosing(self._events):
                async for event in self._events:
                    body = KEEP_ALIVE if event is None else self._frame(event)
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    def _frame(self, event: Event) -> bytes:
        return b"id: %d\ndata: %s\n\n" % (event.version, dump(self._encode(event.payload)))
