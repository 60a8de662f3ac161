"""Two processes that change the same webhooks in one database at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from apcore_a2a_core.states import COMPLETED
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.postgres.database import Session
from apcore_a2a_server.store.postgres.outbox import save_webhooks
from apcore_a2a_server.store.testing import begun, new_record, state_change
from apcore_a2a_server.store.testing.webhook_checks import claim_due, hook

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


@asynccontextmanager
async def two_processes(server: Database) -> AsyncIterator[tuple[PostgresStore, Any, Any]]:
    """Yield a store, a connection that acts as another process, and one that watches locks."""
    store = PostgresStore(server.url)
    await store.start()
    connection, watcher = [await asyncpg.connect(server.url) for _ in range(2)]
    try:
        yield store, connection, watcher
    finally:
        await connection.close()
        await watcher.close()
        await store.close()


async def test_a_change_that_waits_for_a_new_webhook_notifies_it(server: Database) -> None:
    server.clear()
    async with two_processes(server) as (store, connection, watcher):
        record, lease = await begun(store)
        async with connection.transaction():
            await save_webhooks(Session(connection), "t1", [hook()], [])
            change = asyncio.create_task(store.change(state_change(record, COMPLETED, lease)))
            await wait_for_lock_wait(watcher)
        await change
        assert [notification.version for notification in await claim_due(store)] == [3]


async def test_a_webhook_that_fails_while_another_is_added_stays_failed(server: Database) -> None:
    server.clear()
    async with two_processes(server) as (store, connection, watcher):
        await begun(store, webhooks=[hook()])
        (first,) = await claim_due(store, seconds=60)
        async with connection.transaction():
            await save_webhooks(Session(connection), "t1", [hook(), hook("w2")], [hook()])
            failing = asyncio.create_task(store.give_up(first, "status 410"))
            await wait_for_lock_wait(watcher)
        assert await failing == 2
        assert [webhook.failure for webhook in await store.webhooks("t1")] == [
            "status 410",
            "",
        ]


async def wait_for_lock_wait(watcher: Any) -> None:
    """Wait until a connection waits for another's row lock."""
    for _ in range(1000):
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        if await watcher.fetchval(waits):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no connection waits")


async def test_a_due_notification_is_claimed_by_one_process_only(server: Database) -> None:
    server.clear()
    stores = [PostgresStore(server.url) for _ in range(3)]
    for store in stores:
        await store.start()
    try:
        await begun(stores[0], webhooks=[hook(f"w{number}") for number in range(50)])
        claims = [
            notification
            for notifications in await asyncio.gather(
                *(claim_due(store, seconds=60) for store in stores)
            )
            for notification in notifications
        ]
        later_claims = [
            notification for store in stores for notification in await claim_due(store, seconds=60)
        ]
        ids = [notification.webhook.config.id for notification in [*claims, *later_claims]]
        assert sorted(ids) == sorted({f"w{number}" for number in range(50)})
    finally:
        for store in stores:
            await store.close()


async def test_a_change_while_the_previous_notification_is_settled_is_notified(
    server: Database,
) -> None:
    server.clear()
    store, second_store = PostgresStore(server.url), PostgresStore(server.url)
    await store.start()
    await second_store.start()
    try:
        for name in (f"t{number}" for number in range(40)):
            record, lease = await begun(store, new_record(name), [hook(task_id=name)])
            for _ in range(record.version - 1):
                (earlier,) = await claim_due(second_store, seconds=60)
                await second_store.settle(earlier)
            (last,) = await claim_due(second_store, seconds=60)
            change = store.change(state_change(record, COMPLETED, lease))
            await asyncio.gather(change, second_store.settle(last))
            assert [
                notification.version for notification in await claim_due(second_store, seconds=60)
            ] == [record.version + 1]
    finally:
        await store.close()
        await second_store.close()
