"""The page of figures for operators."""

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_server.store import Lease
from apcore_a2a_server.store.sqlite import SqliteStore
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from .asking import Json
from .inloop import (
    NEEDS_APPROVAL,
    Does,
    DoesInThread,
    Gate,
    Peer,
    Streams,
    give_back,
    serving,
    true,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio

SCRAPER = (
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
)


async def figures(peer: Peer) -> Json:
    response = await peer.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    found: Json = response.json()
    return found


def families_in(text: str) -> dict[str, Any]:
    """The families of an OpenMetrics text, by name."""
    parse: Any = text_string_to_metric_families
    return {family.name: family for family in parse(text)}


async def until(holds: Callable[[Json], bool], peer: Peer) -> None:
    """Wait for figures that are so."""
    while not holds(await figures(peer)):  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.05)


async def crash(inputs: Inputs, context: Any) -> Any:
    raise ValueError("secret")


async def test_there_is_no_such_page_unless_it_is_asked_for() -> None:
    async with serving({"work": Does(give_back)}) as peer:
        assert (await peer.client.get("/metrics")).status_code == 404


async def test_the_figures_are_right_after_whatever_happens() -> None:
    gate = Gate()
    modules = {
        "work": Does(give_back),
        "crash": Does(crash),
        "gate": Does(gate),
        "slow": Does(Gate(), resources={"timeout": 50}),
        "pay": Does(give_back, annotations=NEEDS_APPROVAL),
    }
    async with serving(modules, metrics=True) as peer:
        assert await figures(peer) == {
            "active_tasks": 0,
            "open_streams": 0,
            "stuck_threads": 0,
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
            found = await figures(peer)
            assert (found["active_tasks"], found["open_streams"]) == (1, 1)
        assert (found["completed_tasks"], found["failed_tasks"]) == (2, 2)
        assert (found["canceled_tasks"], found["rejected_tasks"]) == (1, 1)
        assert found["total_requests"] == 14
        gate.opened.set()
        await true(lambda: not peer.served.engine.runs)
        assert (await figures(peer))["completed_tasks"] == 3


async def test_a_scraper_reads_openmetrics() -> None:
    async with serving({"work": Does(give_back), "crash": Does(crash)}, metrics=True) as peer:
        await peer.send("work")
        await peer.send("crash")
        response = await peer.client.get("/metrics", headers={"accept": SCRAPER})
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        assert response.text.endswith("# EOF\n")
        families = families_in(response.text)
        tasks = {
            sample.labels["state"]: sample.value
            for sample in families["apcore_a2a_tasks"].samples
            if sample.name.endswith("_total")
        }
        assert tasks == {
            "working": 2,
            "completed": 1,
            "failed": 1,
            "canceled": 0,
            "rejected": 0,
        }
        runs = {sample.name: sample.value for sample in families["apcore_a2a_run_seconds"].samples}
        assert runs["apcore_a2a_run_seconds_count"] == 2
        assert {*families} == {
            "apcore_a2a_tasks",
            "apcore_a2a_requests",
            "apcore_a2a_run_seconds",
            "apcore_a2a_active_tasks",
            "apcore_a2a_open_streams",
            "apcore_a2a_stuck_threads",
            "apcore_a2a_uptime_seconds",
        }
        plain = await peer.client.get("/metrics", headers={"accept": "text/plain"})
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "apcore_a2a_tasks_total" in plain.text


async def test_clients_can_not_make_labels() -> None:
    async with serving({"work": Does(give_back)}, metrics=True) as peer:
        for number in range(50):
            await peer.send("work", contextId=f"private-{number}", messageId=f"private-{number}")
            await peer.client.get(f"/private-{number}")
            await peer.client.request(f"PRIVATE{number}", "/")
        response = await peer.client.get("/metrics", headers={"accept": SCRAPER})
        assert not re.search("private", response.text, re.IGNORECASE)
        assert len(response.text.splitlines()) < 60


async def test_a_stuck_thread_is_shown() -> None:
    release, started = threading.Event(), threading.Event()

    def hang(inputs: Inputs, context: Any) -> Inputs:
        started.set()
        release.wait(30)
        return {}

    async with serving({"work": DoesInThread(hang)}, metrics=True) as peer:
        try:
            task_id = await peer.start()
            await asyncio.to_thread(started.wait)
            await peer.ask("cancel", {"id": task_id})
            assert (await figures(peer))["stuck_threads"] == 1
        finally:
            release.set()
        await true(lambda: peer.served.setup.threads.stuck == 0)
        assert (await figures(peer))["stuck_threads"] == 0


async def test_leases_that_are_not_renewed_grow_old(tmp_path: Path) -> None:
    class Slow(SqliteStore):
        renewed = asyncio.Event()

        async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
            await self.renewed.wait()
            return await super().renew(leases)

    store = Slow(tmp_path / "agent.db", lease_seconds=3)
    async with serving({"work": Does(Gate())}, task_store=store, metrics=True) as peer:
        assert (await figures(peer))["lease_age_seconds"] < 1
        task_id = await peer.start()
        await until(lambda found: found["lease_age_seconds"] > 1.25, peer)
        store.renewed.set()
        await until(lambda found: found["lease_age_seconds"] < 1, peer)
        await peer.ask("cancel", {"id": task_id})


async def test_streams_are_counted_while_they_are_open() -> None:
    async def source(inputs: Inputs, context: Any) -> Any:
        yield {"n": 1}

    async with serving({"work": Streams(source)}, metrics=True) as peer:
        async with peer.stream() as stream:
            await stream.rest()
        await true(lambda: not len(peer.served.handler.streams))
        found = await figures(peer)
        assert (found["open_streams"], found["completed_tasks"]) == (0, 1)
