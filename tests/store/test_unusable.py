"""An unusable store raises `UnavailableError`, whatever the cause, and works again afterwards."""

import asyncio
import os
import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest
from apcore_a2a_core.data import Part
from apcore_a2a_core.states import COMPLETED
from apcore_a2a_server.store import DiskFullError, UnavailableError
from apcore_a2a_server.store.leases import LeaseKeeper
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.port import Claim, SendKey
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.postgres import store as postgres_store
from apcore_a2a_server.store.replicas import this_process
from apcore_a2a_server.store.sqlite import SqliteStore, file
from apcore_a2a_server.store.sqlite.worker import Worker
from apcore_a2a_server.store.testing.samples import begun, new_record, state_change

from .disks import small_disk
from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "agent.db", lease_seconds=0.4)
    await store.start()
    yield store
    await store.close()


@contextmanager
def size_limited(path: Path) -> Iterator[None]:
    """Keep the files of this process from growing beyond the current size of *path*."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_an_io_error_prevents_writes_but_not_reads(store: SqliteStore) -> None:
    record, lease = await begun(store)
    with size_limited(Path(f"{store.path}-wal")):
        with pytest.raises(UnavailableError, match="disk I/O error"):
            await begun(store, new_record("t2"))
        with pytest.raises(UnavailableError):
            await store.change(state_change(record, COMPLETED, lease))
        assert await store.get("t1") == record
        assert await store.get("t2") is None
        for operation in (store.claim(1), store.check()):
            with pytest.raises(UnavailableError):
                await operation
    await store.check()
    await store.change(state_change(record, COMPLETED, lease))


async def test_all_changes_in_a_failed_commit_get_the_same_error(store: SqliteStore) -> None:
    with size_limited(Path(f"{store.path}-wal")):
        key = SendKey("key", b"body")
        begins = [begun(store, new_record(f"t{number}"), key=key) for number in range(50)]
        outcomes = await asyncio.gather(*begins, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {UnavailableError}, outcomes
    await begun(store, key=key)


async def test_a_file_locked_by_another_program_is_writable_after_the_unlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "BUSY_TIMEOUT", 0.05)
    store = SqliteStore(tmp_path / "agent.db", lease_seconds=0.4)
    await store.start()
    second_connection = sqlite3.connect(store.path, isolation_level=None)
    second_connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="another program has locked it"):
        await begun(store)
    second_connection.execute("ROLLBACK")
    second_connection.close()
    await begun(store)
    await store.close()


async def test_a_file_that_became_read_only_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("CREATE TABLE t (a)")
    worker = Worker(connection, path, writes=True)
    worker.start()
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(UnavailableError, match="the file is read-only"):
        await worker.call(lambda connection: connection.execute("INSERT INTO t VALUES (1)"))
    connection.execute("PRAGMA query_only = OFF")
    await worker.call(lambda connection: connection.execute("INSERT INTO t VALUES (1)"))
    await worker.close()


async def test_a_constraint_violation_is_not_an_unavailable_store(store: SqliteStore) -> None:
    await begun(store)
    with pytest.raises(sqlite3.IntegrityError):
        await begun(store)
    await store.check()


async def test_a_task_whose_takeover_failed_is_claimed_again(store: SqliteStore) -> None:
    _, lease = await begun(store)
    await store.release([lease])
    claims: list[Claim] = []
    resumed = asyncio.Event()

    async def take(claim: Claim) -> None:
        await tasks.adopt(claim)
        claims.append(claim)
        if len(claims) == 1:
            raise UnavailableError
        resumed.set()

    tasks = LiveTasks(store)
    keeper = LeaseKeeper(tasks, this_process, lambda lease: None, take)
    keeper.start()
    async with asyncio.timeout(20):
        await resumed.wait()
    await keeper.stop()
    assert [claim.attempts for claim in claims] == [1, 1]


@pytest.fixture
async def database(server: Database) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(server.url, lease_seconds=10)
    await store.start()
    await store.clear()
    yield store
    await store.close()


async def fill_until_refused(store: PostgresStore, size: int = 0) -> UnavailableError:
    """Store tasks with *size* random bytes each until the store refuses one; return the error."""
    for number in count():
        record = new_record(f"more-{number}")
        record.task.history[0].parts.append(Part(text=os.urandom(size).hex()))
        try:
            await begun(store, record)
        except UnavailableError as error:
            return error
    raise AssertionError


@pytest.fixture
def small_tablespace(server: Database) -> Iterator[None]:
    """Create a tablespace `small` on a small disk."""
    with TemporaryDirectory() as folder, ExitStack() as cleanup:
        Path(folder).chmod(0o755)
        try:
            cleanup.enter_context(small_disk(Path(folder, "disk"), 2 << 20, server.owner))
        except PermissionError as error:
            pytest.skip(f"Can't mount a small disk: {error}")
        server.sql(f"CREATE TABLESPACE small LOCATION '{folder}/disk'")
        cleanup.callback(server.sql, "DROP TABLESPACE small")
        cleanup.callback(server.clear)
        yield


@pytest.mark.usefixtures("small_tablespace")
async def test_a_database_with_a_full_disk_prevents_writes_but_not_reads(
    server: Database, database: PostgresStore
) -> None:
    record, lease = await begun(database)
    server.sql("ALTER TABLE apcore_a2a.messages SET TABLESPACE small")
    error = await fill_until_refused(database, 100_000)
    assert isinstance(error.__cause__, asyncpg.DiskFullError)
    assert isinstance(error, DiskFullError)
    assert str(error).startswith("The database's disk is full: ")
    assert await database.get("t1") == record
    server.sql("ALTER TABLE apcore_a2a.messages SET TABLESPACE pg_default")
    await database.change(state_change(record, COMPLETED, lease))


async def test_a_database_that_became_read_only_prevents_writes_but_not_reads(
    server: Database, database: PostgresStore
) -> None:
    record, lease = await begun(database)
    server.sql("ALTER SYSTEM SET default_transaction_read_only = on")
    server.sql("SELECT pg_reload_conf()")
    error = await fill_until_refused(database)
    assert isinstance(error.__cause__, asyncpg.ReadOnlySQLTransactionError)
    with pytest.raises(UnavailableError):
        await database.check()
    assert await database.get("t1") == record
    server.sql("ALTER SYSTEM RESET default_transaction_read_only")
    server.sql("SELECT pg_reload_conf()")
    await database.change(state_change(record, COMPLETED, lease))
    await database.check()


@asynccontextmanager
async def locked(server: Database, table: str) -> AsyncIterator[None]:
    """Lock a table, so that all statements that use it wait."""
    connection = await asyncpg.connect(server.url)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE apcore_a2a.{table}")
            yield
    finally:
        await connection.close()


async def test_a_database_that_does_not_reply_in_time_is_unavailable_for_that_reason(
    server: Database, database: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "SHORTEST_TIMEOUT", 0.2)
    monkeypatch.setattr(database, "lease_seconds", 1)
    async with locked(server, "tasks"):
        with pytest.raises(UnavailableError, match="reached: no reply in time"):
            await database.get("t1")


async def test_leases_are_renewed_even_if_the_report_of_the_replica_cannot_be_saved(
    server: Database, database: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "SHORTEST_TIMEOUT", 0.2)
    monkeypatch.setattr(database, "lease_seconds", 1)
    (_, kept_lease), (_, lost_lease) = [
        await begun(database, new_record(task_id)) for task_id in ("t1", "t2")
    ]
    await database.release([lost_lease])
    await database.claim(1)
    async with locked(server, "replicas"), database.renewing() as renew:
        assert [*await renew([kept_lease, lost_lease], this_process())] == [lost_lease]
    assert not await database.replicas()
    async with database.renewing() as renew:
        assert [*await renew([kept_lease], this_process())] == []
    assert len(await database.replicas()) == 1
