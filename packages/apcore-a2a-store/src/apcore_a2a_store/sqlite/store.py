"""The store over an SQLite file (https://sqlite.org/wal.html)."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from a2a import types as a2a

from apcore_a2a_store.cursors import number_of
from apcore_a2a_store.errors import LeaseLostError, StaleError, StoreError
from apcore_a2a_store.events import Event, fold, pack, unpack
from apcore_a2a_store.port import Change, Claim, Lease, Page, Query, Store
from apcore_a2a_store.records import TaskRecord
from apcore_a2a_store.states import SETTLED, TERMINAL
from apcore_a2a_store.webhooks import Version, Webhook

from .lock import only_process
from .schema import migrate
from .worker import Worker

Result = TypeVar("Result")

COLUMNS = "owner, skill, version, resume, messages, id, body, body_version"
BUSY = 5.0
"""Seconds in which another program, such as a backup, may let go of the file."""


class SqliteStore(Store):
    """Keeps tasks in one file, for one process; what it has said that it has is on the disk.

    Args:
        path: The file; it and two beside it are made when they are not there.

    Example:
        ```python
        import asyncio
        from pathlib import Path
        from tempfile import mkdtemp

        from apcore_a2a_store.sqlite import SqliteStore


        async def main() -> None:
            store = SqliteStore(Path(mkdtemp()) / "agent.db")
            await store.start()
            print(await store.get("t1"))
            #> None
            await store.close()


        asyncio.run(main())
        ```
    """

    keeps_webhooks = True
    is_durable = True

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._writer: Worker | None = None
        self._reader: Worker | None = None
        self._release: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Open the file, and bring it up to date.

        Raises:
            StoreError: Another process has it, it can't be opened, or it is too new.
        """
        if self._writer is not None:
            return
        self._release = only_process(self.path)
        try:
            await asyncio.to_thread(self._prepare)
        except BaseException:
            self._release()
            raise
        self._writer, self._reader = (Worker(self._connect, writes=w) for w in (True, False))
        self._writer.start()
        self._reader.start()

    async def close(self) -> None:
        """Write what is still to be written, and close the file."""
        workers, self._writer, self._reader = [self._writer, self._reader], None, None
        for worker in workers:
            if worker is not None:
                await worker.close()
        self._release()

    async def create(
        self, record: TaskRecord, events: Sequence[Event], webhooks: Sequence[Webhook] = ()
    ) -> Lease:
        """Keep a new task, with all that belongs to it."""
        expires = time.monotonic() + self.lease_seconds
        return await self._write(partial(_create, record, events, webhooks, expires))

    async def change(self, change: Change) -> Lease | None:
        """Make a change."""
        expires = time.monotonic() + self.lease_seconds
        return await self._write(partial(_change, change, expires, self.retention.max_events))

    async def get(self, task_id: str) -> TaskRecord | None:
        """The task's record."""
        return await self._read(partial(_get, "id = ?", (task_id,)))

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's; one of others is not read."""
        return await self._read(partial(_get, "id = ? AND owner = ?", (task_id, owner)))

    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """The next events of a task; None when some of them are gone."""
        return await self._read(partial(_events, task_id, after, limit))

    async def query(self, query: Query) -> Page:
        """A page of what *query* asks for."""
        return await self._read(partial(_query, query))

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[a2a.Message]:
        """The latest messages of a conversation, in the order in which they came."""
        return await self._read(partial(_conversation, owner, context_id, limit))

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        return await self._read(partial(_webhooks, task_id))

    async def save_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Keep these as the webhooks of a task."""
        await self._write(partial(_save_webhooks, task_id, webhooks))

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Have these leases last again for their whole time; returns those that are lost."""
        return await self._write(partial(_renew, leases, time.monotonic() + self.lease_seconds))

    async def release(self, leases: Sequence[Lease]) -> None:
        """Let others claim these tasks at once."""
        await self._write(partial(_renew, leases, 0))

    async def claim(self, limit: int) -> Sequence[Claim]:
        """Lease up to *limit* tasks whose leases have expired."""
        now = time.monotonic()
        return await self._write(partial(_claim, limit, now, now + self.lease_seconds))

    async def _write(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return await self._do(self._writer, work)

    async def _read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return await self._do(self._reader, work)

    async def _do(
        self, worker: Worker | None, work: Callable[[sqlite3.Connection], Result]
    ) -> Result:
        if worker is None:
            raise StoreError("The store is not open")
        return await worker.do(work)

    def _prepare(self) -> None:
        connection = self._connect()
        try:
            migrate(connection)
            # whoever had them is gone: there is one process
            connection.execute("UPDATE tasks SET expires = 0 WHERE expires IS NOT NULL")
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection


def _create(
    record: TaskRecord,
    events: Sequence[Event],
    webhooks: Sequence[Webhook],
    expires: float,
    connection: sqlite3.Connection,
) -> Lease:
    task = record.task
    connection.execute(
        "INSERT INTO tasks (id, owner, context_id, skill, state, status_at, updated, version,"
        " messages, body, body_version, resume, epoch, attempts, expires)"
        f" VALUES (?, ?, ?, ?, ?, ?, {NEXT_UPDATE}, ?, ?, ?, ?, ?, 1, 0, ?)",
        (
            *(task.id, record.owner, task.context_id, record.skill),
            *(task.status.state, _moment(task), record.version, record.messages),
            *(task.SerializeToString(), record.version, record.resume, expires),
        ),
    )
    _add_events(connection, task.id, events)
    _listen(connection, record, 0)
    _save_webhooks(task.id, webhooks, connection)
    return Lease(task.id, 1)


NEXT_UPDATE = "(SELECT coalesce(max(updated), 0) + 1 FROM tasks)"


def _change(
    change: Change, expires: float, max_events: int, connection: sqlite3.Connection
) -> Lease | None:
    record, task = change.record, change.record.task
    known = connection.execute(
        "SELECT version, epoch, first_event, messages FROM tasks WHERE id = ?", (task.id,)
    ).fetchone()
    if known is None or known[0] != change.base:
        raise StaleError
    _, epoch, first_event, messages = known
    if change.lease is not None and change.lease.epoch != epoch:
        raise LeaseLostError
    _add_events(connection, task.id, change.events)
    trims = record.version - first_event + 1 > 2 * max_events
    if any(isinstance(event.payload, a2a.TaskStatusUpdateEvent) for event in change.events):
        _save_state(connection, record)
        _listen(connection, record, messages)
    elif trims:  # the chunks that are about to leave must be in the body
        _save_body(connection, record)
    else:
        connection.execute("UPDATE tasks SET version = ? WHERE id = ?", (record.version, task.id))
    if trims:
        _trim(connection, task.id, record.version - max_events + 1)
    if task.status.state in SETTLED:
        ended = time.time() if task.status.state in TERMINAL else None
        sql = "UPDATE tasks SET expires = NULL, ended = ? WHERE id = ?"
        connection.execute(sql, (ended, task.id))
        return None
    if not change.run:
        return change.lease
    sql = "UPDATE tasks SET epoch = ?, attempts = 0, expires = ? WHERE id = ?"
    connection.execute(sql, (epoch + 1, expires, task.id))
    return Lease(task.id, epoch + 1)


def _save_state(connection: sqlite3.Connection, record: TaskRecord) -> None:
    task = record.task
    connection.execute(
        f"UPDATE tasks SET state = ?, status_at = ?, updated = {NEXT_UPDATE}, messages = ?,"
        " resume = ? WHERE id = ?",
        (task.status.state, _moment(task), record.messages, record.resume, task.id),
    )
    _save_body(connection, record)


def _save_body(connection: sqlite3.Connection, record: TaskRecord) -> None:
    body, version = record.task.SerializeToString(), record.version
    connection.execute(
        "UPDATE tasks SET body = ?, body_version = ?, version = ? WHERE id = ?",
        (body, version, version, record.task.id),
    )


def _add_events(connection: sqlite3.Connection, task_id: str, events: Sequence[Event]) -> None:
    connection.executemany(
        "INSERT INTO events (task_id, version, body) VALUES (?, ?, ?)",
        [(task_id, event.version, pack(event.payload)) for event in events],
    )


def _trim(connection: sqlite3.Connection, task_id: str, first: int) -> None:
    connection.execute("DELETE FROM events WHERE task_id = ? AND version < ?", (task_id, first))
    connection.execute("UPDATE tasks SET first_event = ? WHERE id = ?", (first, task_id))


def _listen(connection: sqlite3.Connection, record: TaskRecord, known: int) -> None:
    """Keep the messages that the task has had since the last time."""
    if record.messages > known:
        latest = record.said()[known - record.messages :]
        ids = record.owner, record.task.context_id, record.task.id
        connection.executemany(
            "INSERT INTO messages (owner, context_id, task_id, body) VALUES (?, ?, ?, ?)",
            [(*ids, message.SerializeToString()) for message in latest],
        )


def _get(where: str, values: tuple[str, ...], connection: sqlite3.Connection) -> TaskRecord | None:
    row = connection.execute(f"SELECT {COLUMNS} FROM tasks WHERE {where}", values).fetchone()
    return None if row is None else _record(connection, row)


def _record(connection: sqlite3.Connection, row: Sequence[Any]) -> TaskRecord:
    """The record of a row; what its body has not yet is in its events."""
    owner, skill, version, resume, messages, task_id, body, body_version = row
    task = a2a.Task.FromString(body)
    if version > body_version:
        for event in _events(task_id, body_version, version - body_version, connection) or ():
            if isinstance(event.payload, a2a.TaskArtifactUpdateEvent):
                fold(task, event.payload)
    return TaskRecord(task, owner, skill, version, resume, messages)


def _events(
    task_id: str, after: int, limit: int, connection: sqlite3.Connection
) -> list[Event] | None:
    known = connection.execute("SELECT first_event FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if known is None or after < known[0] - 1:
        return None
    rows = connection.execute(
        "SELECT version, body FROM events WHERE task_id = ? AND version > ?"
        " ORDER BY version LIMIT ?",
        (task_id, after, limit),
    )
    return [Event(version, unpack(body)) for version, body in rows]


def _query(query: Query, connection: sqlite3.Connection) -> Page:
    where, values = ["owner = ?"], [query.owner, *list[Any]()]
    for column, value in (("context_id = ?", query.context_id), ("state = ?", query.state)):
        if value:
            where.append(column)
            values.append(value)
    if query.after:
        where.append("status_at >= ?")
        values.append(query.after)
    total = 0
    if query.order == "updated":
        sql = f"SELECT count(*) FROM tasks WHERE {' AND '.join(where)}"
        (total,) = connection.execute(sql, values).fetchone()
    if query.cursor is not None:
        where.append(f"{query.order} < ?")
        values.append(number_of(query.cursor))
    rows = connection.execute(
        f"SELECT {COLUMNS}, {query.order} FROM tasks WHERE {' AND '.join(where)}"
        f" ORDER BY {query.order} DESC LIMIT ?",
        [*values, query.limit + 1],
    ).fetchall()
    page = [_record(connection, row[:-1]) for row in rows[: query.limit]]
    more = len(rows) > query.limit
    return Page(page, str(rows[query.limit - 1][-1]) if more else None, total)


def _conversation(
    owner: str, context_id: str, limit: int, connection: sqlite3.Connection
) -> list[a2a.Message]:
    rows = connection.execute(
        "SELECT body FROM messages WHERE owner = ? AND context_id = ? ORDER BY number DESC LIMIT ?",
        (owner, context_id, limit),
    ).fetchall()
    return [a2a.Message.FromString(body) for (body,) in reversed(rows)]


def _webhooks(task_id: str, connection: sqlite3.Connection) -> list[Webhook]:
    rows = connection.execute(
        "SELECT body, version, failure FROM webhooks WHERE task_id = ? ORDER BY number",
        (task_id,),
    )
    return [_webhook(*row) for row in rows]


def _webhook(body: bytes, version: Version, failure: str) -> Webhook:
    return Webhook(a2a.TaskPushNotificationConfig.FromString(body), version, failure)


def _save_webhooks(
    task_id: str, webhooks: Sequence[Webhook], connection: sqlite3.Connection
) -> None:
    connection.execute("DELETE FROM webhooks WHERE task_id = ?", (task_id,))
    connection.executemany(
        "INSERT INTO webhooks (task_id, version, failure, body) VALUES (?, ?, ?, ?)",
        [(task_id, w.version, w.failure, w.config.SerializeToString()) for w in webhooks],
    )


def _renew(leases: Sequence[Lease], expires: float, connection: sqlite3.Connection) -> list[Lease]:
    sql = "UPDATE tasks SET expires = ? WHERE id = ? AND epoch = ? AND expires IS NOT NULL"
    return [
        lease
        for lease in leases
        if not connection.execute(sql, (expires, lease.task_id, lease.epoch)).rowcount
    ]


def _claim(limit: int, now: float, expires: float, connection: sqlite3.Connection) -> list[Claim]:
    rows = connection.execute(
        f"SELECT {COLUMNS}, epoch, attempts FROM tasks WHERE expires <= ? ORDER BY expires LIMIT ?",
        (now, limit),
    ).fetchall()
    claims = [
        Claim(_record(connection, row), Lease(row[5], epoch + 1), attempts + 1)
        for *row, epoch, attempts in rows
    ]
    connection.executemany(
        "UPDATE tasks SET epoch = ?, attempts = ?, expires = ? WHERE id = ?",
        [(c.lease.epoch, c.attempts, expires, c.lease.task_id) for c in claims],
    )
    return claims


def _moment(task: a2a.Task) -> float:
    """Seconds since 1970."""
    timestamp = task.status.timestamp
    return timestamp.seconds + timestamp.nanos / 1e9
