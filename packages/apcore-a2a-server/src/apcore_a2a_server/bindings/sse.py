"""Server-sent events over ASGI (WHATWG HTML §9.2), one `id` per version of a task."""

from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

from apcore_a2a_core.values import dump_json
from starlette.types import Send

from apcore_a2a_server.engine.clients import Connection, HungUpError
from apcore_a2a_server.engine.handler import Events
from apcore_a2a_server.store import Payload

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n\n"


async def send_events(
    send: Send,
    connection: Connection,
    events: Events,
    encode: Callable[[Payload], dict[str, Any]],
) -> None:
    """Answer with events until they end or the client is gone.

    Args:
        send: ASGI's.
        connection: The client's end.
        events: The events; None stands for a sign of life.
        encode: Makes the JSON of one event.
    """
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    with suppress(HungUpError), connection.watched(), connection.losing():
        async with aclosing(events):
            async for event in events:
                body = KEEP_ALIVE
                if event is not None:
                    data = dump_json(encode(event.payload))
                    body = b"id: %d\ndata: %s\n\n" % (event.version, data)
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
