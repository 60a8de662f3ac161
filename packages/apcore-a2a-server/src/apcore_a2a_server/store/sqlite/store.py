"""The store over an SQLite file (https://sqlite.org/wal.html)."""

import time
from collections.abc import Iterable, Sequence
from sqlite3 import Connection, Row
from typing import Any

from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from apcore_a2a_server.store.errors import LeaseLostError, StaleError
from apcore_a2a_server.store.port import (
    Change,
    Claim,
    Event,
    Lease,
    NewTask,
    Page,
    Query,
    SendKey,
    unpack,
)
from apcore_a2a_server.store.retry import retry_while_unavailable
from apcore_a2a_server.store.rows import (
    before_cursor,
    composed,
    conditions,
    event_columns,
    page_of,
    record_from,
    task_columns,
)

from .file import reads, writes
from .outbox import FileOutbox, add_notifications, add_webhook, dead_letter, replace_webhooks
from .schema import sql

DAY = 24 * 3600  # seconds
PRUNE_BATCH = 500  # tasks deleted at a time, so that other statements need not wait long
DELETE_TASK = (
    sql.delete_task,
    sql.delete_task_events,
    sql.delete_task_messages,
    sql.delete_task_notifications,
    sql.delete_task_sends,
    sql.delete_webhooks,
)


class SqliteStore(FileOutbox):
    """Keeps tasks in one file, for one process; what it has said that it has is on the disk.

    Args:
        path: The file; it and two beside it are made when they are not there.
        lease_seconds: How long a lease lasts that is not renewed.

    Example:
        ```python
        import asyncio
        from pathlib import Path
        from tempfile import mkdtemp

        from apcore_a2a_server.store.sqlite import SqliteStore


        async def main() -> None:
            store = SqliteStore(Path(mkdtemp()) / "agent.db")
            await store.start()
            print(await store.get("t1"))
            #> None
            await store.close()


        asyncio.run(main())
        ```
    """

    async def create(self, new: NewTask) -> Lease:
        """Keep a new task, with all that belongs to it."""
        lease = await self._create(new)
        if new.webhooks:
            self.ring()
        return lease

    @writes
    def _create(self, connection: Connection, new: NewTask) -> Lease:
        record, task_id = new.record, new.record.task.id
        if new.key is not None:
            _reserve(connection, record, new.key)
        expires = time.monotonic() + self.lease_seconds
        values = {**task_columns(record), "owner": record.owner, "expires": expires}
        connection.execute(sql.create, values)
        _add_events(connection, task_id, new.events)
        _add_messages(connection, record, 0)
        if new.webhooks:
            replace_webhooks(connection, task_id, (), new.webhooks)
            add_notifications(connection, task_id, new.events)
        return Lease(task_id, 1)

    async def change(self, change: Change) -> Lease | None:
        """Make a change, also when the disk is full for a while."""
        lease, notifies = await retry_while_unavailable(
            lambda is_retry: self._change(change), self.lease_seconds
        )
        if notifies:
            self.ring()
        return lease

    @writes
    def _change(self, connection: Connection, change: Change) -> tuple[Lease | None, bool]:
        """Make a change; return the lease, and whether there are notifications of it."""
        record, task = change.record, change.record.task
        known = connection.execute(sql.get_version, {"task_id": task.id}).fetchone()
        if known is None or known["version"] != change.base:
            raise StaleError
        if change.lease is not None and change.lease.epoch != known["epoch"]:
            raise LeaseLostError
        if change.webhook is not None:
            add_webhook(connection, task.id, change.webhook)
        _add_events(connection, task.id, change.events)
        notifies = add_notifications(connection, task.id, change.states)
        limit = self.retention.max_events
        trims = record.version - known["first_event"] + 1 > 2 * limit
        values = task_columns(record)
        if change.states:
            connection.execute(sql.change_state, {**values, **_of_run(change, self.lease_seconds)})
            _add_messages(connection, record, known["messages"])
        else:  # the chunks that are about to leave must be in the body
            connection.execute(sql.save_body if trims else sql.save_version, values)
        if trims:
            values["first"] = record.version - limit + 1
            connection.execute(sql.delete_events, values)
            connection.execute(sql.save_first_event, values)
        if task.status.state in SETTLED:
            return None, notifies
        lease = Lease(task.id, known["epoch"] + 1) if change.run else change.lease
        return lease, notifies

    @reads
    def get(self, connection: Connection, task_id: str) -> TaskRecord | None:
        """Return the task's record."""
        row = connection.execute(sql.get, {"task_id": task_id}).fetchone()
        return None if row is None else _record(connection, row)

    @reads
    def get_own(self, connection: Connection, task_id: str, owner: str) -> TaskRecord | None:
        """Return the record if the task is the owner's; others' are not read."""
        row = connection.execute(sql.get_own, {"task_id": task_id, "owner": owner}).fetchone()
        return None if row is None else _record(connection, row)

    @reads
    def events(
        self, connection: Connection, task_id: str, after: int, limit: int = 1000
    ) -> list[Event] | None:
        """Return the next events of a task; None when some of them are gone."""
        values = {"task_id": task_id, "after": after, "limit": limit}
        known = connection.execute(sql.first_event, values).fetchone()
        if known is None or after < known["first_event"] - 1:
            return None
        rows = connection.execute(sql.events, values)
        return [Event(version, unpack(body)) for version, body in rows]

    @reads
    def query(self, connection: Connection, query: Query) -> Page:
        """Return a page of what *query* asks for."""
        where, values = conditions(query, query.owner)
        total = 0
        if query.order == "updated":
            count = composed(sql.count_tasks, where, "")
            (total,) = connection.execute(count, values).fetchone()
        behind, cursor = before_cursor(query)
        statement = composed(sql.list_tasks, (*where, *behind), query.order)
        values |= {**cursor, "limit": query.limit + 1}
        rows = connection.execute(statement, values).fetchall()
        return page_of(rows, query, total, lambda row: _record(connection, row))

    @reads
    def conversation(
        self, connection: Connection, owner: str, context_id: str, limit: int
    ) -> Sequence[a2a.Message]:
        """Return the latest messages of a conversation in their order."""
        values = {"owner": owner, "context_id": context_id, "limit": limit}
        rows = connection.execute(sql.conversation, values)
        return [a2a.Message.FromString(body) for (body,) in rows]

    async def prune(self) -> int:
        """Delete conversations that are over, and surplus tasks."""
        pruned = 0
        await self._dead_letter()
        while found := await self._prune():
            pruned += found
        return pruned

    @writes
    def _dead_letter(self, connection: Connection) -> None:
        dead_letter(connection)

    @writes
    def _prune(self, connection: Connection) -> int:
        """Delete a batch of tasks; return how many."""
        values = {
            "before": time.time() - self.retention.log_ttl,
            "kept": self.retention.max_logs,
            "limit": PRUNE_BATCH,
            "yesterday": time.time() - DAY,
        }
        found = {
            task_id
            for statement in (sql.over, sql.surplus)
            for (task_id,) in connection.execute(statement, values).fetchall()
        }
        for statement in DELETE_TASK:
            connection.executemany(statement, [{"task_id": task_id} for task_id in found])
        return len(found)

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Have these leases last again for their whole time; return those that are lost."""
        return await self._renew(leases, time.monotonic() + self.lease_seconds)

    async def release(self, leases: Sequence[Lease]) -> None:
        """Let others claim these tasks at once."""
        await self._renew(leases, 0)

    @writes
    def _renew(
        self, connection: Connection, leases: Sequence[Lease], expires: float
    ) -> list[Lease]:
        held: set[Lease] = set()
        for lease in leases:
            values = {"task_id": lease.task_id, "epoch": lease.epoch, "expires": expires}
            if connection.execute(sql.renew, values).rowcount:
                held.add(lease)
        return [lease for lease in leases if lease not in held]

    @writes
    def claim(self, connection: Connection, limit: int) -> Sequence[Claim]:
        """Lease up to *limit* tasks whose lease, or whose deadline, has expired."""
        now = time.monotonic()
        values = {"now": now, "time": time.time(), "limit": limit}
        claims: list[Claim] = []
        for row in connection.execute(sql.expired, values).fetchall():
            lease, attempts = Lease(row["id"], row["epoch"] + 1), row["attempts"] + 1
            claims.append(Claim(_record(connection, row), lease, attempts))
            leased = {"task_id": row["id"], "epoch": lease.epoch, "attempts": attempts}
            connection.execute(sql.claim, {**leased, "expires": now + self.lease_seconds})
        return claims


def _reserve(connection: Connection, record: TaskRecord, key: SendKey) -> None:
    """Take an idempotency key for a task.

    Raises:
        RepeatedError: Another task has it.
    """
    values = {"owner": record.owner, "key": key.text, "digest": key.digest}
    for digest, task_id in connection.execute(sql.get_key, values):
        raise key.refusal(digest, task_id)
    connection.execute(sql.add_key, {**values, "task_id": record.task.id})


def _of_run(change: Change, lease_seconds: float) -> dict[str, Any]:
    """Return who runs the task after a change of its state, and when it has ended."""
    state = change.record.task.status.state
    return {
        "run": change.run,
        "settled": state in SETTLED,
        "expires": time.monotonic() + lease_seconds,
        "ended": time.time() if state in TERMINAL else None,
    }


def _add_events(connection: Connection, task_id: str, events: Iterable[Event]) -> None:
    rows = [{"task_id": task_id, **event_columns(event)} for event in events]
    connection.executemany(sql.add_event, rows)


def _add_messages(connection: Connection, record: TaskRecord, known: int) -> None:
    """Keep the messages that the task has had since it had *known* of them."""
    task = record.task
    ids = {"owner": record.owner, "context_id": task.context_id, "task_id": task.id}
    bodies = (message.SerializeToString() for message in record.said_since(known))
    connection.executemany(sql.add_message, [{**ids, "body": body} for body in bodies])


def _record(connection: Connection, row: Row) -> TaskRecord:
    later: Iterable[bytes] = ()
    if row["version"] > row["body_version"]:
        values = {"task_id": row["id"], "after": row["body_version"], "limit": -1}
        later = (body for _, body in connection.execute(sql.events, values))
    return record_from(row, row["owner"], later)
