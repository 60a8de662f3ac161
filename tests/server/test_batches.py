"""Open streams: writing pending events, waiting readers, and the memory of a stream."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from apcore_a2a_server.engine.clients import DISCONNECT_WATCH_DELAY
from apcore_a2a_server.store.live import Waiter, Waiters

from .checking_client import ROUTES, Json
from .inloop import (
    DIALECTS,
    ActionModule,
    Frame,
    Gate,
    Peer,
    StreamModule,
    gapless,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .test_stateful import Clock, Loop

pytestmark = pytest.mark.anyio


async def bodies_written(
    peer: Peer, task_id: str, last: int, header_counts: list[int] | None = None
) -> list[bytes]:
    """Subscribe through ASGI until the stream ends, and return the bodies of all writes.

    Like a user's middleware, add a header to the response; before that, append the number of its
    headers to *header_counts*.
    """
    bodies: list[bytes] = []
    request = peer.request("subscribe", {"id": task_id}, {"Last-Event-ID": str(last)})
    unreceived = [{"type": "http.request", "body": request.content, "more_body": False}]

    async def receive() -> Any:
        return unreceived.pop() if unreceived else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            bodies.append(message["body"])
        else:
            if header_counts is not None:
                header_counts.append(len(message["headers"]))
            message["headers"].append((b"x-user", b"1"))

    path = ROUTES["subscribe"][1].format(id=task_id) if peer.dialect == "REST" else "/"
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    await peer.app({**scope, "headers": headers}, receive, send)
    return bodies


def frames(dialect: str, body: bytes) -> list[Frame]:
    """Return the frames of one write, which must all be complete."""
    parsed: list[Frame] = []
    for frame in body.decode().removesuffix("\n\n").split("\n\n"):
        id_line, data_line = frame.split("\n")
        data: Json = json.loads(data_line.removeprefix("data: "))
        result = data if dialect == "REST" else data["result"]
        if dialect == "0.3":
            kind, event = result["kind"].removesuffix("-update"), result
        else:
            ((kind, event),) = result.items()
        parsed.append(Frame(int(id_line.removeprefix("id: ")), kind.removesuffix("Update"), event))
    return parsed


def chunks(count: int, size: int = 0) -> StreamModule:
    async def source(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        for number in range(count):
            yield {"n": number, "text": "x" * size}

    return StreamModule(source)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_pending_events_share_a_write(dialect: str) -> None:
    async with serving({"work": chunks(3)}, dialect) as peer:
        async with peer.stream() as stream:
            sent_frames = await stream.rest()
        for last in range(len(sent_frames)):
            write, end = await bodies_written(peer, sent_frames[0].body["id"], last)
            assert frames(dialect, write) == sent_frames[last:]
            assert end == b""


async def test_a_header_that_middleware_adds_to_a_stream_is_not_on_the_next_stream() -> None:
    async with serving({"work": chunks(1)}) as peer:
        task_id, header_counts = (await peer.send()).task["id"], list[int]()
        for _ in range(2):
            await bodies_written(peer, task_id, 0, header_counts)
    assert header_counts[0] == header_counts[1]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_large_pending_events_are_divided_into_several_writes(dialect: str) -> None:
    async with serving({"work": chunks(5, size=40_000)}, dialect) as peer:
        async with peer.stream() as stream:
            sent_frames = await stream.rest()
        *bodies, end = await bodies_written(peer, sent_frames[0].body["id"], 2)
        numbers = [[frame.id for frame in frames(dialect, body)] for body in bodies]
        assert numbers == [[3, 4], [5, 6], [7, 8]]
        assert gapless([frame for body in bodies for frame in frames(dialect, body)], 3)
        assert end == b""


async def test_an_event_between_two_waits_is_not_missed() -> None:
    waiters = Waiters()
    with Waiter(waiters, "t1", 1, idle=3600) as waiter:
        waiters.wake("t1", 2)
        assert await waiter.wait()
        waiter.after = 2
        waiters.wake("t1", 2)  # not a newer version
        waiting = asyncio.create_task(waiter.wait())
        await asyncio.sleep(0)
        waiters.wake("t2", 3)
        waiters.wake("t1", 3)
        assert await waiting
    assert waiters.task_ids() == []


def test_each_idle_wait_ends_ten_seconds_after_its_own_start() -> None:
    """All waits of a reader share a timer."""

    async def main() -> list[tuple[float, bool]]:
        waiters, ends = Waiters(), list[tuple[float, bool]]()
        loop = asyncio.get_running_loop()
        with Waiter(waiters, "t1", 0, idle=10) as waiter:
            for version, seconds in enumerate([6.0, 6.0, 60.0, 6.0, 60.0], 1):
                wake = loop.call_later(seconds, waiters.wake, "t1", version)
                ends.append((loop.time(), await waiter.wait()))
                waiter.after = version
                wake.cancel()
        return [*ends, (loop.time(), False)]

    with asyncio.Runner(loop_factory=lambda: Loop(Clock(has_threads=lambda: False))) as runner:
        ends = runner.run(main())
    assert ends == [(0, True), (6, True), (12, False), (22, True), (28, False), (38, False)]


async def test_an_open_stream_needs_at_most_twenty_kilobytes() -> None:
    gate, count = Gate(), 50
    async with serving({"work": ActionModule(gate)}) as peer:
        task_id = await peer.start()
        streams = peer.agent.handler.streams

        async def open_all() -> list[asyncio.Task[list[bytes]]]:
            """Open streams that are watched for a disconnect."""
            readers = [asyncio.create_task(bodies_written(peer, task_id, 2)) for _ in range(count)]
            await wait_until(lambda: len(streams) >= count)
            await asyncio.sleep(2 * DISCONNECT_WATCH_DELAY)
            gc.collect()
            return readers

        warm_up_readers = await open_all()
        for reader in warm_up_readers:
            reader.cancel()
        await wait_until(lambda: len(streams) == 0)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            readers = await open_all()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        gate.opened.set()
        await asyncio.gather(*readers)
    assert (after - before) / count < 20_000
