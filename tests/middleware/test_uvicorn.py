"""Undocumented parts of uvicorn used by `middleware.timeouts` and `app.serve`.

When this fails, uvicorn has changed: adapt these two, and only then raise the upper bound of
uvicorn in the server's `pyproject.toml`.
"""

import asyncio
from inspect import signature

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import listener

from .byhand import request
from .test_heads import FakeTransport

PROTOCOL = [
    *("connection_made", "connection_lost", "data_received"),
    *("on_message_begin", "on_headers_complete", "on_body", "on_message_complete"),
    *("loop", "transport", "flow", "cycle", "headers", "pipeline", "timeout_keep_alive_task"),
]
SERVER = [
    *("startup", "shutdown", "handle_exit", "should_exit", "force_exit"),
    *("config", "lifespan", "server_state", "servers"),
]


@pytest.mark.anyio
async def test_uvicorn_has_the_parts_that_the_server_uses() -> None:
    config = uvicorn.Config(PlainTextResponse("read"), http="httptools", lifespan="off")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    protocol = HttpToolsProtocol(
        config, server.server_state, server.lifespan.state, asyncio.get_running_loop()
    )
    protocol.connection_made(FakeTransport())
    protocol.data_received(request("/", "Content-Length: 5\r\n"))
    with listener() as sock:
        await server.startup([sock])
        used_parts: list[tuple[object, list[str]]] = [
            (protocol, PROTOCOL),
            (protocol.cycle, ["waiting_for_100_continue", "more_body", "response_complete"]),
            (protocol.flow, ["read_paused"]),
            (server, SERVER),
            (server.lifespan, ["state", "shutdown"]),
            (server.server_state, ["connections"]),
            (config, ["http_protocol_class"]),
        ]
        missing = [
            f"{type(owner).__name__}.{name}"
            for owner, names in used_parts
            for name in names
            if not hasattr(owner, name)
        ]
        protocol.connection_lost(None)
        await server.shutdown([sock])
    assert missing == []
    assert [*signature(server.startup).parameters] == ["sockets"]
    assert [*signature(server.shutdown).parameters] == ["sockets"]
