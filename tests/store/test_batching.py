"""Replicas' own changes at the same time share a commit in PostgreSQL, and nothing else."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from a2a import types as a2a
from apcore_a2a_core.states import CANCELED, COMPLETED
from apcore_a2a_server.store import RepeatedError, SendKey, StaleError
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.testing.samples import begun, new_record, went_on

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


@pytest.fixture
async def store(server: Database) -> AsyncIterator[PostgresStore]:
    found = PostgresStore(server.url)
    await found.start()
    await found.clear()
    yield found
    await found.close()


async def commits(server: Database) -> int:
    """How many transactions have made the tasks what they are."""
    connection = await asyncpg.connect(server.url)
    try:
        query = "SELECT count(DISTINCT xmin::text) FROM apcore_a2a.tasks"
        return int(await connection.fetchval(query))
    finally:
        await connection.close()


async def test_tasks_that_begin_at_the_same_time_share_a_commit(
    store: PostgresStore, server: Database
) -> None:
    records = [new_record(f"t{number}") for number in range(250)]
    await asyncio.gather(*(begun(store, record) for record in records))
    assert await commits(server) == 3
    assert await store.versions([record.task.id for record in records]) == {
        record.task.id: 2 for record in records
    }


async def test_of_two_changes_of_a_task_in_one_commit_one_counts(store: PostgresStore) -> None:
    record, lease = await begun(store)
    other, other_lease = await begun(store, new_record("t2"))
    found = await asyncio.gather(
        store.change(went_on(record, COMPLETED, lease)),
        store.change(went_on(record, CANCELED)),
        store.change(went_on(other, COMPLETED, other_lease)),
        return_exceptions=True,
    )
    assert [type(each) for each in found] == [type(None), StaleError, type(None)]
    kept = await store.get(record.task.id)
    assert kept is not None
    assert kept.task.status.state == a2a.TaskState.TASK_STATE_COMPLETED


async def test_a_send_that_is_repeated_leaves_the_others_of_its_commit_alone(
    store: PostgresStore,
) -> None:
    key = SendKey("k", b"digest")
    found = await asyncio.gather(
        *(begun(store, new_record(f"t{number}")) for number in range(5)),
        *(begun(store, new_record(f"k{number}"), key=key) for number in range(3)),
        return_exceptions=True,
    )
    refused = [each for each in found if isinstance(each, BaseException)]
    assert [type(each) for each in refused] == [RepeatedError, RepeatedError]
    kept = await store.versions([f"{kind}{number}" for kind in "tk" for number in range(5)])
    assert len(kept) == 6
