"""Requests that fail leave no frames behind, whose values only the garbage collector would free."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from .inloop import (
    DIALECTS,
    ActionModule,
    Peer,
    StreamModule,
    SyncActionModule,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs, Text

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("dialect")]

LONG_TEXT = "x" * 200_000
"""A text that is checked and converted in a thread."""


async def fail(inputs: Inputs, context: Any) -> Any:
    raise ValueError("The module fails")


async def fail_later(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
    yield {"text": "a"}
    raise ValueError("The module fails")


async def hang(inputs: Inputs, context: Any) -> Any:
    await asyncio.sleep(3600)


def fail_in_thread(inputs: Inputs, context: Any) -> Any:
    raise ValueError("The module fails")


async def return_number(inputs: Inputs, context: Any) -> Any:
    return {"text": 1}


MODULES = {
    "fails": ActionModule(fail),
    "streams": StreamModule(fail_later),
    "fails.in.thread": SyncActionModule(fail_in_thread),
    "hangs": ActionModule(hang),
    "takes.text": ActionModule(return_number, input_schema=Text, output_schema=Text),
}


async def send(peer: Peer, skill: str, **data: Any) -> None:
    await peer.send(skill, peer.part(data=data))


async def stream(peer: Peer) -> None:
    async with peer.stream("streams", peer.part(data={"text": LONG_TEXT})) as events:
        await events.rest()


async def post(peer: Peer, body: bytes) -> None:
    path = "/message:send" if peer.wire.restful else "/"
    await peer.client.post(path, content=body, headers=peer.wire.headers)


FAILURES: dict[str, Callable[[Peer], Awaitable[Any]]] = {
    "the module raises": lambda peer: send(peer, "fails", text=LONG_TEXT),
    "the module raises in a thread": lambda peer: send(peer, "fails.in.thread", text="a"),
    "a stream of the module raises": stream,
    "the module takes too long": lambda peer: send(peer, "hangs", text=LONG_TEXT),
    "the output is invalid": lambda peer: send(peer, "takes.text", text="a"),
    "an input is invalid": lambda peer: send(peer, "takes.text", text=1),
    "a large input is invalid": lambda peer: send(peer, "takes.text", text=1, other=LONG_TEXT),
    "the skill is unknown": lambda peer: send(peer, "nope", text=LONG_TEXT),
    "the task is unknown": lambda peer: peer.ask("get", {"id": "nope"}),
    "a part has no content": lambda peer: peer.ask("send", {"message": {"parts": [{}]}}),
    "the body is not JSON": lambda peer: post(peer, b"{"),
    "a large body is not JSON": lambda peer: post(peer, b'{"a": "%s' % LONG_TEXT.encode()),
}


@contextmanager
def collecting() -> Iterator[list[object]]:
    """Collect the garbage of the block into a list, which is complete at its end."""
    logging.disable()  # pytest keeps log records, and with them tracebacks
    gc.collect()
    gc.disable()
    try:
        yield gc.garbage
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    finally:
        gc.set_debug(0)
        gc.enable()
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_request_that_fails_leaves_no_frames(
    failure: Callable[[Peer], Awaitable[Any]], dialect: str
) -> None:
    async with serving(MODULES, dialect, execution_timeout=0.05) as peer:
        await failure(peer)  # the first request of a kind fills caches
        with collecting() as garbage:
            await failure(peer)
            await asyncio.sleep(0.05)  # until the run has ended, too
        frames = [x.f_code.co_qualname for x in garbage if isinstance(x, FrameType)]
        garbage.clear()
        assert frames == []
