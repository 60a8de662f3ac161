"""What two processes do to the same webhooks at the same moment, over one database."""

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
from apcore_a2a_server.store.testing import begun, new_record, went_on
from apcore_a2a_server.store.testing.webhook_checks import due, hook

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


@asynccontextmanager
async def beside(server: Database) -> AsyncIterator[tuple[PostgresStore, Any, Any]]:
    """A store, another process's connection, and one to watch both."""
    store = PostgresStore(server.url)
    await store.start()
    other, watcher = [await asyncpg.connect(server.url) for _ in range(2)]
    try:
        yield store, other, watcher
    finally:
        await other.close()
        await watcher.close()
        await store.close()


async def test_a_change_that_waits_for_a_webhook_to_be_set_is_told_to_it(server: Database) -> None:
    server.clear()
    async with beside(server) as (store, other, watcher):
        record, lease = await begun(store)
        async with other.transaction():
            await save_webhooks(Session(other), "t1", [hook()], [])
            change = asyncio.create_task(store.change(went_on(record, COMPLETED, lease)))
            await waiting(watcher)
        await change
        assert [each.version for each in await due(store)] == [3]


async def test_a_webhook_that_fails_while_another_is_set_has_failed(server: Database) -> None:
    server.clear()
    async with beside(server) as (store, other, watcher):
        await begun(store, webhooks=[hook()])
        (first,) = await due(store, seconds=60)
        async with other.transaction():
            await save_webhooks(Session(other), "t1", [hook(), hook("w2")], [hook()])
            failing = asyncio.create_task(store.give_up(first, "status 410"))
            await waiting(watcher)
        assert await failing == 2
        assert [each.failure for each in await store.webhooks("t1")] == ["status 410", ""]


async def waiting(watcher: Any) -> None:
    """Until somebody waits for a row that somebody else has changed."""
    for _ in range(1000):
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        if await watcher.fetchval(waits):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits")


async def test_of_processes_that_take_what_is_due_one_has_it(server: Database) -> None:
    server.clear()
    stores = [PostgresStore(server.url) for _ in range(3)]
    for store in stores:
        await store.start()
    try:
        await begun(stores[0], webhooks=[hook(f"w{number}") for number in range(50)])
        taken = [
            each
            for found in await asyncio.gather(*(due(store, seconds=60) for store in stores))
            for each in found
        ]
        again = [each for store in stores for each in await due(store, seconds=60)]
        ids = [each.webhook.config.id for each in [*taken, *again]]
        assert sorted(ids) == sorted({f"w{number}" for number in range(50)})
    finally:
        for store in stores:
            await store.close()


async def test_what_comes_while_the_one_before_it_is_settled_is_due(server: Database) -> None:
    server.clear()
    store, other = PostgresStore(server.url), PostgresStore(server.url)
    await store.start()
    await other.start()
    try:
        for name in (f"t{number}" for number in range(40)):
            record, lease = await begun(store, new_record(name), [hook(task_id=name)])
            for _ in range(record.version - 1):
                await other.settle(*await due(other, seconds=60))
            (last,) = await due(other, seconds=60)
            change = store.change(went_on(record, COMPLETED, lease))
            await asyncio.gather(change, other.settle(last))
            assert [each.version for each in await due(other, seconds=60)] == [record.version + 1]
    finally:
        await store.close()
        await other.close()
