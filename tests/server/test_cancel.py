"""Tasks that end early: canceled by their client, or timed out."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
from apcore import Config, Executor
from apcore.cancel import ExecutionCancelledError
from apcore_a2a_core.data import Message, Task, TaskState, TaskStatus
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.store import TaskRecord

from .checking_client import Json, state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    StreamModule,
    SyncActionModule,
    always,
    content_of,
    contents,
    echo,
    registry_of,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]


def status_text_of(task: Json) -> str:
    """Return the text of the task's status message."""
    text: str = task["status"]["message"]["parts"][0]["text"]
    return text


class BlockingAction:
    """A synchronous action that blocks until the test ends it."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.end = threading.Event()
        self.ended = threading.Event()
        self.token: Any = None

    def __call__(self, inputs: Inputs, context: Any) -> Inputs:
        self.token = context.cancel_token
        self.started.set()
        self.end.wait(20)
        self.ended.set()
        return {"done": True}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_canceling_a_working_task_cancels_its_module(dialect: str) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, dialect) as peer:
        task_id = await peer.start()
        await gate.reached.wait()
        answer = await peer.ask("cancel", {"id": task_id})
        assert (answer.state, status_text_of(answer.task)) == ("canceled", "Canceled by client")
        await gate.canceled.wait()
        assert gate.contexts[0].cancel_token.is_cancelled
        assert "artifacts" not in answer.task
        assert await peer.get(task_id) == answer.task
        await wait_until(lambda: not peer.agent.engine.runs)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_paused_task_can_be_canceled(dialect: str) -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, dialect) as peer:
        task_id = (await peer.send()).task["id"]
        answer = await peer.ask("cancel", {"id": task_id})
        assert (answer.state, status_text_of(answer.task)) == ("canceled", "Canceled by client")
        late_answer = await peer.send("work", peer.part(text="yes"), taskId=task_id)
        assert late_answer.code == -32004


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_submitted_task_in_the_store_can_be_canceled(dialect: str) -> None:
    store, message = InMemoryTaskStore(), Message(message_id="m", task_id="t", context_id="c")
    status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
    task = Task(id="t", context_id="c", status=status, history=[message])
    await store.save(TaskRecord(task, "", "work", 1))
    async with serving({"work": always({})}, dialect, task_store=store) as peer:
        answer = await peer.ask("cancel", {"id": "t"})
        assert (answer.state, status_text_of(answer.task)) == ("canceled", "Canceled by client")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("end", ["completed", "failed", "canceled", "rejected"])
async def test_a_task_that_has_ended_is_not_cancelable(dialect: str, end: str) -> None:
    async def fails(inputs: Inputs, context: Any) -> None:
        raise ValueError

    modules: dict[str, object] = {"completed": always({}), "failed": ActionModule(fails)}
    modules |= dict.fromkeys(
        ("canceled", "rejected"), ActionModule(echo, annotations=NEEDS_APPROVAL)
    )
    async with serving(modules, dialect) as peer:
        task_id = (await peer.send(end)).task["id"]
        if end == "canceled":
            await peer.ask("cancel", {"id": task_id})
        if end == "rejected":
            await peer.send(end, peer.part(text="no"), taskId=task_id)
        before = await peer.get(task_id)
        answer = await peer.ask("cancel", {"id": task_id})
        assert answer.code == -32002
        assert answer.error is not None
        assert answer.error["message"] == f"Task is not cancelable: current state is {end}"
        assert await peer.get(task_id) == before


async def test_a_canceled_synchronous_module_keeps_running_and_its_result_is_discarded() -> None:
    action = BlockingAction()
    async with serving({"work": SyncActionModule(action)}) as peer:
        task_id = await peer.start()
        await asyncio.to_thread(action.started.wait)
        try:
            answer = await peer.ask("cancel", {"id": task_id})
            assert answer.state == "canceled"
            assert action.token.is_cancelled
            await wait_until(lambda: not peer.agent.engine.runs)
            assert not action.ended.is_set()
        finally:
            action.end.set()
        await asyncio.to_thread(action.ended.wait)
        await asyncio.sleep(0.02)
        assert await peer.get(task_id) == answer.task


async def test_a_module_that_checks_its_cancel_token_ends_as_canceled() -> None:
    async def abort(inputs: Inputs, context: Any) -> None:
        context.cancel_token.cancel()
        context.cancel_token.check()

    async with serving({"work": ActionModule(abort)}) as peer:
        assert (await peer.send()).state == "canceled"


async def test_a_module_that_raises_apcores_cancellation_ends_as_canceled() -> None:
    async def abort(inputs: Inputs, context: Any) -> None:
        raise ExecutionCancelledError

    async with serving({"work": ActionModule(abort)}) as peer:
        assert (await peer.send()).state == "canceled"


async def test_the_task_of_a_module_that_swallows_its_cancellation_stays_canceled() -> None:
    reached, ended = asyncio.Event(), asyncio.Event()

    async def swallow_cancellation(inputs: Inputs, context: Any) -> Inputs:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
        return {"done": True}

    async with (
        serving({"work": ActionModule(swallow_cancellation)}) as peer,
        peer.stream() as stream,
    ):
        task_id = (await stream.next()).body["id"]
        await reached.wait()
        answer = await peer.ask("cancel", {"id": task_id})
        await ended.wait()
        await wait_until(lambda: not peer.agent.engine.runs)
        assert await peer.get(task_id) == answer.task
        assert [str(frame) for frame in await stream.rest()] == [
            "status working",
            "status canceled",
        ]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_ends_with_the_cancellation(dialect: str) -> None:
    closed = asyncio.Event()

    async def endless(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        try:
            yield {"n": 0}
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with serving({"work": StreamModule(endless)}, dialect) as peer, peer.stream() as stream:
        first_frames = [await stream.next() for _ in range(3)]
        task_id = first_frames[0].body["id"]
        answer = await peer.ask("cancel", {"id": task_id})
        (end,) = await stream.rest()
        assert (str(end), end.id, end.status_text) == ("status canceled", 4, "Canceled by client")
        await closed.wait()
        assert contents(answer.task) == [{"n": 0}]
        async with peer.subscribe(task_id, 3) as resumed:
            assert await resumed.rest() == [end]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_only_one_of_several_cancellations_succeeds(dialect: str) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, dialect) as peer:
        task_id = await peer.start()
        cancels = [peer.ask("cancel", {"id": task_id}) for _ in range(8)]
        answers = await asyncio.gather(*cancels)
        assert sorted(str(answer.code) for answer in answers) == ["-32002"] * 7 + ["None"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_that_takes_too_long_fails(dialect: str) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, dialect, execution_timeout=0.05) as peer:
        task = (await peer.send()).task
        assert (state_of(task), status_text_of(task)) == ("failed", "Execution timed out")
        detail = content_of(task["status"]["message"]["parts"][1])
        assert (detail["code"], detail["data"]["type"]) == (-32603, "ModuleTimeoutError")
        await gate.canceled.wait()
        await wait_until(lambda: not peer.agent.engine.runs)


async def test_a_synchronous_module_that_takes_too_long_fails() -> None:
    action = BlockingAction()
    async with serving({"work": SyncActionModule(action)}, execution_timeout=0.05) as peer:
        try:
            task = (await peer.send()).task
            assert (state_of(task), status_text_of(task)) == ("failed", "Execution timed out")
        finally:
            action.end.set()


@pytest.mark.clock
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_that_stalls_fails(dialect: str) -> None:
    async def stalls(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        yield {"n": 0}
        await asyncio.Event().wait()

    modules = {"work": StreamModule(stalls)}
    async with serving(modules, dialect, execution_timeout=1) as peer, peer.stream() as stream:
        frames = await stream.rest()
        assert [str(frame) for frame in frames][2:] == ["artifact", "status failed"]
        assert frames[-1].status_text == "Execution timed out"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_modules_own_timeout_applies_when_it_is_shorter(streams: bool) -> None:
    gate, closed = Gate(), asyncio.Event()

    async def stalls(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        try:
            yield await gate(inputs, context)
        finally:
            closed.set()

    limits = {"timeout": 50}  # milliseconds
    module = (
        StreamModule(stalls, resources=limits) if streams else ActionModule(gate, resources=limits)
    )
    async with serving({"work": module}) as peer, peer.stream() as stream:
        frames = await stream.rest()
        assert (str(frames[-1]), frames[-1].status_text) == ("status failed", "Execution timed out")
        await gate.canceled.wait()
        if streams:
            await closed.wait()


async def test_a_modules_own_timeout_does_not_extend_the_servers() -> None:
    module = ActionModule(Gate(), resources={"timeout": 60_000})
    async with serving({"work": module}, execution_timeout=0.05) as peer:
        assert status_text_of((await peer.send()).task) == "Execution timed out"


async def test_the_timeout_of_a_nested_module_applies() -> None:
    async def calls(inputs: Inputs, context: Any) -> Any:
        return await context.executor.call_async("inner", {}, context)

    modules = {
        "work": ActionModule(calls),
        "inner": ActionModule(Gate(), resources={"timeout": 30}),
    }
    async with serving(modules) as peer:
        assert (await peer.send()).state == "failed"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_timeout_error_raised_by_the_module_is_an_internal_error(streams: bool) -> None:
    async def abort(inputs: Inputs, context: Any) -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    async def abort_in_stream(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        yield {"n": 0}
        raise TimeoutError

    module = StreamModule(abort_in_stream) if streams else ActionModule(abort)
    async with serving({"work": module}) as peer, peer.stream() as stream:
        end = (await stream.rest())[-1]
        assert (str(end), end.status_text) == ("status failed", "Internal error")


@pytest.mark.parametrize("limit", [5, 1000])
async def test_the_context_has_the_servers_deadline(limit: float) -> None:
    gate = Gate()
    gate.opened.set()
    async with serving({"work": ActionModule(gate)}, execution_timeout=limit) as peer:
        assert (await peer.send()).state == "completed"
    remaining = gate.contexts[0].global_deadline - time.time()
    assert limit - 5 < remaining <= limit


async def test_apcores_default_timeout_does_not_shorten_the_servers() -> None:
    async def take_60_ms(inputs: Inputs, context: Any) -> Inputs:
        await asyncio.sleep(0.06)
        return {"done": True}

    config = Config({"executor": {"default_timeout": 20, "global_timeout": 30}})
    modules = registry_of({"work": ActionModule(take_60_ms)})
    with closing(Executor(modules, config=config)) as executor:
        async with serving(executor) as peer:
            assert (await peer.send()).data == {"done": True}


async def test_paused_time_does_not_count_towards_the_timeout() -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, execution_timeout=0.5) as peer:
        task_id = (await peer.send()).task["id"]
        await asyncio.sleep(0.6)
        answer = await peer.send("work", peer.part(text="yes"), taskId=task_id)
        assert answer.state == "completed"
