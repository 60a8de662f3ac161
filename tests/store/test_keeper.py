"""The lease keeper renews leases, and gives up in time when the store does not respond."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from apcore_a2a_core.records import Payload
from apcore_a2a_server.store import Claim, InMemoryTaskStore, Lease, Store
from apcore_a2a_server.store.leases import LeaseKeeper, OnClaim
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.port import Renew
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.replicas import this_process
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.testing.samples import begun, new_record

from .postgresql import Database

pytestmark = pytest.mark.anyio
TIMEOUT = 20  # seconds
LEASE = 3
"""Seconds that a lease lasts: long enough for slow machines."""


class UnresponsiveStore(InMemoryTaskStore):
    """A store that never answers renewals, and ignores cancellation until `is_cancellable`."""

    is_shared = True
    is_cancellable = False

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self.is_cancellable:
                    continue
                raise


@pytest.fixture
def unexpected_claim() -> Iterator[OnClaim]:
    """Return a callback for claims; at the end of the test, check that there was none."""
    claims: list[Claim] = []

    async def record(claim: Claim) -> None:
        claims.append(claim)

    yield record
    assert not claims  # the keeper catches what a callback raises


@pytest.mark.clock
@pytest.mark.smoke
async def test_a_lease_is_given_up_before_it_expires_when_the_store_never_answers(
    unexpected_claim: OnClaim,
) -> None:
    store = UnresponsiveStore()
    store.lease_seconds = LEASE
    tasks, lost = LiveTasks(store), asyncio.Queue[Lease]()
    record = new_record()
    payloads: list[Payload] = [record.task]
    lease = await tasks.create(record, payloads)
    started_at = time.monotonic()
    keeper = LeaseKeeper(tasks, this_process, lost.put_nowait, unexpected_claim)
    keeper.start()
    try:
        assert await asyncio.wait_for(lost.get(), TIMEOUT) == lease
        assert time.monotonic() - started_at < store.lease_seconds
    finally:
        store.is_cancellable = True
        await keeper.stop()


class UnreachableStore(InMemoryTaskStore):
    """A store that can't be reached for renewals."""

    is_shared = True

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        raise OSError


@pytest.mark.clock
@pytest.mark.smoke
async def test_later_leases_are_given_up_later(unexpected_claim: OnClaim) -> None:
    store = UnreachableStore()
    store.lease_seconds = LEASE
    tasks, lost = LiveTasks(store), asyncio.Queue[tuple[str, float]]()
    begun_at: dict[str, float] = {}
    keeper = LeaseKeeper(
        tasks,
        this_process,
        lambda lease: lost.put_nowait((lease.task_id, time.monotonic())),
        unexpected_claim,
    )
    keeper.start()
    try:
        for task_id in ("early", "late"):
            begun_at[task_id] = time.monotonic()
            record = new_record(task_id)
            await tasks.create(record, [record.task])
            await asyncio.sleep(LEASE / 3)
        end_times = dict([await asyncio.wait_for(lost.get(), TIMEOUT)])
        while "late" not in end_times:
            task_id, at = await asyncio.wait_for(lost.get(), TIMEOUT)
            end_times.setdefault(task_id, at)
        for task_id, at in end_times.items():
            assert LEASE * 0.6 < at - begun_at[task_id] < store.lease_seconds
    finally:
        await keeper.stop()


@asynccontextmanager
async def keeping_a_task(store: Store, on_claim: OnClaim) -> AsyncIterator[None]:
    """Keep the lease of a new task."""
    tasks, record = LiveTasks(store), new_record()
    await tasks.create(record, [record.task])
    keeper = LeaseKeeper(tasks, this_process, lambda lease: None, on_claim)
    keeper.start()
    try:
        yield
    finally:
        await keeper.stop()


async def test_each_outage_is_logged_once(
    caplog: pytest.LogCaptureFixture, unexpected_claim: OnClaim
) -> None:
    class FlakyStore(InMemoryTaskStore):
        """A store with two outages."""

        is_shared = True

        def __init__(self) -> None:
            super().__init__()
            self.renewals = 0

        async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
            self.renewals += 1
            if self.renewals % 5:
                raise OSError
            return ()

    store = FlakyStore()
    store.lease_seconds = 3
    async with keeping_a_task(store, unexpected_claim), asyncio.timeout(TIMEOUT):
        while store.renewals < 10:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)
    warnings = [line for line in caplog.messages if "renewed" in line]
    assert warnings == ["Leases could not be renewed: OSError"] * 2


async def test_leases_are_renewed_although_the_store_could_not_connect_at_first(
    caplog: pytest.LogCaptureFixture, unexpected_claim: OnClaim
) -> None:
    class ConnectingStore(InMemoryTaskStore):
        """A store that connects in `renewing`, and is down at first."""

        is_shared = True
        connections = 0

        @asynccontextmanager
        async def renewing(self) -> AsyncIterator[Renew]:
            self.connections += 1
            if self.connections < 3:
                raise OSError
            async with super().renewing() as renew:
                yield renew

        async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
            loop.call_soon_threadsafe(renewed.set)
            return ()

    loop, renewed = asyncio.get_running_loop(), asyncio.Event()
    store = ConnectingStore()
    store.lease_seconds = 1
    async with keeping_a_task(store, unexpected_claim):
        await asyncio.wait_for(renewed.wait(), TIMEOUT)
    assert store.connections == 3
    warnings = [line for line in caplog.messages if "renewed" in line]
    assert warnings == ["Leases could not be renewed: OSError"]


@pytest.mark.smoke
async def test_a_task_that_failed_to_resume_is_claimed_again(server: Database) -> None:
    server.clear()
    store = PostgresStore(server.url, lease_seconds=0.5)
    await store.start()
    record, _ = await begun(store)
    tasks, claims, failures = LiveTasks(store), asyncio.Queue[Claim](), iter([1])

    async def take(claim: Claim) -> None:
        await tasks.adopt(claim)
        claims.put_nowait(claim)
        for _ in failures:  # only once
            raise OSError("the database is gone just now")

    keeper = LeaseKeeper(tasks, this_process, lambda lease: None, take)
    keeper.start()
    try:
        claimed = [await asyncio.wait_for(claims.get(), TIMEOUT) for _ in range(2)]
        assert [claim.lease.task_id for claim in claimed] == [record.task.id] * 2
        # no claim has started the module again
        assert [claim.attempts for claim in claimed] == [1, 1]
    finally:
        await keeper.stop()
        await store.close()


@pytest.mark.parametrize("kind", ["file", pytest.param("database", marks=pytest.mark.database)])
async def test_a_blocked_event_loop_loses_no_lease(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, unexpected_claim: OnClaim
) -> None:
    seconds = 0.6
    store: Store = SqliteStore(tmp_path / "agent.db", lease_seconds=seconds)
    if kind == "database":
        seconds = LEASE  # a busy machine needs that long to renew a lease
        server: Database = request.getfixturevalue("server")
        server.clear()
        store = PostgresStore(server.url, lease_seconds=seconds)
    await store.start()
    tasks, lost = LiveTasks(store), list[Lease]()
    record = new_record()
    lease = await tasks.create(record, [record.task])
    keeper = LeaseKeeper(tasks, this_process, lost.append, unexpected_claim)
    keeper.start()
    try:
        for _ in range(2):
            time.sleep(1.5 * seconds)  # noqa: ASYNC251  # like a module that computes in the loop
            await asyncio.sleep(0.05)
        if kind == "database":
            assert not await store.claim(10)
        assert not await store.claim(10, tasks.running())
        assert not lost
        assert tasks.lease_of(record.task.id) == lease
    finally:
        await keeper.stop()
        await store.close()


async def test_a_task_that_cannot_be_resumed_does_not_block_others(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agent.db")
    await store.start()
    leases = [(await begun(store, new_record(f"t{number}")))[1] for number in range(5)]
    await store.release(leases)
    tasks, claimed_ids = LiveTasks(store), asyncio.Queue[str]()

    async def take(claim: Claim) -> None:
        if claim.lease.task_id == "t0":
            raise ValueError("its record is broken")
        claimed_ids.put_nowait(claim.lease.task_id)

    keeper = LeaseKeeper(tasks, this_process, lambda lease: None, take)
    keeper.start()
    try:
        resumed = {await asyncio.wait_for(claimed_ids.get(), TIMEOUT) for _ in range(4)}
        assert resumed == {"t1", "t2", "t3", "t4"}
    finally:
        await keeper.stop()
        await store.close()
