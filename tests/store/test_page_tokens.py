"""Page tokens: valid at every replica and after a restart, and opaque to clients."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from a2a.utils.errors import InvalidParamsError
from apcore_a2a_server.store import InMemoryTaskStore, Query, Store
from apcore_a2a_server.store.page_tokens import PageTokens
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.sqlite.schema import MIGRATIONS
from apcore_a2a_server.store.testing import begun, new_record

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


@asynccontextmanager
async def running_store(store: Store) -> AsyncIterator[Store]:
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def create_two_pages(store: Store) -> str:
    """Create two tasks of ada's; return the cursor of the page with the older one."""
    for task_id in ("t0", "t1"):
        await begun(store, new_record(task_id))
    cursor = (await store.query(Query("ada", limit=1))).next_cursor
    assert cursor is not None
    return cursor


async def check_second_page(store: Store, cursor: str) -> None:
    page = await store.query(Query("ada", limit=1, cursor=cursor))
    assert [record.task.id for record in page.records] == ["t0"]


async def test_a_token_is_valid_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with running_store(SqliteStore(path)) as store:
        cursor = await create_two_pages(store)
    async with running_store(SqliteStore(path)) as store:
        await check_second_page(store, cursor)


async def test_a_token_is_valid_at_every_replica(server: Database) -> None:
    server.clear()
    async with (
        running_store(PostgresStore(server.url)) as first,
        running_store(PostgresStore(server.url)) as second,
    ):
        await check_second_page(second, await create_two_pages(first))


async def test_a_token_is_invalid_in_other_stores(tmp_path: Path) -> None:
    stores = [InMemoryTaskStore(), InMemoryTaskStore(), SqliteStore(tmp_path / "agent.db")]
    cursors = []
    for store in stores:
        await store.start()
        cursors.append(await create_two_pages(store))
    assert len(set(cursors)) == len(stores)
    for store in stores:
        for cursor in set(cursors) - {cursors[stores.index(store)]}:
            with pytest.raises(InvalidParamsError):
                await store.query(Query("ada", cursor=cursor))
        await store.close()


def test_tokens_reveal_no_order_and_share_no_beginning_or_end() -> None:
    tokens, query = PageTokens(b"k" * 32), Query("ada")
    sealed = [tokens.seal(query, position) for position in range(2000)]
    assert len({token[:4] for token in sealed}) > 1990
    assert len({token[-4:] for token in sealed}) > 1990
    assert sorted(sealed) != sealed
    assert {len(token) for token in sealed} == {32}
    assert [tokens.open(Query("ada", cursor=token)) for token in sealed] == [*range(2000)]


def test_a_changed_token_or_query_is_refused() -> None:
    tokens = PageTokens(b"k" * 32)
    token = tokens.seal(Query("ada"), 7)
    other_queries = [
        Query("ada", order="updated", cursor=token),
        Query("eve", cursor=token),
        *(
            Query("ada", cursor=f"{token[:i]}{'A' if token[i] != 'A' else 'B'}{token[i + 1 :]}")
            for i in range(32)
        ),
    ]
    for query in other_queries:
        with pytest.raises(InvalidParamsError):
            tokens.open(query)


async def test_a_file_of_the_first_version_gets_a_key(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(f"{MIGRATIONS[0]}; PRAGMA user_version = 1")
    async with running_store(SqliteStore(path)) as store:
        await check_second_page(store, await create_two_pages(store))
