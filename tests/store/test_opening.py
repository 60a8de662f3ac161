"""Stores that open existing or missing databases."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from apcore_a2a_server.store import StoreError, UnavailableError
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.postgres.database import Database as Connections
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.testing import begun

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


async def test_another_programs_file_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE tasks (title TEXT)")
    before = path.read_bytes()
    with pytest.raises(UnavailableError, match="another program's"):
        await SqliteStore(path).start()
    assert path.read_bytes() == before


async def test_a_missing_folder_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no folder"):
        await SqliteStore(tmp_path / "mistyped" / "agent.db").start()
    assert not (tmp_path / "mistyped").exists()


async def test_a_role_that_owns_only_the_schema_is_sufficient(server: Database) -> None:
    server.clear()
    server.sql(
        "DROP ROLE IF EXISTS guest",
        "CREATE ROLE guest LOGIN",
        "CREATE SCHEMA apcore_a2a AUTHORIZATION guest",
    )
    store = PostgresStore(server.url.replace("agent@", "guest@"))
    try:
        await store.start()
        await begun(store)
    finally:
        await store.close()
        server.clear()


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
async def test_a_file_in_use_is_refused_under_any_name(tmp_path: Path, link: str) -> None:
    path, alias = tmp_path / "agent.db", tmp_path / "elsewhere" / "alias.db"
    alias.parent.mkdir()
    store = SqliteStore(path)
    await store.start()
    getattr(alias, link)(path)
    with pytest.raises(UnavailableError, match="in use"):
        await SqliteStore(alias).start()
    await store.close()
    store_by_alias = SqliteStore(alias)
    await store_by_alias.start()
    await store_by_alias.close()


async def test_a_file_stays_locked_until_the_thread_of_a_canceled_start_has_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, may_connect, threads = tmp_path / "agent.db", threading.Event(), SimpleQueue[Thread]()

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        threads.put(threading.current_thread())
        may_connect.wait()
        return sqlite3.Connection(*args, **kwargs)

    store = SqliteStore(path)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        starting = asyncio.create_task(store.start())
        thread = await asyncio.to_thread(threads.get)
    try:
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        for candidate in (store, SqliteStore(path)):
            with pytest.raises(UnavailableError, match="in use"):
                await candidate.start()
    finally:
        may_connect.set()
    await asyncio.to_thread(thread.join)
    await store.start()
    await store.close()


def modes(folder: Path) -> dict[str, str]:
    """Return the permissions of the files in a folder."""
    return {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()}


async def test_only_the_owner_may_access_the_files(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agent.db")
    await store.start()
    await begun(store)
    endings = ("", "-wal", "-shm", ".lock")
    assert modes(tmp_path) == {f"agent.db{ending}": "0o600" for ending in endings}
    await store.close()


async def test_closing_a_database_waits_for_its_statements(server: Database) -> None:
    database = Connections(server.url, 1, lambda: 10)
    await database.open()
    async with database.session() as session:
        closing_down = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        assert await session.connection.fetchval("SELECT 1") == 1
    await closing_down
    with pytest.raises(StoreError, match="not open"):
        async with database.session():
            pass
