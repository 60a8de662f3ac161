"""Every store passes the conformance checks."""

from pathlib import Path

import pytest
from apcore_a2a_server.store import InMemoryTaskStore
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.testing import CHECKS, Check

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@every_check
async def test_the_memory_store_conforms(check: Check) -> None:
    await check(InMemoryTaskStore())


@every_check
async def test_the_sqlite_store_conforms(check: Check, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "agent.db")
    await store.start()
    await check(store)
    await store.close()


@every_check
async def test_the_postgres_store_conforms(check: Check, server: Database) -> None:
    store = PostgresStore(server.url)
    await store.start()
    try:
        await store.clear()
        await check(store)
    finally:
        await store.close()
