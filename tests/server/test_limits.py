"""Limits: requests above a limit are refused with a reason; other requests are not affected."""

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from apcore_a2a_server import Limits
from apcore_a2a_server.modules.threads import ThreadPool

from tests.serving import PATIENCE

from .checking_client import state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    Stream,
    StreamModule,
    SyncActionModule,
    contents,
    echo,
    gapless,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_number_of_concurrent_runs_is_limited(dialect: str) -> None:
    gate = Gate()
    modules = {
        "work": ActionModule(gate),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    async with serving(modules, dialect, max_runs=2, limits=Limits(client_share=None)) as peer:
        paused = (await peer.send("pay")).task
        running = [await peer.start() for _ in range(2)]
        refused = await peer.client.send(peer.request("send", peer.wire.params("work")))
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        answer = peer.wire.params("pay", peer.part(text="yes"), taskId=paused["id"])
        assert (await peer.client.send(peer.request("send", answer))).status_code == 429
        assert await peer.get(paused["id"]) == paused
        assert len((await peer.ask("list")).result["tasks"]) == 3
        gate.opened.set()
        for task_id in running:
            await peer.until(task_id, "completed")
        assert (await peer.ask("send", answer)).state == "completed"


async def open_streams(peer: Peer, stack: AsyncExitStack, count: int) -> list[Stream]:
    return [await stack.enter_async_context(peer.stream()) for _ in range(count)]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_number_of_streams_per_client_is_limited(dialect: str) -> None:
    gate = Gate()
    async with serving(
        {"work": ActionModule(gate)}, dialect, limits=Limits(max_streams_per_client=2)
    ) as peer:
        async with AsyncExitStack() as stack:
            first, _ = await open_streams(peer, stack, 2)
            task_id = (await first.next()).body["id"]
            before = len(peer.agent.engine.runs)
            for request in (
                peer.request("stream", peer.wire.params("work")),
                peer.request("subscribe", {"id": task_id}),
            ):
                refused = await peer.client.send(request)
                assert refused.status_code == 429
                assert refused.headers["retry-after"] == "1"
                assert "Too many streams" in refused.text
            assert len(peer.agent.engine.runs) == before
            assert await peer.state(task_id) == "working"
        await wait_until(lambda: not len(peer.agent.handler.streams))
        gate.opened.set()
        async with peer.stream() as stream:
            assert str((await stream.rest())[-1]) == "status completed"


async def test_the_total_number_of_streams_is_limited() -> None:
    gate = Gate()
    limits = Limits(client_share=None)
    async with (
        serving({"work": ActionModule(gate)}, max_streams=3, limits=limits) as peer,
        AsyncExitStack() as stack,
    ):
        await open_streams(peer, stack, 3)
        refused = await peer.client.send(peer.request("stream", peer.wire.params("work")))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, -32029)
        gate.opened.set()


async def test_a_client_may_open_a_hundred_streams_by_default() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}) as peer, AsyncExitStack() as stack:
        streams = await open_streams(peer, stack, 100)
        # a client of httpx has at most 100 connections
        async with httpx.AsyncClient(trust_env=False) as second_client:
            refused = await second_client.send(peer.request("stream", peer.wire.params("work")))
        assert refused.status_code == 429
        gate.opened.set()
        ends = await asyncio.gather(*(stream.rest() for stream in streams))
        assert {str(frames[-1]) for frames in ends} == {"status completed"}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_number_of_parts_is_limited(dialect: str) -> None:
    async with serving({"work": ActionModule(echo)}, dialect, limits=Limits(max_parts=2)) as peer:
        part = peer.part(data={"a": 1})
        assert (await peer.send("work", part, part)).state == "completed"
        answer = await peer.send("work", part, part, part)
        assert answer.code == -32602
        assert answer.fields == ["message.parts"]


@pytest.mark.parametrize("streams", [False, True])
async def test_an_output_that_is_too_large_fails_its_task(streams: bool) -> None:
    async def source(inputs: Inputs, context: Any) -> Any:
        for _ in range(10):
            yield {"much": "x" * 250}

    async def action(inputs: Inputs, context: Any) -> Any:
        return {"much": "x" * inputs["size"]}

    module = StreamModule(source) if streams else ActionModule(action)
    async with serving({"work": module}, limits=Limits(max_artifact=1000)) as peer:
        if streams:
            async with peer.stream() as stream:
                frames = await stream.rest()
            assert gapless(frames)
            assert (
                frames[-1].status_text == "Module output can't be sent: more than 1000 bytes at $"
            )
            assert len(contents(await peer.get(frames[0].body["id"]))) == 3
        else:
            fits = await peer.send("work", peer.part(data={"size": 900}))
            assert fits.state == "completed"
            answer = await peer.send("work", peer.part(data={"size": 1100}))
            assert answer.state == "failed"
            assert "artifacts" not in answer.task


async def test_a_reader_that_is_too_far_behind_gets_a_snapshot() -> None:
    may_start, may_end = asyncio.Event(), asyncio.Event()

    async def source(inputs: Inputs, context: Any) -> Any:
        await may_start.wait()
        for number in range(25):
            yield {"n": number}
        await may_end.wait()

    modules = {"work": StreamModule(source)}
    async with serving(modules, limits=Limits(max_events=10)) as peer, peer.stream() as stream:
        frames = [await stream.next() for _ in range(2)]
        may_start.set()
        frames += [await stream.next() for _ in range(25)]
        assert gapless(frames)
        task_id = frames[0].body["id"]
        async with peer.subscribe(task_id, 1) as far_behind:
            snapshot = await far_behind.next()
            assert (snapshot.kind, snapshot.id) == ("task", 27)
            assert len(snapshot.body["artifacts"][0]["parts"]) == 25
            async with peer.subscribe(task_id, 20) as slightly_behind:
                assert [(await slightly_behind.next()).id for _ in range(7)] == list(range(21, 28))
            may_end.set()
            assert [str(frame) for frame in await far_behind.rest()] == ["status completed"]


async def test_stuck_threads_are_counted_and_do_not_starve_others() -> None:
    release, started = threading.Event(), threading.Semaphore(0)

    def hang(inputs: Inputs, context: Any) -> Inputs:
        if inputs.get("hang"):
            started.release()
            release.wait(30)
        return {}

    modules = {"work": SyncActionModule(hang), "other": ActionModule(echo)}
    async with serving(modules, max_threads=2) as peer:
        try:
            for stuck in (1, 2):
                task_id = await peer.start("work", peer.part(data={"hang": True}))
                await asyncio.to_thread(started.acquire)
                assert (await peer.ask("cancel", {"id": task_id})).state == "canceled"
                assert peer.agent.setup.threads.stuck == stuck
                if stuck == 1:
                    assert (await peer.send("work", peer.part(data={}))).state == "completed"
            refused = await peer.client.send(peer.request("send", peer.wire.params("work")))
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert (await peer.send("other")).state == "completed"
        finally:
            release.set()
        await wait_until(lambda: peer.agent.setup.threads.stuck == 0)
        assert (await peer.send("work", peer.part(data={}))).state == "completed"


async def test_a_call_that_waits_for_a_thread_is_not_stuck_when_it_is_canceled() -> None:
    release, started = threading.Event(), threading.Semaphore(0)

    def hang(inputs: Inputs, context: Any) -> Inputs:
        started.release()
        release.wait(30)
        return {}

    async with serving({"work": SyncActionModule(hang)}, max_threads=1) as peer:
        try:
            first = await peer.start()
            await asyncio.to_thread(started.acquire)
            second = await peer.start()
            await peer.ask("cancel", {"id": second})
            assert peer.agent.setup.threads.stuck == 0
        finally:
            release.set()
        await peer.until(first, "completed")


async def test_a_synchronous_module_that_times_out_gets_its_cancel_token_set() -> None:
    started, canceled, release = threading.Event(), threading.Event(), threading.Event()

    def wait_for_cancel(inputs: Inputs, context: Any) -> Inputs:
        started.set()
        while not context.cancel_token.is_cancelled and not release.wait(0.005):
            continue
        canceled.set()
        return {"late": True}

    async with serving({"work": SyncActionModule(wait_for_cancel)}, execution_timeout=0.1) as peer:
        try:
            while not started.is_set():  # on a busy machine a call may end before its thread runs
                task = (await peer.send()).task
                assert state_of(task) == "failed"
            assert await asyncio.to_thread(canceled.wait, PATIENCE)
        finally:
            release.set()
        await wait_until(lambda: peer.agent.setup.threads.stuck == 0)
        assert await peer.get(task["id"]) == task


async def test_a_synchronous_module_called_through_the_servers_loop_runs_in_a_thread() -> None:
    loop = asyncio.get_running_loop()

    def outer(inputs: Inputs, context: Any) -> Inputs:
        call = context.executor.call_async("inner", {})
        output: Inputs = asyncio.run_coroutine_threadsafe(call, loop).result()
        return output

    def inner(inputs: Inputs, context: Any) -> Inputs:
        return {"in_loop": threading.current_thread() is threading.main_thread()}

    modules = {"outer": SyncActionModule(outer), "inner": SyncActionModule(inner)}
    async with serving(modules) as peer:
        answer = await peer.send("outer", peer.part(data={}))
        assert contents(answer.task) == [{"in_loop": False}]


@pytest.mark.parametrize("threads", [1, 2])
async def test_nested_synchronous_calls_do_not_deadlock(
    threads: int,
) -> None:
    together = threading.Barrier(threads)

    def outer(inputs: Inputs, context: Any) -> Inputs:
        if not inputs.get("alone"):
            together.wait(5)
        return {"inner": context.executor.call("inner", {}, context)}

    def inner(inputs: Inputs, context: Any) -> Inputs:
        return {"done": True}

    modules = {"outer": SyncActionModule(outer), "inner": SyncActionModule(inner)}
    async with serving(modules, max_threads=threads, execution_timeout=5) as peer:
        # apcore creates its event loop at the first call
        await peer.send("outer", peer.part(data={"alone": True}))
        for _ in range(2):
            calls = [peer.send("outer", peer.part(data={})) for _ in range(threads)]
            for answer in await asyncio.gather(*calls):
                assert contents(answer.task) == [{"inner": {"done": True}}]
            assert (await peer.send("inner", peer.part(data={}))).state == "completed"
        assert peer.agent.setup.threads.stuck == 0


@pytest.mark.usefixtures("short_turns")
async def test_few_of_the_synchronous_modules_that_compute_run_at_once() -> None:
    release, computing, waiting = threading.Event(), 0, threading.Semaphore(0)

    def compute(inputs: Inputs, context: Any) -> Inputs:
        nonlocal computing
        computing += 1
        while not release.is_set():
            sum(range(1000))
        return {}

    def wait(inputs: Inputs, context: Any) -> Inputs:
        waiting.release()
        release.wait(60)
        return {}

    modules = {"compute": SyncActionModule(compute), "wait": SyncActionModule(wait)}
    async with serving(modules, max_threads=80) as peer:
        pool = peer.agent.setup.threads
        pool.computing_limit = pool.late_limit = 3
        try:
            started = [await peer.start("compute") for _ in range(2)]
            started += [await peer.start("wait") for _ in range(20)]
            for _ in range(20):
                await asyncio.to_thread(waiting.acquire)
            started += [await peer.start("compute") for _ in range(50)]
            for _ in range(10):  # time for more calls to start, if they could
                assert (await peer.client.get("/health")).status_code == 200
                await asyncio.sleep(0.01)
            assert 3 <= computing < 20
        finally:
            release.set()
        for task_id in started:
            await peer.until(task_id, "completed")


async def test_only_a_few_calls_that_hold_up_the_event_loop_run_at_once() -> None:
    release, started = threading.Event(), 0

    def compute() -> None:
        nonlocal started
        started += 1
        while not release.is_set():
            sum(range(1000))

    pool = ThreadPool(50, computing_limit=40)
    calls = [asyncio.ensure_future(pool.run(compute)) for _ in range(40)]
    try:
        await asyncio.sleep(1)  # time for more calls to start, if they could
        assert 2 <= started < 10
    finally:
        release.set()
        await asyncio.gather(*calls)
    assert started == 40
