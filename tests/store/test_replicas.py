"""Replicas that share a database show what each of them does and which one runs a task."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.replicas import Replica, this_process
from msgspec.structs import replace

from tests.facade.processes import agent_client
from tests.server.conftest import eventually
from tests.server.inloop import ActionModule, Gate, Peer, serving, wait_until

from .postgresql import Database
from .replicas import LEASE, TIMEOUT, Agent, replica
from .test_workers import folder as folder
from .test_workers import two_workers, workers_of

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


def replicas_at(url: str) -> list[Json]:
    """Return the replicas that an agent shows."""
    document: Json = httpx.get(f"{url}/apcore/now", trust_env=False).json()
    return list(document["replicas"])


async def replicas_of(peer: Peer) -> list[Json]:
    document: Json = (await peer.client.get("/apcore/now")).json()
    return list(document["replicas"])


async def own_id(peer: Peer) -> str:
    (replica_id,) = [replica["id"] for replica in await replicas_of(peer) if replica["self"]]
    return str(replica_id)


async def wait_until_shown(peer: Peer, expected: list[tuple[str, int, int]]) -> None:
    """Wait until an agent shows these replicas, with their leases and runs."""
    found: list[tuple[str, int, int]] = []
    async with asyncio.timeout(TIMEOUT):
        while found != expected:
            replicas = await replicas_of(peer)
            found = [(replica["id"], replica["leases"], replica["running"]) for replica in replicas]
            await asyncio.sleep(0.02)


async def leases_of(peer: Peer, *task_ids: str) -> dict[str, str]:
    answer = await peer.client.get("/apcore/leases", params={"tasks": ",".join(task_ids)})
    document: Json = answer.json()
    assert document["shared"] is True
    return {lease["taskId"]: lease["replica"] for lease in document["leases"]}


async def test_replicas_show_each_other_and_which_one_runs_a_task(server: Database) -> None:
    server.clear()
    gate = Gate()
    modules = {"work": ActionModule(gate)}
    stores = [PostgresStore(server.url, lease_seconds=LEASE) for _ in range(2)]
    options: Json = {"explorer": True}
    async with serving(modules, task_store=stores[0], **options) as first:
        async with serving(modules, task_store=stores[1], **options) as second:
            tasks = [await first.start(), await first.start(), await second.start()]
            await wait_until(lambda: len(gate.calls) == 3)
            ids = [await own_id(peer) for peer in (first, second)]
            for peer in (first, second):
                await wait_until_shown(peer, [(ids[0], 2, 2), (ids[1], 1, 1)])
                holders = await leases_of(peer, *tasks, "none")
                assert holders == dict(zip(tasks, (ids[0], ids[0], ids[1]), strict=True))
            gate.opened.set()
            for task_id in tasks:
                await first.until(task_id, "completed")
            assert await leases_of(second, *tasks) == {}
            await wait_until_shown(first, [(ids[0], 0, 0), (ids[1], 0, 0)])
        await wait_until_shown(first, [(ids[0], 0, 0)])


async def test_replicas_that_have_not_reported_lately_are_left_out_and_deleted(
    server: Database,
) -> None:
    server.clear()
    store = PostgresStore(server.url, lease_seconds=5)
    await store.start()
    silent, alive = this_process(), this_process()
    async with store.renewing() as renew:
        for replica in (silent, alive):
            await renew([], replica)
    for seconds, expected in ((10, [silent, alive]), (20, [alive])):
        server.sql(
            f"UPDATE apcore_a2a.replicas SET seen = now() - interval '{seconds} s' "
            f"WHERE id = '{silent.id}'"
        )
        found: list[Replica] = [*await store.replicas()]
        assert [replica.id for replica in found] == [replica.id for replica in expected]
    assert await store.prune() == 0
    # its row is deleted, so that the update changes nothing
    server.sql(f"UPDATE apcore_a2a.replicas SET seen = now() WHERE id = '{silent.id}'")
    assert [replica.id for replica in await store.replicas()] == [alive.id]
    async with store.renewing() as renew:  # a replica that was only held up is back
        await renew([], replace(silent, running=1))
    assert {replica.id for replica in await store.replicas()} == {silent.id, alive.id}
    await store.close()


@pytest.mark.process
def test_a_killed_replica_disappears_and_its_task_names_the_one_that_took_it_over(
    server: Database, tmp_path: Path
) -> None:
    server.clear()
    with (
        replica(tmp_path, server.url, explorer=True) as first,
        replica(tmp_path, server.url, explorer=True) as second,
    ):
        eventually(lambda: len(replicas_at(second.url)) == 2)
        task_id = first.start("again", seconds=30)
        (own,) = [replica["id"] for replica in replicas_at(first.url) if replica["self"]]
        assert holder(second, task_id) == own
        first.process.end(signal.SIGKILL)
        (survivor,) = [replica["id"] for replica in replicas_at(second.url) if replica["self"]]
        eventually(lambda: holder(second, task_id) == survivor)
        eventually(lambda: [replica["id"] for replica in replicas_at(second.url)] == [survivor])
        second.ask("CancelTask", id=task_id)


def holder(agent: Agent, task_id: str) -> str | None:
    """Return the replica that runs a task."""
    response = agent.client.get("/apcore/leases", params={"tasks": task_id})
    leases = response.json()["leases"]
    return leases[0]["replica"] if leases else None


@pytest.mark.process
def test_each_worker_is_a_replica(server: Database, folder: Path) -> None:
    with two_workers(server, folder) as agent:
        pids = {*workers_of(agent)}
        eventually(lambda: {replica["pid"] for replica in replicas_at(agent.url)} == pids)
        first, second = replicas_at(agent.url)
        assert first["host"] == second["host"]
        assert [first["self"], second["self"]].count(True) == 1
        with agent_client(agent) as client:
            client.send()
        assert agent.end(signal.SIGTERM) == 0
