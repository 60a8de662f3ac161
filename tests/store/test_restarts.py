"""Tasks whose agent restarts often, or whose replicas have different clocks."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from apcore import ModuleAnnotations
from apcore_a2a_core import InputRequiredError
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.sqlite import SqliteStore

from tests.server.inloop import (
    ActionModule,
    Gate,
    Peer,
    SyncActionModule,
    echo,
    serving,
    wait_until,
)
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs

from .postgresql import Database

pytestmark = pytest.mark.anyio

REPEATABLE = ModuleAnnotations(idempotent=True)
PAUSES = (0.3, 0.6, 0.9)
TWO_HOURS = 7200.0  # seconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@asynccontextmanager
async def agent(
    path: Path, module: object, pauses: Any = PAUSES, **options: Any
) -> AsyncIterator[Peer]:
    """Serve a module with its tasks in a file; release them at the end."""
    store = SqliteStore(path)
    store.restart_pauses = pauses
    async with serving({"work": module}, task_store=store, **options) as peer:
        yield peer


def text_of(task: Any) -> str:
    text: str = task["status"]["message"]["parts"][0]["text"]
    return text


def restart_counts(path: Path) -> list[int]:
    """Return how often each task was started again."""
    with closing(sqlite3.connect(path)) as file:
        return sorted(count for (count,) in file.execute("SELECT attempts FROM tasks"))


async def test_quick_restarts_of_the_agent_do_not_use_up_the_starts_of_a_task(path: Path) -> None:
    gate = Gate()
    async with agent(path, ActionModule(gate, annotations=REPEATABLE), (60,)) as peer:
        task_id = await peer.start()
        await gate.reached.wait()
    for _ in range(5):  # within the pause, so that the module is not started
        async with agent(path, ActionModule(gate, annotations=REPEATABLE), (60,)) as peer:
            assert await peer.state(task_id) == "working"
    assert len(gate.calls) == 1
    gate.opened.set()
    async with agent(path, ActionModule(gate, annotations=REPEATABLE), (0,)) as peer:
        await peer.until(task_id, "completed")
    assert len(gate.calls) == 2


async def test_a_module_is_started_four_times_with_pauses_that_grow(path: Path) -> None:
    start_times: list[float] = []
    task_id = ""
    for _ in range(4):
        gate = Gate()
        async with agent(path, ActionModule(gate, annotations=REPEATABLE)) as peer:
            task_id = task_id or await peer.start()
            await gate.reached.wait()
            start_times.append(time.time())
            status_message = (await peer.get(task_id))["status"].get("message")
            assert (status_message is None) == (len(start_times) == 1)
    gaps = [later - earlier for earlier, later in pairwise(start_times)]
    assert all(gap > pause / 2 for gap, pause in zip(gaps, PAUSES, strict=True)), gaps
    async with agent(path, ActionModule(Gate(), annotations=REPEATABLE)) as peer:
        task = await peer.until(task_id, "failed")
    text = "Replica lost while running: the task was started 4 times, which is the limit"
    assert text_of(task) == text


async def test_waiting_for_a_thread_does_not_count_as_a_start_of_the_module(path: Path) -> None:
    released, started = threading.Event(), list[Inputs]()

    def wait(inputs: Inputs, context: Any) -> Inputs:
        started.append(inputs)
        released.wait()
        return inputs

    def has_started(times: int) -> bool:
        return len(started) == times

    module = SyncActionModule(wait, annotations=REPEATABLE)
    try:
        async with agent(path, module, (0, 0, 0), max_threads=1) as peer:
            task_ids = [await peer.start(), await peer.start()]
            await wait_until(partial(has_started, 1))
        assert restart_counts(path) == [0, 0]
        for runs in (1, 2):
            async with agent(path, module, (0, 0, 0), max_threads=1):
                await wait_until(partial(has_started, 1 + runs))
            assert sum(restart_counts(path)) == runs
    finally:
        released.set()
    async with agent(path, module, (0, 0, 0), max_threads=1) as peer:
        for task_id in task_ids:
            await peer.until(task_id, "completed")


async def test_a_takeover_that_is_refused_before_its_module_starts_fails_the_task(
    path: Path,
) -> None:
    gate = Gate()
    async with agent(path, ActionModule(gate, annotations=REPEATABLE), (0,)) as peer:
        task_id = await peer.start()
        await gate.reached.wait()
    stricter_schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    }
    stricter = ActionModule(gate, annotations=REPEATABLE, input_schema=stricter_schema)
    async with agent(path, stricter, (0,)) as peer:
        task = await peer.until(task_id, "failed")
    assert len(gate.calls) == 1
    assert "Not admitted" not in text_of(task)


@asynccontextmanager
async def replica(server: Database, module: object, **options: Any) -> AsyncIterator[Peer]:
    """Serve a module with its tasks in a database."""
    store = PostgresStore(server.url)
    store.restart_pauses = (0, 0, 0)
    async with serving({"work": module}, task_store=store, metrics=True, **options) as peer:
        yield peer


async def metric(peer: Peer, name: str) -> float:
    response = await peer.client.get("/metrics", headers={"accept": "text/plain"})
    values = [line.split()[-1] for line in response.text.splitlines() if line.startswith(name)]
    return float(values[0]) if values else 0


def ending_late(gate: Gate, released: asyncio.Event) -> Callable[[Inputs, Any], Awaitable[Inputs]]:
    """Return an action that passes *gate*; if canceled there, it ends once it is released."""

    async def act(inputs: Inputs, context: Any) -> Inputs:
        try:
            await gate(inputs, context)
        except asyncio.CancelledError:
            await released.wait()  # the module takes its time to end
        return inputs

    return act


async def test_the_metrics_are_correct_after_another_replica_has_taken_over_a_task(
    server: Database,
) -> None:
    server.clear()
    released, gate = asyncio.Event(), Gate()

    stubborn = ending_late(gate, released)
    running = "apcore_a2a_active_tasks"
    entered = 'apcore_a2a_tasks_total{skill="work",state="working"}'
    ended = 'apcore_a2a_tasks_total{skill="work",state="completed"}'
    other_gate = Gate()
    async with replica(server, ActionModule(stubborn, annotations=REPEATABLE)) as loser:
        task_id = await loser.start()
        await gate.reached.wait()
        async with replica(server, ActionModule(other_gate, annotations=REPEATABLE)) as winner:
            store = loser.agent.setup.tasks.store
            await store.release(loser.agent.setup.tasks.leases())
            await gate.canceled.wait()
            await other_gate.reached.wait()
            assert [await metric(peer, running) for peer in (loser, winner)] == [0, 1]
            assert [await metric(peer, entered) for peer in (loser, winner)] == [1, 1]
            other_gate.opened.set()
            await winner.until(task_id, "completed")
            assert [await metric(peer, ended) for peer in (loser, winner)] == [0, 1]
            assert [await metric(peer, running) for peer in (loser, winner)] == [0, 0]
        released.set()


async def ask(inputs: Inputs, context: Any) -> Inputs:
    if inputs.get("text") != "blue":
        raise InputRequiredError("Which color?")
    return inputs


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    """Put the clock of this process *ahead* seconds ahead of the database's clock."""
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 + ahead)


@pytest.mark.parametrize("ahead", [-TWO_HOURS, TWO_HOURS])
async def test_an_answer_is_accepted_by_a_replica_with_another_clock(
    server: Database, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    server.clear()
    async with (
        replica(server, ActionModule(ask)) as first,
        replica(server, ActionModule(ask)) as second,
    ):
        set_clock(monkeypatch, ahead)
        task_id = await first.start("work", first.wire.part(data={"text": "?"}))
        await first.until(task_id, "input-required")
        await asyncio.sleep(1.5)  # tasks with expired input are claimed once a second
        set_clock(monkeypatch, -ahead)
        assert await second.state(task_id) == "input-required"
        answer = await second.send("work", second.wire.part(data={"text": "blue"}), taskId=task_id)
        assert answer.state == "completed", answer.body
        await first.until(task_id, "completed")


async def test_a_question_expires_by_the_clock_of_the_database(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.clear()
    set_clock(monkeypatch, TWO_HOURS)
    async with replica(server, ActionModule(ask), input_timeout=1) as first:
        task_id = await first.start("work", first.wire.part(data={"text": "?"}))
        await first.until(task_id, "input-required")
    set_clock(monkeypatch, -TWO_HOURS)
    async with replica(server, ActionModule(echo)) as second:
        task = await second.until(task_id, "failed")
    assert "expired" in text_of(task)


async def test_an_answer_is_accepted_by_a_replica_whose_own_run_is_still_stopping(
    server: Database,
) -> None:
    server.clear()
    released, gate = asyncio.Event(), Gate()

    stubborn = ending_late(gate, released)

    async def act(inputs: Inputs, context: Any) -> Inputs:
        return inputs if inputs.get("text") == "blue" else await stubborn(inputs, context)

    async with replica(server, ActionModule(act, annotations=REPEATABLE)) as loser:
        assert loser.agent.keeper is not None
        loser.agent.keeper.claims_orphans = False
        task_id = await loser.start("work", loser.wire.part(data={"text": "?"}))
        await gate.reached.wait()
        async with replica(server, ActionModule(ask, annotations=REPEATABLE)):
            store = loser.agent.setup.tasks.store
            await store.release(loser.agent.setup.tasks.leases())
            await gate.canceled.wait()
            await loser.until(task_id, "input-required")
            part = loser.wire.part(data={"text": "blue"})
            answer = await loser.send("work", part, taskId=task_id)
            assert answer.state == "completed", answer.body
        released.set()
