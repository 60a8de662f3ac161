"""The metrics page."""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_server.store import InMemoryTaskStore, Lease, TaskRecord
from apcore_a2a_server.store.port import Renew
from apcore_a2a_server.store.replicas import Replica
from apcore_a2a_server.store.sqlite import SqliteStore
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from .checking_client import Json
from .inloop import (
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    SyncActionModule,
    echo,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio

FINAL = ("completed", "failed", "canceled", "rejected")
SCRAPER_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)


async def metrics_of(peer: Peer) -> Json:
    response = await peer.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    metrics: Json = response.json()
    return metrics


def families_in(text: str) -> dict[str, Any]:
    """Return the metric families of an OpenMetrics text by name."""
    parse: Any = text_string_to_metric_families
    return {family.name: family for family in parse(text)}


async def until(condition: Callable[[Json], bool], peer: Peer) -> None:
    """Poll the metrics until *condition* returns true."""
    while not condition(await metrics_of(peer)):  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.05)


async def crash(inputs: Inputs, context: Any) -> Any:
    raise ValueError("secret")


async def test_the_metrics_page_is_off_by_default() -> None:
    async with serving({"work": ActionModule(echo)}) as peer:
        assert (await peer.client.get("/metrics")).status_code == 404


async def test_the_metrics_count_every_kind_of_outcome() -> None:
    gate = Gate()
    modules = {
        "work": ActionModule(echo),
        "crash": ActionModule(crash),
        "gate": ActionModule(gate),
        "slow": ActionModule(Gate(), resources={"timeout": 50}),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    async with serving(modules, metrics=True) as peer:
        assert await metrics_of(peer) == {
            "active_tasks": 0,
            "open_streams": 0,
            "busy_threads": 0,
            "stuck_threads": 0,
            "memory_bodies_bytes": 0,
            "memory_running_bytes": 0,
            "memory_stored_bytes": 0,
            "uptime_seconds": pytest.approx(0, abs=5),
            "completed_tasks": 0,
            "failed_tasks": 0,
            "canceled_tasks": 0,
            "rejected_tasks": 0,
            "total_requests": 0,
        }
        await peer.send("work")
        await peer.send("crash")
        await peer.send("slow")
        paused = [(await peer.send("pay")).task["id"] for _ in range(3)]
        await peer.send("pay", peer.part(text="yes"), taskId=paused[0])
        await peer.send("pay", peer.part(text="no"), taskId=paused[1])
        running = [await peer.start("gate") for _ in range(2)]
        await peer.ask("cancel", {"id": running[0]})
        assert (await peer.send("unknown")).code == -32601
        async with peer.subscribe(running[1]) as stream:
            await stream.next()
            metrics_now = await metrics_of(peer)
            assert (metrics_now["active_tasks"], metrics_now["open_streams"]) == (1, 1)
        assert (metrics_now["completed_tasks"], metrics_now["failed_tasks"]) == (2, 2)
        assert (metrics_now["canceled_tasks"], metrics_now["rejected_tasks"]) == (1, 1)
        assert metrics_now["total_requests"] == 14
        gate.opened.set()
        await wait_until(lambda: not peer.agent.engine.runs)
        assert (await metrics_of(peer))["completed_tasks"] == 3


async def test_a_task_that_does_not_exist_yet_is_not_counted() -> None:
    is_saving, may_save = asyncio.Event(), asyncio.Event()

    class HeldStore(InMemoryTaskStore):
        async def save(self, record: TaskRecord) -> None:
            is_saving.set()
            await may_save.wait()
            await super().save(record)

    async with serving({"work": ActionModule(echo)}, metrics=True, task_store=HeldStore()) as peer:
        sending = asyncio.create_task(peer.send("work"))
        await is_saving.wait()
        skills = (await peer.client.get("/apcore/skills")).json()["skills"]
        active_tasks = (await metrics_of(peer))["active_tasks"]
        may_save.set()
        await sending
        assert (skills, active_tasks) == ([], 0)


async def test_a_scraper_gets_openmetrics() -> None:
    async with serving(
        {"work": ActionModule(echo), "crash": ActionModule(crash)}, metrics=True
    ) as peer:
        await peer.send("work")
        await peer.send("crash")
        response = await peer.client.get("/metrics", headers={"accept": SCRAPER_ACCEPT})
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        assert response.text.endswith("# EOF\n")
        families = families_in(response.text)
        tasks = {
            (sample.labels["skill"], sample.labels["state"]): sample.value
            for sample in families["apcore_a2a_tasks"].samples
            if sample.name.endswith("_total")
        }
        assert tasks == {
            **{(skill, "working"): 1 for skill in ("crash", "work")},
            **{("work", state): int(state == "completed") for state in FINAL},
            **{("crash", state): int(state == "failed") for state in FINAL},
        }
        runs = {
            sample.labels["skill"]: sample.value
            for sample in families["apcore_a2a_run_seconds"].samples
            if sample.name.endswith("_count")
        }
        assert runs == {"crash": 1, "work": 1}
        assert {*families} == {
            "apcore_a2a_tasks",
            "apcore_a2a_requests",
            "apcore_a2a_run_seconds",
            "apcore_a2a_active_tasks",
            "apcore_a2a_open_streams",
            "apcore_a2a_busy_threads",
            "apcore_a2a_stuck_threads",
            "apcore_a2a_memory_bodies_bytes",
            "apcore_a2a_memory_running_bytes",
            "apcore_a2a_memory_stored_bytes",
            "apcore_a2a_uptime_seconds",
        }
        plain = await peer.client.get("/metrics", headers={"accept": "text/plain"})
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "apcore_a2a_tasks_total" in plain.text


async def test_clients_cannot_create_labels() -> None:
    async with serving({"work": ActionModule(echo)}, metrics=True) as peer:
        for number in range(50):
            await peer.send("work", contextId=f"private-{number}", messageId=f"private-{number}")
            await peer.client.get(f"/private-{number}")
            await peer.client.request(f"PRIVATE{number}", "/")
        response = await peer.client.get("/metrics", headers={"accept": SCRAPER_ACCEPT})
        assert not re.search("private", response.text, re.IGNORECASE)
        assert len(response.text.splitlines()) < 60


async def test_stuck_threads_are_counted() -> None:
    release, started = threading.Event(), threading.Event()

    def hang(inputs: Inputs, context: Any) -> Inputs:
        started.set()
        release.wait(30)
        return {}

    async with serving({"work": SyncActionModule(hang)}, metrics=True) as peer:
        try:
            task_id = await peer.start()
            await asyncio.to_thread(started.wait)
            await peer.ask("cancel", {"id": task_id})
            assert (await metrics_of(peer))["stuck_threads"] == 1
        finally:
            release.set()
        await wait_until(lambda: peer.agent.setup.threads.stuck == 0)
        assert (await metrics_of(peer))["stuck_threads"] == 0


async def test_the_age_of_leases_grows_while_they_are_not_renewed(tmp_path: Path) -> None:
    may_renew = threading.Event()

    async def renew(leases: Sequence[Lease], replica: Replica) -> Sequence[Lease]:
        while not may_renew.is_set():  # noqa: ASYNC110  # it is set in another event loop
            await asyncio.sleep(0.01)
        return ()

    class SlowRenewalStore(SqliteStore):
        is_shared = True

        @asynccontextmanager
        async def renewing(self) -> AsyncGenerator[Renew]:
            yield renew

    store = SlowRenewalStore(tmp_path / "agent.db", lease_seconds=3)
    async with serving({"work": ActionModule(Gate())}, task_store=store, metrics=True) as peer:
        assert (await metrics_of(peer))["lease_age_seconds"] < 1
        task_id = await peer.start()
        await until(lambda metrics: metrics["lease_age_seconds"] > 1.25, peer)
        may_renew.set()
        await until(lambda metrics: metrics["lease_age_seconds"] < 1, peer)
        await peer.ask("cancel", {"id": task_id})


async def test_a_closed_stream_is_not_counted_as_open() -> None:
    async def source(inputs: Inputs, context: Any) -> Any:
        yield {"n": 1}

    async with serving({"work": StreamModule(source)}, metrics=True) as peer:
        async with peer.stream() as stream:
            await stream.rest()
        await wait_until(lambda: not len(peer.agent.handler.streams))
        metrics_now = await metrics_of(peer)
        assert (metrics_now["open_streams"], metrics_now["completed_tasks"]) == (0, 1)
