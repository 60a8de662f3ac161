"""Time in which the event loop is blocked does not count against slow senders."""

import asyncio
import time
from contextlib import closing

import pytest
from starlette.types import Receive, Scope, Send

from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

from .byhand import uvicorn_with_timeout

pytestmark = pytest.mark.anyio

TIMEOUT = 1.0
"""Seconds that a request may take to arrive."""


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        continue
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def status_line_for(body: bytes, block_seconds: float, length: int) -> bytes:
    """Return the status line for a body sent byte by byte; the loop is blocked before each byte."""
    async with uvicorn_with_timeout(app, TIMEOUT) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        with closing(writer):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length)
            for byte in body:
                await asyncio.sleep(0.01)
                time.sleep(block_seconds)  # noqa: ASYNC251  # like a module that computes in the loop
                writer.write(bytes([byte]))
            async with asyncio.timeout(PATIENCE):
                line = await reader.readline()
    return line


async def test_a_request_survives_a_blocked_event_loop() -> None:
    assert b" 204 " in await status_line_for(b"123456789", 0.4, 9)


@pytest.mark.clock
async def test_a_request_that_does_not_arrive_still_times_out() -> None:
    assert await status_line_for(b"12345678", 0.1, 9) == b""
