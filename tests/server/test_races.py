"""Concurrent operations: each task ends exactly once and nothing leaks."""

import asyncio
import gc
import json
import threading
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from a2a.utils.errors import (
    A2AError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from apcore import Executor
from apcore_a2a_core.data import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core.states import CANCELED, COMPLETED, FAILED, INPUT_REQUIRED, TERMINAL, WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.engine.change import NewState, change
from apcore_a2a_server.engine.clients import Caller, Connection
from apcore_a2a_server.engine.handler import Handler, Request
from apcore_a2a_server.modules.threads import value_thread
from apcore_a2a_server.store import Change, Page, Query, TaskRecord, UnavailableError
from apcore_a2a_server.store.live import LiveTasks
from pydantic import BaseModel, Field

from tests.serving import PATIENCE

from .inloop import (
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    StreamModule,
    always,
    echo,
    gapless,
    registry_of,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio


class SlowStore(InMemoryTaskStore):
    """A store with the latency of a network: a millisecond for each save, read and query."""

    async def save(self, record: TaskRecord) -> None:
        await asyncio.sleep(0.001)
        await super().save(record)
        await asyncio.sleep(0)

    async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
        await asyncio.sleep(0.001)
        return await super().get(task_id, owner)

    async def query(self, query: Query) -> Page:
        await asyncio.sleep(0.001)
        return await super().query(query)


STORES = [InMemoryTaskStore, SlowStore]
ROUNDS = [
    pytest.param(InMemoryTaskStore, 200, id="memory"),
    pytest.param(SlowStore, 50, id="slow"),
    pytest.param(InMemoryTaskStore, 2000, id="memory, often", marks=pytest.mark.soak),
    pytest.param(SlowStore, 500, id="slow, often", marks=pytest.mark.soak),
]
"""Stores, each with a number of rounds."""


def request_of(message: Any, **options: Any) -> Request:
    return Request(message, Caller(), **options)


def send_request(text: str = "hello", wait: bool = True, **members: Any) -> Request:
    """Return a request that sends a message to the skill `work`."""
    message = Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text=text)], **members)
    configuration = SendMessageConfiguration(return_immediately=not wait)
    send = SendMessageRequest(message=message, configuration=configuration)
    send.metadata["skillId"] = "work"
    return request_of(send)


def cancel_request(task_id: str) -> Request:
    return request_of(CancelTaskRequest(id=task_id))


def get_request(task_id: str) -> Request:
    return request_of(GetTaskRequest(id=task_id))


async def events(handler: Handler, task_id: str) -> list[Any]:
    """Wait for the end of a task and return its events."""
    message = SubscribeToTaskRequest(id=task_id)
    with Connection() as connection:
        request = Request(message, Caller(connection=connection), last_event_id=0)
        return [event async for batch in await handler.subscribe(request) for event in batch]


def terminal_states(log: list[Any]) -> list[TaskState]:
    """Return the terminal states among the events."""
    statuses = [
        event.payload.status.state
        for event in log
        if isinstance(event.payload, TaskStatusUpdateEvent)
    ]
    return [state for state in statuses if state in TERMINAL]


async def outcome(operation: Any) -> str:
    """Await a request; return "done" or the name of its error."""
    try:
        await operation
    except A2AError as error:
        return type(error).__name__
    return "done"


class Yielding:
    """An action and a stream that yield to the event loop a few times before they end."""

    def __init__(self) -> None:
        self.steps = 0
        self.runs: Counter[str] = Counter()

    async def __call__(self, inputs: Inputs, context: Any) -> Inputs:
        self.runs[context.services.task_id] += 1
        self.steps = (self.steps + 1) % 12
        for _ in range(self.steps):
            await asyncio.sleep(0)
        return {"done": True}

    async def stream(self, inputs: Inputs, context: Any) -> Any:
        self.runs[context.services.task_id] += 1
        self.steps = (self.steps + 1) % 12
        for number in range(self.steps):
            await asyncio.sleep(0)
            yield {"n": number}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("store", "rounds"), ROUNDS)
async def test_a_task_that_is_canceled_as_it_completes_ends_once(
    store: Any, rounds: int, streams: bool
) -> None:
    action = Yielding()
    module = StreamModule(action.stream) if streams else ActionModule(action)
    async with serving({"work": module}, task_store=store()) as peer:
        handler, before = peer.agent.handler, asyncio.all_tasks()
        end_states: Counter[TaskState] = Counter()

        async def race(number: int) -> None:
            request = send_request(wait=False)
            if streams:
                task_id = (await handler.admit(request, streaming=True)).task_id
            else:
                task_id = (await handler.send(request)).id
            for _ in range(number % 15):
                await asyncio.sleep(0)
            result = await outcome(handler.cancel(cancel_request(task_id)))
            assert result in {"done", "TaskNotCancelableError"}
            log = await events(handler, task_id)
            assert [event.version for event in log] == list(range(1, len(log) + 1))
            (end,) = terminal_states(log)
            assert log[-1].payload.status.state == end
            assert (end == CANCELED) == (result == "done")
            assert (await handler.get(get_request(task_id))).status.state == end
            assert action.runs[task_id] == 1 or (end == CANCELED and not action.runs[task_id])
            end_states[end] += 1

        for first in range(0, rounds, 50):
            await asyncio.gather(*map(race, range(first, first + 50)))
        await wait_until(lambda: asyncio.all_tasks() == before)
        assert not peer.agent.engine.runs
        assert set(end_states) == {CANCELED, COMPLETED}, "the same side has won every race"


@pytest.mark.parametrize("store", STORES)
async def test_a_task_that_is_canceled_at_once_leaks_nothing(store: Any) -> None:
    async with serving({"work": ActionModule(Gate())}, task_store=store()) as peer:
        handler, before = peer.agent.handler, asyncio.all_tasks()

        async def race() -> None:
            task = await handler.send(send_request(wait=False))
            assert await outcome(handler.cancel(cancel_request(task.id))) == "done"

        await asyncio.gather(*(race() for _ in range(100)))
        await wait_until(lambda: asyncio.all_tasks() == before)
        assert not peer.agent.engine.runs


@pytest.mark.parametrize("store", STORES)
async def test_a_task_completes_even_if_its_send_is_cancelled(store: Any) -> None:
    """The number of loop steps before the cancellation varies."""
    async with serving({"work": ActionModule(Yielding())}, task_store=store()) as peer:
        handler, before = peer.agent.handler, asyncio.all_tasks()

        async def race(number: int) -> None:
            send_task = asyncio.create_task(handler.send(send_request()))
            for _ in range(number % 40):
                await asyncio.sleep(0)
            send_task.cancel()
            await asyncio.wait({send_task})

        await asyncio.gather(*map(race, range(120)))
        await wait_until(lambda: asyncio.all_tasks() == before)
        assert not peer.agent.engine.runs
        page = await handler.list_created(request_of(ListTasksRequest(page_size=200)))
        assert {task.status.state for task in page.tasks} == {COMPLETED}


@pytest.mark.parametrize("store", STORES)
async def test_a_task_ends_once_even_if_a_request_to_cancel_it_is_cancelled(store: Any) -> None:
    async with serving({"work": ActionModule(Gate())}, task_store=store()) as peer:
        handler, before = peer.agent.handler, asyncio.all_tasks()

        async def race(number: int) -> None:
            task = await handler.send(send_request(wait=False))
            cancel_task = asyncio.create_task(handler.cancel(cancel_request(task.id)))
            for _ in range(2 + number % 8):
                await asyncio.sleep(0)
            cancel_task.cancel()
            await asyncio.wait({cancel_task})

        await asyncio.gather(*map(race, range(40)))
        page = await handler.list_created(request_of(ListTasksRequest(page_size=200)))
        for task in page.tasks:
            await outcome(handler.cancel(cancel_request(task.id)))
        await wait_until(lambda: asyncio.all_tasks() == before)
        for task in page.tasks:
            log = await events(handler, task.id)
            assert terminal_states(log) == [CANCELED]
            assert [event.version for event in log] == [1, 2, 3]
        assert not peer.agent.engine.runs


async def test_a_cancelled_answer_leaves_no_task_without_a_run() -> None:
    saved, may_return = asyncio.Event(), asyncio.Event()

    class LateStore(InMemoryTaskStore):
        async def save(self, record: TaskRecord) -> None:
            await super().save(record)
            if record.version == 4:  # the save of the answer
                saved.set()
                await may_return.wait()

    store, modules = LateStore(), {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, task_store=store) as peer:
        handler, before = peer.agent.handler, asyncio.all_tasks()
        task = await handler.send(send_request())
        answer_task = asyncio.create_task(handler.send(send_request("yes", task_id=task.id)))
        await saved.wait()
        answer_task.cancel()
        await asyncio.wait({answer_task})
        may_return.set()
        await wait_until(lambda: asyncio.all_tasks() == before)
        (listed,) = (await handler.list_created(request_of(ListTasksRequest()))).tasks
        assert listed.status.state in {COMPLETED, INPUT_REQUIRED}
        assert (await handler.get(get_request(task.id))).status.state == listed.status.state


@pytest.mark.parametrize("answers", [2, 8])
@pytest.mark.parametrize(("store", "rounds"), ROUNDS)
async def test_only_one_of_several_concurrent_answers_resumes_the_task(
    store: Any, rounds: int, answers: int
) -> None:
    calls: Counter[str] = Counter()

    async def count(inputs: Inputs, context: Any) -> Inputs:
        calls[context.data["ext.a2a.task_id"]] += 1
        await asyncio.sleep(0)
        return {}

    modules = {"work": ActionModule(count, annotations=NEEDS_APPROVAL)}
    async with serving(modules, task_store=store()) as peer:
        handler, before = peer.agent.handler, asyncio.all_tasks()

        async def race() -> None:
            task = await handler.send(send_request())
            requests = (handler.send(send_request("yes", task_id=task.id)) for _ in range(answers))
            assert {*await asyncio.gather(*map(outcome, requests))} == {"done"}
            log = await events(handler, task.id)
            assert [event.version for event in log] == list(range(1, len(log) + 1))
            assert terminal_states(log) == [COMPLETED]
            assert calls.pop(task.id) == 1

        for _ in range(rounds // 10):
            await asyncio.gather(*(race() for _ in range(10)))
        assert not calls
        await wait_until(lambda: asyncio.all_tasks() == before)
        assert not peer.agent.engine.runs


@pytest.mark.parametrize("answers", [2, 8])
@pytest.mark.parametrize("store", STORES)
async def test_of_several_concurrent_answers_to_pending_input_all_but_one_are_refused(
    store: Any, answers: int
) -> None:
    async def ask(inputs: Inputs, context: Any) -> Inputs:
        if inputs["text"] == "hello":
            context.services.ask("Which day?", field="text")
        await asyncio.sleep(0)
        return inputs

    async with serving({"work": ActionModule(ask)}, task_store=store()) as peer:
        handler = peer.agent.handler

        async def race() -> None:
            task = await handler.send(send_request())
            requests = [send_request(f"day {n}", task_id=task.id) for n in range(answers)]
            outcomes = await asyncio.gather(
                *(outcome(handler.send(request)) for request in requests)
            )
            assert Counter(outcomes) == {"done": 1, "UnsupportedOperationError": answers - 1}
            ended = await handler.get(get_request(task.id))
            (part,) = ended.artifacts[0].parts
            assert part.data["text"] == f"day {outcomes.index('done')}"

        await asyncio.gather(*(race() for _ in range(10)))


async def test_a_refused_answer_sets_no_webhook() -> None:
    async def ask(inputs: Inputs, context: Any) -> Inputs:
        if inputs["text"] == "hello":
            context.services.ask("Which day?", field="text")
        return inputs

    async with serving({"work": ActionModule(ask)}, push_notifications=True) as peer:
        handler = peer.agent.handler
        task = await handler.send(send_request())
        first, second = (send_request("Friday", task_id=task.id) for _ in range(2))
        config = TaskPushNotificationConfig(url="https://1.1.1.1/hook")
        second.params.configuration.task_push_notification_config = config
        answers = outcome(handler.send(first)), outcome(handler.send(second))
        assert [*await asyncio.gather(*answers)] == ["done", "UnsupportedOperationError"]
        assert not await peer.agent.setup.tasks.store.webhooks(task.id)


async def test_a_stale_record_does_not_revive_a_task() -> None:
    """After a restart, a paused task is loaded from a store that may be slow."""
    was_read, may_return = asyncio.Event(), asyncio.Event()

    class LateStore(InMemoryTaskStore):
        async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
            record = await super().get(task_id, owner)
            if not was_read.is_set():
                was_read.set()
                await may_return.wait()
            return record

    store = LateStore()
    status = TaskStatus(state=INPUT_REQUIRED)
    await store.save(TaskRecord(Task(id="t", context_id="c", status=status), version=3))
    tasks = LiveTasks(store)
    opening = asyncio.create_task(tasks.open("t"))
    await was_read.wait()
    await change(tasks, "t", NewState(CANCELED), expect={INPUT_REQUIRED})
    may_return.set()
    assert await opening is None


@pytest.mark.parametrize("store", STORES)
async def test_a_concurrent_yes_no_and_cancel_have_one_outcome(store: Any) -> None:
    calls: Counter[str] = Counter()

    async def count(inputs: Inputs, context: Any) -> Inputs:
        calls[context.data["ext.a2a.task_id"]] += 1
        return {}

    modules = {"work": ActionModule(count, annotations=NEEDS_APPROVAL)}
    async with serving(modules, task_store=store()) as peer:
        handler = peer.agent.handler

        async def race(number: int) -> None:
            task = await handler.send(send_request())
            words = ["yes", "no"] if number % 2 else ["no", "yes"]
            answers = [outcome(handler.send(send_request(word, task_id=task.id))) for word in words]
            requests = [*answers, outcome(handler.cancel(cancel_request(task.id)))]
            await asyncio.gather(*(requests if number % 3 else reversed(requests)))
            await wait_until(lambda: task.id not in peer.agent.engine.runs)
            log = await events(handler, task.id)
            assert [event.version for event in log] == list(range(1, len(log) + 1))
            (end,) = terminal_states(log)
            assert calls[task.id] == (end == COMPLETED) or end == CANCELED

        await asyncio.gather(*map(race, range(30)))


@pytest.mark.parametrize("store", STORES)
async def test_messages_to_a_working_task_are_refused_and_change_nothing(store: Any) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, task_store=store()) as peer:
        handler = peer.agent.handler
        task = await handler.send(send_request(wait=False))
        for request in (send_request(task_id=task.id), send_request("yes", task_id=task.id)):
            with pytest.raises(UnsupportedOperationError):
                await handler.send(request)
        with pytest.raises(UnsupportedOperationError):
            await handler.stream(send_request(task_id=task.id))
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)
        assert len(gate.calls) == 1
        assert [event.version for event in await events(handler, task.id)] == [1, 2, 3, 4]


@pytest.mark.parametrize("store", STORES)
async def test_a_hundred_tasks_at_once_do_not_get_mixed_up(store: Any) -> None:
    async def add_task_id(inputs: Inputs, context: Any) -> Inputs:
        await asyncio.sleep(0.005)
        return {**inputs, "task": context.data["ext.a2a.task_id"]}

    async with serving({"work": ActionModule(add_task_id)}, task_store=store()) as peer:

        async def check_output(number: int) -> None:
            task = (await peer.send("work", peer.part(data={"n": number}))).task
            assert task["artifacts"][0]["parts"][0]["data"] == {"n": number, "task": task["id"]}

        await asyncio.gather(*map(check_output, range(100)))
        assert not peer.agent.engine.runs


@pytest.mark.parametrize("store", STORES)
async def test_readers_that_subscribe_at_any_time_get_every_event_once(store: Any) -> None:
    async with serving({"work": StreamModule(Yielding().stream)}, task_store=store()) as peer:
        handler = peer.agent.handler

        async def read(task_id: str, steps: int) -> None:
            for _ in range(steps):
                await asyncio.sleep(0)
            log = await events(handler, task_id)
            assert [event.version for event in log] == list(range(1, len(log) + 1))
            assert terminal_states(log) == [COMPLETED]

        for _ in range(12):
            ticket = await handler.admit(send_request(), streaming=True)
            await asyncio.gather(*(read(ticket.task_id, steps) for steps in range(12)))


async def test_subscribers_over_http_miss_no_event_when_the_store_is_slow() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, task_store=SlowStore()) as peer:
        async with peer.stream() as first:
            task_id = (await first.next()).body["id"]
            async with peer.subscribe(task_id, 1) as second:
                gate.opened.set()
                frames = await first.rest()
                assert await second.rest() == frames
        assert gapless(frames, 2)


@pytest.mark.parametrize("store", STORES)
async def test_a_task_that_completes_during_shutdown_ends_once(store: Any) -> None:
    async with serving({"work": ActionModule(Yielding())}, task_store=store()) as peer:
        handler, before = peer.agent.handler, asyncio.all_tasks()
        tasks = await asyncio.gather(*(handler.send(send_request(wait=False)) for _ in range(60)))
        await peer.agent.engine.drain(0)
        await wait_until(lambda: asyncio.all_tasks() == before)
        assert not peer.agent.engine.runs
        for task in tasks:
            assert len(terminal_states(await events(handler, task.id))) == 1


async def test_a_task_that_is_stored_during_shutdown_ends() -> None:
    saving = asyncio.Event()

    class LateStore(InMemoryTaskStore):
        async def save(self, record: TaskRecord) -> None:
            saving.set()
            await asyncio.sleep(0.02)
            await super().save(record)

    store = LateStore()
    async with serving({"work": ActionModule(Gate())}, task_store=store) as peer:
        before = asyncio.all_tasks()
        send_task = asyncio.create_task(outcome(peer.agent.handler.send(send_request(wait=False))))
        await saving.wait()
        await peer.agent.engine.drain(0)
        await send_task
        page = await store.query(Query(""))
        assert WORKING not in {record.task.status.state for record in page.records}
        assert page.records
        await wait_until(lambda: asyncio.all_tasks() == before)


@pytest.mark.parametrize("store", STORES)
async def test_cancels_of_unknown_and_ended_tasks_have_different_errors(store: Any) -> None:
    async with serving({"work": always({})}, task_store=store()) as peer:
        handler = peer.agent.handler
        task = await handler.send(send_request())
        with pytest.raises(TaskNotCancelableError):
            await handler.cancel(cancel_request(task.id))
        with pytest.raises(TaskNotFoundError):
            await handler.cancel(cancel_request("unknown"))


async def test_two_apps_do_not_see_each_others_tasks() -> None:
    gate = Gate()
    async with (
        serving({"work": ActionModule(gate)}) as first,
        serving({"work": ActionModule(echo)}) as second,
    ):
        task_id = await first.start()
        assert (await second.ask("get", {"id": task_id})).code == -32001
        assert (await second.ask("cancel", {"id": task_id})).code == -32001
        gate.opened.set()
        await wait_until(lambda: not first.agent.engine.runs)


class EarlyStore(InMemoryTaskStore):
    """A store that lists a task before its save returns."""

    async def save(self, record: TaskRecord) -> None:
        await super().save(record)
        await asyncio.sleep(0.01)


async def test_a_task_that_is_listed_before_its_save_returns_ends_once() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, task_store=EarlyStore()) as peer:
        handler, before = peer.agent.handler, asyncio.all_tasks()
        send_task = asyncio.create_task(handler.send(send_request(wait=False, context_id="c")))
        list_request = request_of(ListTasksRequest(context_id="c"))
        while not (tasks := (await handler.list_created(list_request)).tasks):  # noqa: ASYNC110  # no event
            await asyncio.sleep(0)
        canceled = await handler.cancel(cancel_request(tasks[0].id))
        assert canceled.status.state == CANCELED
        await asyncio.wait({send_task})
        log = await events(handler, canceled.id)
        assert [event.version for event in log] == list(range(1, len(log) + 1))
        assert terminal_states(log) == [CANCELED]
        assert (await handler.get(get_request(canceled.id))).status.state == CANCELED
        await wait_until(
            lambda: not peer.agent.engine.runs and asyncio.all_tasks() <= before | {send_task}
        )


class Guests(BaseModel):
    text: str
    number: int = Field(default=0, le=8)


class HeldValidation(Executor):
    """An executor whose validation of the number 9 waits until the test releases it."""

    reached = threading.Event()
    release = threading.Event()

    def validate(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        if inputs.get("number") == 9:
            self.reached.set()
            assert self.release.wait(PATIENCE)
        return super().validate(module_id, inputs, context)


async def test_an_answer_is_accepted_after_a_refused_one() -> None:
    async def work(inputs: Inputs, context: Any) -> Inputs:
        if not inputs.get("number"):
            context.services.ask("How many?", field="number")
        return inputs

    registry = registry_of({"work": ActionModule(work, input_schema=Guests)})
    with closing(HeldValidation(registry)) as executor:
        async with serving(executor) as peer:
            handler, before = peer.agent.handler, asyncio.all_tasks()
            task = await handler.send(send_request())
            refused_answer = asyncio.create_task(handler.send(send_request("9", task_id=task.id)))
            await wait_until(executor.reached.is_set)
            valid_answer = asyncio.create_task(handler.send(send_request("5", task_id=task.id)))
            for _ in range(20):  # by then, the valid answer waits for the refused one
                await asyncio.sleep(0)
            executor.release.set()
            ended_task, _ = await asyncio.gather(valid_answer, refused_answer)
            assert ended_task.status.state == COMPLETED
            assert ended_task.artifacts[0].parts[0].data == {"text": "hello", "number": 5}
            await wait_until(lambda: asyncio.all_tasks() == before)


@pytest.mark.parametrize("as_text", [False, True])
async def test_large_messages_and_answers_are_read_outside_the_event_loop(as_text: bool) -> None:
    """They have more members than inputs may have, so only reading them takes time."""

    async def work(inputs: Inputs, context: Any) -> None:
        context.services.ask("Which?", schema={"properties": {"a": {}, "b": {}}})

    members = {f"n{number}": number for number in range(6000)}
    part = Part(text=json.dumps(members)) if as_text else Part(data=members)
    release = threading.Event()
    async with serving({"work": ActionModule(work, input_schema=Guests)}) as peer:
        handler = peer.agent.handler
        task = await handler.send(send_request("hello"))
        for task_id in ("", task.id):
            release.clear()
            request = send_request(task_id=task_id)
            request.params.message.parts = [part]
            blocker = asyncio.create_task(value_thread.call(release.wait, PATIENCE))
            send_task = asyncio.create_task(outcome(handler.send(request)))
            await wait_until(lambda: value_thread.pending == 2)
            release.set()
            assert await blocker
            assert await send_task == ("done" if as_text else "InvalidParamsError")


class GoneAtShutdown(InMemoryTaskStore):
    """A store that is unavailable when the failure of a task is to be saved."""

    async def change(self, change: Change) -> Any:
        if change.record.task.status.state == FAILED:
            raise UnavailableError
        return await super().change(change)


async def test_a_shutdown_with_a_failing_store_leaves_no_exception_unretrieved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}, task_store=GoneAtShutdown()) as peer:
        await peer.start()
        await gate.reached.wait()
    gc.collect()
    assert [record.name for record in caplog.records if record.name == "asyncio"] == []
