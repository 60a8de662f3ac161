"""How a uvicorn server stops listening without refusing who has connected already."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn

LAST_REQUESTS = 0.1
"""Seconds in which those who have just connected can still send a request."""


async def stop_listening(server: uvicorn.Server, sockets: Sequence[socket.socket]) -> None:
    """Close the port, and still serve who has connected by now.

    The kernel would reset these connections, and a proxy could not repeat their requests.

    Args:
        server: The server, which serves.
        sockets: Where it listens.
    """
    spares = [listener.dup() for listener in sockets]
    for listening in server.servers:
        listening.close()
    last = [connection for spare in spares for connection in _waiting(spare)]
    loop, state = asyncio.get_running_loop(), server.lifespan.state
    protocol: Any = server.config.http_protocol_class
    made = partial(protocol, server.config, server.server_state, state, loop)
    for connection in last:
        await loop.connect_accepted_socket(made, connection)
    await asyncio.sleep(LAST_REQUESTS)


def hang_up(server: uvicorn.Server) -> None:
    """Cut off everybody who is still connected."""
    for connection in [*server.server_state.connections]:
        protocol: Any = connection
        protocol.transport.close()


def _waiting(listener: socket.socket) -> Iterator[socket.socket]:
    """The connections that the kernel has made and nobody has taken yet; closes *listener*."""
    with listener, suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.setblocking(False)
            yield connection
