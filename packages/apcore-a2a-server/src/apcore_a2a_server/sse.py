"""Server-sent events over ASGI (WHATWG HTML §9.2), one `id` per version of a task."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from apcore_a2a_store import Event, Payload
from starlette.types import Receive, Scope, Send

from .http import dump

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n\n"
PATIENCE = 0.5
"""Seconds a stream goes on before somebody watches for its client; most end sooner."""


class EventStream:
    """An ASGI response that sends events until they end or the client is gone.

    Args:
        events: The events; None stands for a sign of life.
        encode: Makes the JSON of one event.
    """

    def __init__(
        self, events: AsyncIterator[Event | None], encode: Callable[[Payload], dict[str, Any]]
    ) -> None:
        self._events = events
        self._encode = encode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        sending = asyncio.ensure_future(self._send_all(send))
        watching: asyncio.Future[None] | None = None
        try:
            await asyncio.wait({sending}, timeout=PATIENCE)
            if not sending.done():
                watching = asyncio.ensure_future(_gone(receive))
                await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in filter(None, (sending, watching)):
                task.cancel()
        if not sending.cancelled() and sending.done():
            sending.result()

    async def _send_all(self, send: Send) -> None:
        async for event in self._events:
            body = KEEP_ALIVE if event is None else self._frame(event)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _frame(self, event: Event) -> bytes:
        return b"id: %d\ndata: %s\n\n" % (event.version, dump(self._encode(event.payload)))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
