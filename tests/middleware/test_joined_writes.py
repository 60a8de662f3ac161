"""Responses whose head and body are written together."""

import asyncio
from contextlib import closing
from typing import Any

import pytest
from apcore_a2a_server.middleware.joined_writes import MAX_JOINED, JoinedWrites
from starlette.types import Receive, Scope, Send

from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

from .byhand import uvicorn_with_timeout

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class RecordingTransport:
    """A transport that records what is done with it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


@pytest.fixture
async def joined() -> tuple[Any, RecordingTransport]:
    """Return a transport that joins writes, and the one below it."""
    recorder: Any = RecordingTransport()
    return JoinedWrites(recorder, asyncio.get_running_loop()), recorder


Joined = tuple[Any, RecordingTransport]


async def test_a_head_and_a_body_are_one_write(joined: Joined) -> None:
    transport, recorder = joined
    for _ in range(2):
        transport.write(HEAD)
        transport.write(b"{}")
    transport.write(b"more")
    assert recorder.calls == [HEAD + b"{}", HEAD + b"{}", b"more"]
    await asyncio.sleep(0)
    assert len(recorder.calls) == 3


async def test_a_head_without_a_body_is_written_in_the_next_iteration(joined: Joined) -> None:
    transport, recorder = joined
    transport.write(HEAD)
    assert recorder.calls == []
    await asyncio.sleep(0)
    assert recorder.calls == [HEAD]
    transport.write(b"later")
    assert recorder.calls == [HEAD, b"later"]


async def test_a_long_body_is_not_copied(joined: Joined) -> None:
    transport, recorder = joined
    body = b"x" * (MAX_JOINED + 1)
    transport.write(HEAD)
    transport.write(body)
    assert recorder.calls == [HEAD, body]
    assert recorder.calls[1] is body


async def test_a_head_is_written_before_the_connection_is_closed(joined: Joined) -> None:
    transport, recorder = joined
    transport.write(HEAD)
    transport.close()
    assert recorder.calls == [HEAD, "close"]
    assert transport.is_closing()


async def test_the_head_for_a_lost_connection_is_dropped(joined: Joined) -> None:
    transport, recorder = joined
    transport.write(HEAD)
    recorder.closing = True
    await asyncio.sleep(0)
    assert recorder.calls == []


async def test_everything_else_is_that_of_the_transport(joined: Joined) -> None:
    transport, _ = joined
    assert transport.get_extra_info("peername") == "the peername"
    with pytest.raises(AttributeError):
        transport.no_such_method()


async def test_the_connections_of_an_agent_join_writes() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await asyncio.sleep(0)  # the head is written now
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        await send({"type": "http.response.body", "body": b"}"})

    async with uvicorn_with_timeout(app, 10) as (server, address):
        reader, writer = await asyncio.open_connection(*address)
        with closing(writer):
            for _ in range(3):
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                async with asyncio.timeout(PATIENCE):
                    head = await reader.readuntil(b"\r\n\r\n")
                    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                    assert await reader.readexactly(2) == b"{}"
            connection: Any
            (connection,) = server.server_state.connections
            assert isinstance(connection.transport, JoinedWrites)
