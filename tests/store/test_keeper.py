"""The heartbeat goes on, and gives up in time, whatever the store and its users do."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from apcore_a2a_core.records import Payload
from apcore_a2a_server.store import Claim, InMemoryTaskStore, Lease
from apcore_a2a_server.store.leases import LeaseKeeper
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.testing.samples import begun, new_record

from .postgresql import Database

pytestmark = pytest.mark.anyio
PATIENCE = 20
LEASE = 3
"""Seconds; what is left of a third of it, slow machines may take."""


class Deaf(InMemoryTaskStore):
    """A store that does not answer, not even when nobody waits any more."""

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self.ends:
                    continue
                raise

    ends = False


async def nobody(claim: Claim) -> None:
    raise AssertionError("nothing is left")


@pytest.mark.clock
@pytest.mark.smoke
async def test_work_ends_before_its_lease_when_the_store_says_nothing_at_all() -> None:
    store = Deaf()
    store.lease_seconds = LEASE
    tasks, lost = LiveTasks(store), asyncio.Queue[Lease]()
    record = new_record()
    payloads: list[Payload] = [record.task]
    lease = await tasks.create(record, payloads)
    at = time.monotonic()
    keeper = LeaseKeeper(tasks, lost.put_nowait, nobody)
    keeper.start()
    try:
        assert await asyncio.wait_for(lost.get(), PATIENCE) == lease
        assert time.monotonic() - at < store.lease_seconds
    finally:
        store.ends = True
        await keeper.stop()


class Gone(InMemoryTaskStore):
    """A store that can't be reached for renewals."""

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        raise OSError


@pytest.mark.clock
@pytest.mark.smoke
async def test_what_was_leased_later_is_given_up_later() -> None:
    store = Gone()
    store.lease_seconds = LEASE
    tasks, lost = LiveTasks(store), asyncio.Queue[tuple[str, float]]()
    begun: dict[str, float] = {}
    keeper = LeaseKeeper(
        tasks, lambda lease: lost.put_nowait((lease.task_id, time.monotonic())), nobody
    )
    keeper.start()
    try:
        for task_id in ("early", "late"):
            begun[task_id] = time.monotonic()
            record = new_record(task_id)
            await tasks.create(record, [record.task])
            await asyncio.sleep(LEASE / 3)
        ended = dict([await asyncio.wait_for(lost.get(), PATIENCE)])
        while "late" not in ended:
            task_id, at = await asyncio.wait_for(lost.get(), PATIENCE)
            ended.setdefault(task_id, at)
        for task_id, at in ended.items():
            assert LEASE * 0.6 < at - begun[task_id] < store.lease_seconds
    finally:
        await keeper.stop()


async def test_each_outage_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Often(InMemoryTaskStore):
        """One that can't be reached for a while, twice."""

        def __init__(self) -> None:
            super().__init__()
            self.asked = 0

        async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
            self.asked += 1
            if self.asked % 5:
                raise OSError
            return ()

    store = Often()
    store.lease_seconds = 3
    tasks = LiveTasks(store)
    record = new_record()
    await tasks.create(record, [record.task])
    keeper = LeaseKeeper(tasks, lambda lease: None, nobody)
    keeper.start()
    try:
        async with asyncio.timeout(PATIENCE):
            while store.asked < 10:  # noqa: ASYNC110  # there is no event to wait for
                await asyncio.sleep(0.01)
    finally:
        await keeper.stop()
    told = [line for line in caplog.messages if "renewed" in line]
    assert told == ["Leases could not be renewed: OSError"] * 2


@pytest.mark.smoke
async def test_what_could_not_be_gone_on_with_is_claimed_again(server: Database) -> None:
    server.clear()
    store = PostgresStore(server.url, lease_seconds=0.5)
    await store.start()
    record, _ = await begun(store)
    tasks, claims = LiveTasks(store), asyncio.Queue[Claim]()

    async def take(claim: Claim) -> None:
        await tasks.adopt(claim)
        claims.put_nowait(claim)
        if claim.attempts == 1:
            raise OSError("the database is gone just now")

    keeper = LeaseKeeper(tasks, lambda lease: None, take)
    keeper.start()
    try:
        found = [await asyncio.wait_for(claims.get(), PATIENCE) for _ in range(2)]
        assert [claim.lease.task_id for claim in found] == [record.task.id] * 2
        assert [claim.attempts for claim in found] == [1, 2]
    finally:
        await keeper.stop()
        await store.close()


async def test_one_that_can_not_be_gone_on_with_holds_up_no_other(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agent.db")
    await store.start()
    leases = [(await begun(store, new_record(f"t{number}")))[1] for number in range(5)]
    await store.release(leases)
    tasks, taken = LiveTasks(store), asyncio.Queue[str]()

    async def take(claim: Claim) -> None:
        if claim.lease.task_id == "t0":
            raise ValueError("its record is broken")
        taken.put_nowait(claim.lease.task_id)

    keeper = LeaseKeeper(tasks, lambda lease: None, take)
    keeper.start()
    try:
        found = {await asyncio.wait_for(taken.get(), PATIENCE) for _ in range(4)}
        assert found == {"t1", "t2", "t3", "t4"}
    finally:
        await keeper.stop()
        await store.close()
