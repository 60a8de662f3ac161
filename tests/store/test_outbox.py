"""The outbox of the memory store: the cost of claims, limits, and the end of the process."""

import time
from statistics import median

import pytest
from apcore_a2a_core.data import Task
from apcore_a2a_core.states import WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.store import ClaimRequest, Notification, TaskRecord, Webhook
from apcore_a2a_server.store.testing import begun, new_record, state_change
from apcore_a2a_server.store.testing.webhook_checks import claim_due, hook

pytestmark = pytest.mark.anyio

SLOW_HOST = ("ada", "a.example")
"""A pair of principal and host; `claim` excludes it."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def store_with_webhooks(count: int) -> InMemoryTaskStore:
    """Return a store with *count* webhooks of one slow host and one of another host."""
    store = InMemoryTaskStore(max_capacity=count + 10)
    for number in range(count):
        name = f"t{number}"
        await begun(store, new_record(name), [hook(task_id=name)])
    await begun(store, new_record("other"), [hook(host="b.example", task_id="other")])
    return store


async def claim(store: InMemoryTaskStore) -> tuple[float, list[Notification]]:
    """Claim notifications of fast hosts; return the seconds taken and the notifications."""
    request = ClaimRequest(limit=100, per_host=8, per_owner=32, hosts=[SLOW_HOST], seconds=60)
    started_at = time.perf_counter()
    notifications = [*await store.claim_notifications(request)]
    return time.perf_counter() - started_at, notifications


@pytest.mark.clock
async def test_the_cost_of_a_claim_does_not_grow_with_the_backlog_of_a_slow_host() -> None:
    times: dict[int, list[float]] = {10: [], 10_000: []}
    stores = {count: await store_with_webhooks(count) for count in times}
    for _ in range(50):
        for count, store in stores.items():
            seconds, (other,) = await claim(store)
            times[count].append(seconds)
            await store.postpone(other, 0)
    assert median(times[10_000]) < 20 * median(times[10])  # the backlog is a thousand times as long


async def test_repeated_scheduling_of_notifications_does_not_fill_the_schedule() -> None:
    store = await store_with_webhooks(3)
    for _ in range(1000):
        for entry in await claim_due(store, seconds=60):
            await store.postpone(entry, 0)
    assert len(store._outbox._scheduled) <= 2 * 64  # outdated entries are dropped from 64 on
    assert store.backlog.pending == 4 * 2  # two for each of four webhooks


async def test_the_backlog_of_each_principal_is_limited_separately() -> None:
    store = InMemoryTaskStore()
    assert await store.limit_backlog(4) == 0
    for name in ("t1", "t2", "t3"):
        await begun(store, new_record(name), [hook(task_id=name)])
    await begun(store, new_record("t4", "bob"), [hook(task_id="t4")])
    failures = [(await store.webhooks(name))[0].failure for name in ("t1", "t2", "t3", "t4")]
    assert failures == ["", "", "too many pending notifications", ""]
    assert store.backlog.pending == 6
    assert await store.limit_backlog(4) == 2
    assert [bool(webhook.failure) for webhook in store._webhooks["t3"]] == [True]
    assert await store.limit_backlog(4) == 0


async def test_a_webhook_within_a_lowered_limit_is_kept_although_an_earlier_one_exceeds_it() -> (
    None
):
    store = InMemoryTaskStore()
    record, lease = await begun(store, webhooks=[hook()])
    await store.change(state_change(record, WORKING, lease))
    await begun(store, new_record("t2"), [hook(task_id="t2")])
    assert await store.limit_backlog(2) == 3
    failures = [(await store.webhooks(name))[0].failure for name in ("t1", "t2")]
    assert failures == ["too many pending notifications", ""]
    assert store.backlog.pending == 2


async def test_notifications_outlive_their_deleted_task() -> None:
    store = InMemoryTaskStore()
    await begun(store, webhooks=[hook()])
    assert await store.delete("t1")
    (first,) = await claim_due(store)
    assert isinstance(first.payload, Task)
    await store.settle(first)
    (second,) = await claim_due(store)
    assert second.task is not None  # a webhook of 0.3 is sent the whole task
    assert second.task.id == "t1"
    assert await store.give_up(second, "status 500") == 1
    assert not await claim_due(store)


async def test_undelivered_notifications_are_abandoned_at_the_end_of_the_process() -> None:
    store = await store_with_webhooks(2)
    (first,) = await claim_due(store, limit=1)
    await store.postpone(first, 60)
    assert len(await claim_due(store, per_owner=1, seconds=60)) == 1
    await store.mark_due()
    notifications = await store.abandon_notifications()
    assert sorted(each.task_id for each, _ in notifications) == ["other", "t0", "t1"]
    assert [count for _, count in notifications] == [2, 2, 2]
    assert store.backlog.pending == 0
    assert not await claim_due(store)


async def test_stored_webhooks_are_not_read_unless_notifications_are_delivered() -> None:
    class ReopenedStore(InMemoryTaskStore):
        """A store that kept a task and its webhook from an earlier process."""

        async def read_webhooks(self, task_id: str) -> list[Webhook]:
            reads.append(task_id)
            return [hook()]

    reads: list[str] = []
    for delivers in (False, True):
        store = ReopenedStore()
        record: TaskRecord = new_record()
        record.version = 1
        await store.save(record)
        if delivers:
            await store.limit_backlog(100)  # delivery begins with this call
        log = await store._reopen("t1", 1)
        assert [*log.webhooks] == ([hook()] if delivers else [])
    assert reads == ["t1"]
