"""What a store finds where it is to be opened."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from apcore_a2a_server.store import UnavailableError
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.testing import begun

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


async def test_another_programs_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE tasks (title TEXT)")
    before = path.read_bytes()
    with pytest.raises(UnavailableError, match="another program's"):
        await SqliteStore(path).start()
    assert path.read_bytes() == before


async def test_no_folder_is_made_of_a_path_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no folder"):
        await SqliteStore(tmp_path / "mistyped" / "agent.db").start()
    assert not (tmp_path / "mistyped").exists()


async def test_a_role_that_owns_no_more_than_the_schema_will_do(server: Database) -> None:
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
