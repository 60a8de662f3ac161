"""Requests that fail leave no frames that only the garbage collector would free."""

import asyncio
import gc
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
from apcore_a2a_core import InputRequiredError
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.errors import forget_frames
from grpc.aio import AioRpcError

from .grpc_caller import serving_grpc
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    SyncActionModule,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs, Text

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("dialect")]

OWN_CODE = re.compile("/(src|site-packages)/apcore")
LONG_TEXT = "x" * 200_000
"""A text so long that it is checked and converted in a thread."""


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


async def ask(inputs: Inputs, context: Any) -> Any:
    raise InputRequiredError("Which day?")


MODULES = {
    "asks": ActionModule(ask),
    "needs.approval": ActionModule(ask, annotations=NEEDS_APPROVAL),
    "fails": ActionModule(fail),
    "streams": StreamModule(fail_later),
    "fails.in.thread": SyncActionModule(fail_in_thread),
    "hangs": ActionModule(hang, resources={"timeout": 50}),
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
    "the module asks": lambda peer: send(peer, "asks", text=LONG_TEXT),
    "the call needs approval": lambda peer: send(peer, "needs.approval", text=LONG_TEXT),
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
    """Yield a list; at the end of the block, fill it with the garbage of the block."""
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


def names_of_frames(garbage: list[object]) -> list[str]:
    """Return the names of the server's and apcore's functions with frames in the list; clear it."""
    codes = [value.f_code for value in garbage if isinstance(value, FrameType)]
    garbage.clear()
    return [code.co_qualname for code in codes if OWN_CODE.search(code.co_filename)]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_request_that_fails_leaves_no_frames(
    failure: Callable[[Peer], Awaitable[Any]], dialect: str
) -> None:
    async with serving(MODULES, dialect) as peer:
        await failure(peer)  # the first request of a kind fills caches
        with collecting() as garbage:
            await failure(peer)
            await wait_until(lambda: not peer.agent.engine.runs)
        assert names_of_frames(garbage) == []


@pytest.mark.parametrize(
    ("skill", "data"),
    [("fails", {}), ("takes.text", {"text": 1}), ("takes.text", {"text": 1, "other": LONG_TEXT})],
)
async def test_a_grpc_call_that_fails_leaves_no_frames(skill: str, data: Inputs) -> None:
    async with serving_grpc(MODULES) as caller:

        async def call() -> None:
            with suppress(AioRpcError):
                await caller.send(skill, **data)

        await call()
        with collecting() as garbage:
            await call()
            await wait_until(lambda: not caller.peer.agent.engine.runs)
        assert names_of_frames(garbage) == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_send_that_a_full_store_refuses_leaves_no_frames(dialect: str) -> None:
    store = InMemoryTaskStore(max_capacity=1)
    async with serving(MODULES, dialect, task_store=store) as peer:
        await send(peer, "asks")
        request = peer.request("send", peer.wire.params("asks", peer.part(data={"n": LONG_TEXT})))
        await peer.client.send(request)
        with collecting() as garbage:
            response = await peer.client.send(request)
            await wait_until(lambda: not peer.agent.engine.runs)
        assert "Too many tasks" in response.text
        assert names_of_frames(garbage) == []


async def test_the_errors_of_a_group_lose_their_frames_too() -> None:
    async def fail() -> None:
        raise ValueError("in a task group")

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    (member,) = caught.value.exceptions
    assert member.__traceback__ is not None
    forget_frames(caught.value)
    assert member.__traceback__ is None


def test_errors_that_define_equality_lose_their_frames_too() -> None:
    class OddError(Exception):
        def __eq__(self, other: object) -> bool:
            raise ValueError("errors are not compared")

    def fail() -> None:
        try:
            raise OddError("first")
        except OddError as cause:
            raise OddError("second") from cause

    with pytest.raises(OddError) as caught:
        fail()
    error = caught.value
    forget_frames(error)
    assert error.__traceback__ is None
    assert error.__cause__ is not None
    assert error.__cause__.__traceback__ is None


async def test_the_collector_does_not_scan_tasks_and_events() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}) as peer:
        task_id = await peer.start()
        await gate.reached.wait()
        tasks = peer.agent.handler.tasks
        record, events = await tasks.get(task_id), await tasks.events(task_id, 0)
        assert record
        assert events
        messages = record.task.history
        values: list[object] = [record, record.task, *messages, *events]
        values += [part for message in messages for part in message.parts]
        values += [event.payload for event in events]
        assert [type(value) for value in values if gc.is_tracked(value)] == []
        gate.opened.set()
