"""Concurrent changes of a replica share a commit in PostgreSQL but succeed or fail separately."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from apcore_a2a_core.data import Part, TaskState
from apcore_a2a_core.states import CANCELED, COMPLETED
from apcore_a2a_server.store import RepeatedError, SendKey, StaleError
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.testing.samples import begun, new_record, state_change

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


@pytest.fixture
async def store(server: Database) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(server.url)
    await store.start()
    await store.clear()
    yield store
    await store.close()


async def commits(server: Database) -> int:
    """Return how many transactions have written the current rows of tasks."""
    connection = await asyncpg.connect(server.url)
    try:
        query = "SELECT count(DISTINCT xmin::text) FROM apcore_a2a.tasks"
        return int(await connection.fetchval(query))
    finally:
        await connection.close()


async def test_tasks_created_at_the_same_time_share_a_commit(
    store: PostgresStore, server: Database
) -> None:
    records = [new_record(f"t{number}") for number in range(250)]
    await asyncio.gather(*(begun(store, record) for record in records))
    assert await commits(server) == 3  # of at most 100 tasks each
    assert await store.versions([record.task.id for record in records]) == {
        record.task.id: 2 for record in records
    }


async def test_a_commit_does_not_take_more_than_a_few_megabytes(
    store: PostgresStore, server: Database
) -> None:
    records = [new_record(f"t{number}") for number in range(10)]
    for record in records:
        record.task.history[0].parts.append(Part(text="x" * 1_000_000))
    await asyncio.gather(*(begun(store, record) for record in records))
    assert await commits(server) >= 3


async def test_of_two_conflicting_changes_in_one_commit_only_the_first_succeeds(
    store: PostgresStore,
) -> None:
    record, lease = await begun(store)
    second_record, second_lease = await begun(store, new_record("t2"))
    outcomes = await asyncio.gather(
        store.change(state_change(record, COMPLETED, lease)),
        store.change(state_change(record, CANCELED)),
        store.change(state_change(second_record, COMPLETED, second_lease)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), StaleError, type(None)]
    stored = await store.get(record.task.id)
    assert stored is not None
    assert stored.task.status.state == TaskState.TASK_STATE_COMPLETED


async def test_a_repeated_send_does_not_affect_the_others_in_its_commit(
    store: PostgresStore,
) -> None:
    key = SendKey("k", b"digest")
    outcomes = await asyncio.gather(
        *(begun(store, new_record(f"t{number}")) for number in range(5)),
        *(begun(store, new_record(f"k{number}"), key=key) for number in range(3)),
        return_exceptions=True,
    )
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert [type(outcome) for outcome in errors] == [RepeatedError, RepeatedError]
    stored_versions = await store.versions(
        [f"{kind}{number}" for kind in "tk" for number in range(5)]
    )
    assert len(stored_versions) == 6
