"""Stores of earlier schema versions are migrated with all their contents."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from a2a import types as sdk
from apcore_a2a_core import to_sdk
from apcore_a2a_core.data import Base64, Message, Part, Task, TaskPushNotificationConfig
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import WORKING
from apcore_a2a_core.values import read_json
from apcore_a2a_server.store import Store, open_store
from apcore_a2a_server.store.exceptions import SchemaError
from apcore_a2a_server.store.maintenance import check, migrate
from apcore_a2a_server.store.port import Lease, unpack_payload
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.postgres.database import CONNECTION_OPTIONS, driver
from apcore_a2a_server.store.postgres.schema import MIGRATION_LOCK
from apcore_a2a_server.store.protobuf_bodies import as_json
from apcore_a2a_server.store.testing.samples import begun, chunk_change, new_record
from apcore_a2a_server.store.webhooks import Webhook

from .postgresql import Database

pytestmark = pytest.mark.anyio

HOOK = TaskPushNotificationConfig(id="h", task_id="t1", url="https://a.example/hook")
BODIES: dict[str, type[Any]] = {
    "tasks": Task,
    "messages": Message,
    "webhooks": TaskPushNotificationConfig,
}
TABLES = (*BODIES, "events", "outbox")


def as_protobuf(table: str, body: bytes) -> bytes:
    """Return a body as schema version 3 stored it."""
    if table in BODIES:
        message: Any = to_sdk(read_json(BODIES[table], body))
        return bytes(message.SerializeToString())
    return body[:1] + bytes(to_sdk(unpack_payload(body)).SerializeToString())


async def fill(address: str) -> TaskRecord:
    """Store a task with a large message, data, a chunk and a webhook; return its record."""
    store = open_store(address)
    await store.start()
    record = new_record()
    data = {"n": 1, "deep": [{"x": 0.5, "none": None}], **{f"k{n}": n for n in range(6000)}}
    record.task.history[0].parts += [
        Part(data=data),
        Part(text="y" * 5000),
        Part(raw=Base64("aGk=")),
    ]
    record, lease = await begun(store, record, [Webhook(HOOK, "0.3")])
    change = chunk_change(record, "chunk", lease)
    await store.change(change)
    await store.close()
    return change.record


async def verify(store: Store, record: TaskRecord) -> None:
    await store.start()
    stored = await store.get("t1")
    assert stored is not None
    assert (stored.task, stored.task.status.state) == (record.task, WORKING)
    events = await store.events("t1", 0)
    assert events is not None
    assert [event.version for event in events] == [1, 2, 3]
    assert list(await store.conversation("ada", "c1", 10)) == record.task.history
    assert [webhook.config for webhook in await store.webhooks("t1")] == [HOOK]
    await store.close()


async def test_protobuf_bodies_in_a_file_become_json(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    address = f"sqlite:///{path}"
    record = await fill(address)
    with closing(sqlite3.connect(path)) as file, file:
        file.create_function("as_protobuf", 2, as_protobuf)
        for table in TABLES:
            file.execute(f"UPDATE {table} SET body = as_protobuf('{table}', body)")
        file.execute("DROP INDEX tasks_context_updated")
        file.execute("DROP INDEX webhooks_failed")
        for column in ("trace", "attempts"):
            file.execute(f"ALTER TABLE webhooks DROP COLUMN {column}")
        file.execute("ALTER TABLE tasks DROP COLUMN spans")
        file.execute("PRAGMA user_version = 3")
    assert await migrate(address) == (3, 9)
    await verify(open_store(address), record)
    assert (await check(address)).tasks == {"working": 1}


@pytest.fixture
async def connection(server: Database) -> AsyncIterator[Any]:
    server.clear()
    opened = await driver.connect(server.url)
    yield opened
    await opened.close()


async def test_protobuf_bodies_in_a_database_become_json(server: Database, connection: Any) -> None:
    record = await fill(server.url)
    for table in TABLES:
        for row in await connection.fetch(f"SELECT ctid::text, body FROM apcore_a2a.{table}"):
            await connection.execute(
                f"UPDATE apcore_a2a.{table} SET body = $2 WHERE ctid = $1::text::tid",
                row["ctid"],
                as_protobuf(table, row["body"]),
            )
    await connection.execute("DELETE FROM apcore_a2a.migrations WHERE version > 3")
    await connection.execute("DROP INDEX apcore_a2a.webhooks_failed_idx")
    for column in ("trace", "attempts"):
        await connection.execute(f"ALTER TABLE apcore_a2a.webhooks DROP COLUMN {column}")
    await connection.execute("ALTER TABLE apcore_a2a.tasks DROP COLUMN spans, DROP COLUMN holder")
    await connection.execute("DROP TABLE apcore_a2a.replicas")
    assert await migrate(server.url) == (3, 9)
    await verify(open_store(server.url), record)
    assert (await check(server.url)).tasks["working"] == 1


async def test_version_8_of_a_file_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    record = await fill(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("PRAGMA user_version = 8")
    assert await migrate(f"sqlite:///{path}") == (8, 9)
    await verify(open_store(f"sqlite:///{path}"), record)


async def test_tasks_of_version_8_have_no_known_replica_until_they_are_claimed(
    server: Database, connection: Any
) -> None:
    record = await fill(server.url)
    await connection.execute("DELETE FROM apcore_a2a.migrations WHERE version > 8")
    await connection.execute("ALTER TABLE apcore_a2a.tasks DROP COLUMN holder")
    await connection.execute("DROP TABLE apcore_a2a.replicas")
    assert await migrate(server.url) == (8, 9)
    await verify(open_store(server.url), record)
    store = PostgresStore(server.url)
    await store.start(replica_id="r1")
    assert await store.lease_holders(["t1"]) == {}
    await store.release([Lease("t1", 1)])
    assert len(await store.claim(1)) == 1
    assert await store.lease_holders(["t1"]) == {"t1": "r1"}
    await store.close()


async def test_a_migration_may_take_longer_than_other_statements(
    server: Database, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apcore_a2a_server.store.postgres.store.SHORTEST_TIMEOUT", 1.0)
    monkeypatch.setitem(CONNECTION_OPTIONS, "command_timeout", 1.0)
    store = PostgresStore(server.url, lease_seconds=1)
    await connection.execute(f"SELECT pg_advisory_lock({MIGRATION_LOCK})")
    starting = asyncio.create_task(store.start())
    await asyncio.wait([starting], timeout=1.5)  # longer than a statement may take
    await connection.execute(f"SELECT pg_advisory_unlock({MIGRATION_LOCK})")
    await starting
    assert await store.get("t1") is None
    await store.close()


async def test_a_newer_schema_is_refused_with_its_version(server: Database) -> None:
    store = PostgresStore(server.url)
    server.clear()
    await store.start()
    await store.close()
    server.sql("INSERT INTO apcore_a2a.migrations VALUES (77)")
    with pytest.raises(SchemaError, match=r"^The store's tables have version 77,"):
        await store.start()
    server.clear()


def test_an_old_body_is_read_by_the_type_in_its_first_byte() -> None:
    event = sdk.TaskStatusUpdateEvent(task_id="t", status={"state": "TASK_STATE_WORKING"})
    payload: Any = unpack_payload(as_json("events", b"\x01" + event.SerializeToString()))
    assert (payload.task_id, payload.status.state) == ("t", WORKING)
