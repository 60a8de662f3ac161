"""The outbox of a store in one process: what a claim looks at, and what is kept."""

import time
from statistics import median

import pytest
from a2a import types as a2a
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.store import ClaimRequest, Notification, TaskRecord, Webhook
from apcore_a2a_server.store.testing import begun, new_record
from apcore_a2a_server.store.testing.webhook_checks import due, hook

pytestmark = pytest.mark.anyio

BUSY = ("ada", "a.example")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def waiting(count: int) -> InMemoryTaskStore:
    """Return a store with so many webhooks of one host that is slow, and one of another."""
    store = InMemoryTaskStore(max_capacity=count + 10)
    for number in range(count):
        name = f"t{number}"
        await begun(store, new_record(name), [hook(task_id=name)])
    await begun(store, new_record("other"), [hook(host="b.example", task_id="other")])
    return store


async def claimed(store: InMemoryTaskStore) -> tuple[float, list[Notification]]:
    """Claim for all but the slow host: the seconds that it took, and what was found."""
    request = ClaimRequest(limit=100, per_host=8, per_owner=32, hosts=[BUSY], seconds=60)
    began = time.perf_counter()
    found = [*await store.claim_notifications(request)]
    return time.perf_counter() - began, found


@pytest.mark.clock
async def test_a_claim_costs_no_more_when_very_much_waits_for_a_slow_host() -> None:
    times: dict[int, list[float]] = {10: [], 10_000: []}
    stores = {count: await waiting(count) for count in times}
    for _ in range(50):
        for count, store in stores.items():
            seconds, (other,) = await claimed(store)
            times[count].append(seconds)
            await store.postpone(other, 0)
    assert median(times[10_000]) < 20 * median(times[10])  # and not a thousand times


async def test_what_was_scheduled_again_and_again_is_kept_once() -> None:
    store = await waiting(3)
    for _ in range(1000):
        for each in await due(store, seconds=60):
            await store.postpone(each, 0)
    assert len(store._outbox._later) <= 2 * 64
    assert store.backlog.pending == 4 * 2


async def test_a_principal_has_no_more_than_so_much_and_others_have_theirs() -> None:
    store = InMemoryTaskStore()
    assert await store.limit_backlog(4) == 0
    for name in ("t1", "t2", "t3"):
        await begun(store, new_record(name), [hook(task_id=name)])
    await begun(store, new_record("t4", "bob"), [hook(task_id="t4")])
    failures = [(await store.webhooks(name))[0].failure for name in ("t1", "t2", "t3", "t4")]
    assert failures == ["", "", "too many notifications wait", ""]
    assert store.backlog.pending == 6
    assert await store.limit_backlog(4) == 2
    assert [bool(webhook.failure) for webhook in store._webhooks["t3"]] == [True]
    assert await store.limit_backlog(4) == 0


async def test_notifications_outlive_a_task_that_leaves() -> None:
    store = InMemoryTaskStore()
    await begun(store, webhooks=[hook()])
    assert await store.delete("t1")
    (first,) = await due(store)
    assert isinstance(first.payload, a2a.Task)
    await store.settle(first)
    (second,) = await due(store)
    assert second.task is not None  # a webhook of 0.3 is sent the whole task
    assert second.task.id == "t1"
    assert await store.give_up(second, "status 500") == 1
    assert not await due(store)


async def test_a_process_that_ends_forgets_what_it_could_not_deliver() -> None:
    store = await waiting(2)
    (first,) = await due(store, limit=1)
    await store.postpone(first, 60)
    assert len(await due(store, per_owner=1, seconds=60)) == 1
    await store.mark_due()
    found = await store.abandon_notifications()
    assert sorted(each.task_id for each, _ in found) == ["other", "t0", "t1"]
    assert [count for _, count in found] == [2, 2, 2]
    assert store.backlog.pending == 0
    assert not await due(store)


async def test_a_webhook_of_an_earlier_process_is_read_when_somebody_delivers() -> None:
    class Earlier(InMemoryTaskStore):
        """Knows a paused task, and its webhook, of an earlier process."""

        async def read_webhooks(self, task_id: str) -> list[Webhook]:
            reads.append(task_id)
            return [hook()]

    reads: list[str] = []
    for delivers in (False, True):
        store = Earlier()
        record: TaskRecord = new_record()
        record.version = 1
        await store.save(record)
        if delivers:
            await store.limit_backlog(100)
        log = await store._reopened("t1", 1)
        assert [*log.webhooks] == ([hook()] if delivers else [])
    assert reads == ["t1"]
