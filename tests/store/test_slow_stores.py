"""A user's store that is slow or fails."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from apcore_a2a_core.data import TaskPushNotificationConfig
from apcore_a2a_core.records import TaskListResult, TaskRecord
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED, WORKING
from apcore_a2a_server.store import InMemoryTaskStore, Retention, SendKey, Webhook
from apcore_a2a_server.store.custom_stores import ScannedStore
from apcore_a2a_server.store.exceptions import RepeatedError
from apcore_a2a_server.store.testing import begun, new_record, state_change
from apcore_a2a_server.store.testing.webhook_checks import claim_due, hook
from msgspec import structs

pytestmark = pytest.mark.anyio


class SlowStore(InMemoryTaskStore):
    """A user's store whose saves and reads wait until it is released, and can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()
        self.released.set()
        self.waiting = 0
        self.fails = False

    async def _wait(self) -> None:
        self.waiting += 1
        await self.released.wait()
        self.waiting -= 1
        if self.fails:
            raise ConnectionError

    async def save(self, record: TaskRecord) -> None:
        await self._wait()
        await super().save(record)

    async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
        await self._wait()
        return await super().get(task_id, owner)

    async def get_push_config(self, task_id: str) -> TaskPushNotificationConfig | None:
        await self._wait()
        return await super().get_push_config(task_id)

    async def list(
        self, context_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> TaskListResult:
        await self._wait()
        return await super().list(context_id, cursor, limit)


async def wait_for_waiting_calls(inner: SlowStore, count: int = 1) -> None:
    """Wait until *count* calls wait for the store to be released."""
    async with asyncio.timeout(60):
        while inner.waiting < count:  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0)


async def test_only_one_of_two_new_tasks_gets_the_key_of_a_deleted_task() -> None:
    inner, key = SlowStore(), SendKey("key", b"body")
    store = ScannedStore(inner)
    record, lease = await begun(store, key=key)
    await store.change(state_change(record, COMPLETED, lease))
    await inner.delete("t1")
    inner.released.clear()
    sends = [
        asyncio.create_task(begun(store, new_record(task_id), key=key)) for task_id in ("t2", "t3")
    ]
    await wait_for_waiting_calls(inner, 2)
    inner.released.set()
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert [isinstance(outcome, RepeatedError) for outcome in outcomes].count(True) == 1


async def test_a_task_that_is_answered_during_a_claim_is_not_claimed() -> None:
    inner = SlowStore()
    store = ScannedStore(inner)
    record, lease = await begun(store)
    paused = state_change(record, INPUT_REQUIRED, lease)
    paused.record.deadline = 1.0
    await store.change(paused)
    inner.released.clear()
    claiming = asyncio.create_task(store.claim(10))
    await wait_for_waiting_calls(inner)
    answering = asyncio.create_task(store.change(state_change(paused.record, WORKING, run=True)))
    await wait_for_waiting_calls(inner, 2)
    inner.released.set()
    new_lease = await answering
    assert not await claiming
    assert new_lease is not None
    lost_leases = await store.renew([new_lease])
    assert not lost_leases


async def test_a_change_that_is_cancelled_while_it_is_saved_can_be_repeated() -> None:
    inner = SlowStore()
    store = ScannedStore(inner)
    record, lease = await begun(store)
    inner.released.clear()
    change = state_change(record, INPUT_REQUIRED, lease)
    changing = asyncio.create_task(store.change(change))
    await wait_for_waiting_calls(inner)
    changing.cancel()
    await asyncio.wait([changing])
    inner.released.set()
    await store.change(change)


async def test_a_store_that_hangs_does_not_hold_up_a_cancelled_change_with_a_push_config() -> None:
    class HangingStore(SlowStore):
        """A user's store whose writes of webhooks hang as well."""

        async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
            await super().write_webhooks(task_id, webhooks)
            if not self.released.is_set() and not webhooks:
                await self._wait()

    store = HangingStore()
    record, lease = await begun(store)
    store.released.clear()
    change = structs.replace(state_change(record, INPUT_REQUIRED, lease), webhook=hook())
    changing = asyncio.create_task(store.change(change))
    await wait_for_waiting_calls(store)
    changing.cancel()
    _, still_changing = await asyncio.wait([changing], timeout=1)
    store.released.set()
    assert not still_changing
    await store.change(change)


async def test_a_send_that_is_cancelled_while_its_task_is_saved_can_be_repeated() -> None:
    inner, key = SlowStore(), SendKey("key", b"body")
    store = ScannedStore(inner)
    inner.released.clear()
    creating = asyncio.create_task(begun(store, key=key))
    await wait_for_waiting_calls(inner)
    creating.cancel()
    await asyncio.wait([creating])
    assert creating.cancelled()
    inner.released.set()
    assert await store.events("t1", 0) is None
    await begun(store, new_record("t2"), key=key)


async def test_a_webhook_that_a_failed_change_has_replaced_keeps_its_place() -> None:
    store = SlowStore()
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2"), hook("w3")])
    change = structs.replace(
        state_change(record, INPUT_REQUIRED, lease), webhook=hook("w2", "b.example")
    )
    store.fails = True
    with pytest.raises(ConnectionError):
        await store.change(change)
    assert [*await store.webhooks("t1")] == [hook("w1"), hook("w2"), hook("w3")]
    store.released.clear()
    changing = asyncio.create_task(store.change(change))
    await wait_for_waiting_calls(store)
    _, *others = await store.webhooks("t1")  # the first one is deleted, and another one added
    await store.save_webhooks("t1", [*others, hook("w4")])
    store.released.set()
    with pytest.raises(ConnectionError):
        await changing
    assert [*await store.webhooks("t1")] == [hook("w2"), hook("w3"), hook("w4")]


async def test_a_failed_send_raises_its_error_even_if_its_key_was_evicted() -> None:
    inner = SlowStore()
    store = ScannedStore(inner)
    store.retention = replace(Retention(), max_logs=0)
    inner.fails = True
    with pytest.raises(ConnectionError):
        await begun(store, key=SendKey("key", b"body"))


async def test_notifications_are_given_up_even_if_the_store_cannot_be_read() -> None:
    inner = SlowStore()
    store = ScannedStore(inner)
    for task_id in ("t1", "t2"):
        record, lease = await begun(store, new_record(task_id), [hook(task_id=task_id)])
        await store.change(state_change(record, COMPLETED, lease))
    inner.fails = True
    assert await store.limit_backlog(1) == 6
    inner.fails = False
    assert await store.limit_backlog(1) == 0
    for task_id in ("t1", "t2"):
        assert [webhook.failure != "" for webhook in await store.webhooks(task_id)] == [True]
        assert await inner.get_push_config(task_id) is not None


async def test_a_push_config_that_is_saved_during_an_erasure_does_not_outlive_its_task() -> None:
    class StoreOfSlowConfigs(InMemoryTaskStore):
        """A user's store that takes long to save push configs."""

        async def save_push_config(self, task_id: str, config: TaskPushNotificationConfig) -> None:
            saving.set()
            await released.wait()
            await super().save_push_config(task_id, config)

    saving, released, inner = asyncio.Event(), asyncio.Event(), StoreOfSlowConfigs()
    store = ScannedStore(inner)
    record, lease = await begun(store)
    await store.change(state_change(record, COMPLETED, lease))
    adding = asyncio.create_task(store.save_webhooks("t1", [hook()], []))
    await saving.wait()
    erasing = asyncio.create_task(store.delete_ended("ada"))
    await asyncio.wait([erasing], timeout=0.1)
    released.set()
    await asyncio.gather(adding, erasing)
    assert await store.get("t1") is None
    assert await inner.get_push_config("t1") is None


async def test_a_webhook_that_is_deleted_during_its_redelivery_gets_no_notifications() -> None:
    store = SlowStore()
    await begun(store, webhooks=[hook()])
    (first,) = await claim_due(store)
    assert await store.give_up(first, "status 500") == 2
    store.released.clear()
    redelivering = asyncio.create_task(store.redeliver("t1", "w1"))
    await wait_for_waiting_calls(store)
    deleting = asyncio.create_task(store.save_webhooks("t1", []))
    await asyncio.wait([deleting], timeout=0.1)
    store.released.set()
    await asyncio.gather(redelivering, deleting)
    assert store.backlog.pending == 0
    assert not await claim_due(store)
