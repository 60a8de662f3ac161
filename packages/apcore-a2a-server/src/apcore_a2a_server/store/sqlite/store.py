"""The store in an SQLite file in WAL mode (https://sqlite.org/wal.html)."""

import json
import time
from collections.abc import Collection, Iterable, Sequence
from sqlite3 import Connection, Row

from apcore_a2a_core.data import Message
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED
from apcore_a2a_core.values import dump_json, read_json
from msgspec.structs import asdict

from apcore_a2a_server.store.exceptions import LeaseLostError, StaleError
from apcore_a2a_server.store.operator_port import OpenTasks
from apcore_a2a_server.store.page_tokens import PageTokens
from apcore_a2a_server.store.port import (
    Change,
    Claim,
    Event,
    Lease,
    NewTask,
    SendKey,
)
from apcore_a2a_server.store.queries import Page, Query
from apcore_a2a_server.store.retry import retry_while_unavailable
from apcore_a2a_server.store.rows import (
    change_columns,
    event_columns,
    open_tasks_from,
    page_from,
    prefix_end,
    record_from,
    sql_conditions,
    task_columns,
    with_conditions,
)

from .file import reads, writes
from .outbox import (
    FileOutbox,
    add_large_messages,
    add_notifications,
    add_webhook,
    complete_payload,
    replace_webhooks,
)
from .schema import sql

DAY = 24 * 3600  # seconds
PRUNE_BATCH = 500  # maximum tasks per query; other jobs can run between batches
DELETE_TASK_STATEMENTS = (
    sql.delete_task,
    sql.delete_task_events,
    sql.delete_task_messages,
    sql.delete_task_notifications,
    sql.delete_task_sends,
    sql.delete_webhooks,
)


class SqliteStore(FileOutbox):
    """A store of tasks in one file, for one process; a change is on disk when its call returns.

    Args:
        path: The file, which is created if it does not exist. Beside it are two files of SQLite,
            and a lock file.
        lease_seconds: Seconds after which a lease expires unless it is renewed.

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

    @writes
    def create(self, connection: Connection, new_task: NewTask) -> Lease:
        """Store a new task with everything that belongs to it."""
        record, task_id = new_task.record, new_task.record.task.id
        if new_task.key is not None:
            _reserve(connection, record, new_task.key)
        times = {"now": time.time(), "expires": time.monotonic() + self.lease_seconds}
        connection.execute(sql.create, {**task_columns(record), "owner": record.owner, **times})
        events = new_task.slim_events()
        _add_events(connection, task_id, events)
        _add_messages(connection, record, 0)
        if new_task.webhooks:
            replace_webhooks(connection, task_id, (), new_task.webhooks)
            add_notifications(connection, task_id, events)
            self.wake_listener()
        return Lease(task_id, 1)

    async def change(self, change: Change) -> Lease | None:
        """Store a change; while the file is unavailable, retry for half of `lease_seconds`."""
        return await retry_while_unavailable(
            lambda is_retry: self._change(change), self.lease_seconds
        )

    @writes
    def _change(self, connection: Connection, change: Change) -> Lease | None:
        record, task = change.record, change.record.task
        task_row = connection.execute(sql.get_version, {"task_id": task.id}).fetchone()
        if task_row is None or task_row["version"] != change.base:
            raise StaleError
        if change.lease is not None and change.lease.epoch != task_row["epoch"]:
            raise LeaseLostError
        if change.webhook is not None:
            add_webhook(connection, task.id, change.webhook)
        _add_events(connection, task.id, change.events)
        if add_notifications(connection, task.id, change.state_events):
            self.wake_listener()
        limit = self.retention.max_events
        must_trim = record.version - task_row["first_event"] + 1 > 2 * limit
        columns = task_columns(record)
        if change.state_events:
            times = {"now": time.time(), "expires": time.monotonic() + self.lease_seconds}
            connection.execute(sql.change_state, {**change_columns(change), **times})
            _add_messages(connection, record, task_row["messages"])
        else:
            # The body is rewritten only when events whose chunks it lacks are about to be deleted:
            # writing a long artifact again for each chunk would take quadratic time.
            connection.execute(sql.save_body if must_trim else sql.save_version, columns)
        if must_trim:
            columns["first"] = record.version - limit + 1
            connection.execute(sql.delete_events, columns)
            connection.execute(sql.save_first_event, columns)
        if task.status.state in SETTLED:
            return None
        return Lease(task.id, task_row["epoch"] + 1) if change.run else change.lease

    @reads
    def get(
        self, connection: Connection, task_id: str, owner: str | None = None
    ) -> TaskRecord | None:
        """Return the task's record; if *owner* is given, only a task of that owner is read."""
        row = connection.execute(sql.get, {"task_id": task_id, "owner": owner}).fetchone()
        return None if row is None else _record(connection, row)

    @reads
    def spans(self, connection: Connection, task_id: str) -> str:
        """Return the spans of a task."""
        row = connection.execute(sql.get_spans, {"task_id": task_id}).fetchone()
        return "" if row is None else str(row["spans"])

    @reads
    def events(
        self, connection: Connection, task_id: str, after: int, limit: int = 1000
    ) -> list[Event] | None:
        """Return events after version *after*; None if some of them, or the task, were deleted."""
        parameters = {"task_id": task_id, "after": after, "limit": limit}
        task_row = connection.execute(sql.get_first_event, parameters).fetchone()
        if task_row is None or after < task_row["first_event"] - 1:
            return None
        rows = connection.execute(sql.events, parameters).fetchall()
        return [Event(version, complete_payload(connection, body)) for version, body in rows]

    @reads
    def query(self, connection: Connection, query: Query) -> Page:
        """Return a page of the tasks that match *query*."""
        (key,) = connection.execute(sql.get_page_key).fetchone()
        tokens = PageTokens(key)
        position = tokens.open(query)
        conditions, page_conditions, parameters = sql_conditions(query, str, position)
        total = 0
        if query.order == "updated":
            count_statement = with_conditions(sql.count_tasks, conditions, "")
            (total,) = connection.execute(count_statement, parameters).fetchone()
        list_statement = with_conditions(sql.list_tasks, page_conditions, query.order)
        rows = connection.execute(list_statement, parameters).fetchall()
        return page_from(rows, query, total, tokens, lambda row: _record(connection, row))

    @reads
    def open_tasks(self, connection: Connection) -> OpenTasks:
        """Count the open tasks by state, with the time of the oldest status."""
        return open_tasks_from(connection.execute(sql.open_tasks).fetchall())

    @reads
    def count_failed_webhooks(self, connection: Connection) -> int:
        """Return how many webhooks of all tasks have failed."""
        return int(connection.execute(sql.count_failed_webhooks).fetchone()[0])

    @reads
    def conversation(
        self, connection: Connection, owner: str, context_id: str, limit: int
    ) -> Sequence[Message]:
        """Return the latest messages of a conversation, oldest first."""
        parameters = {"owner": owner, "context_id": context_id, "limit": limit}
        rows = connection.execute(sql.conversation, parameters)
        return [read_json(Message, body) for (body,) in rows]

    async def prune(self) -> int:
        """Delete expired conversations, and the oldest ended tasks beyond `max_logs`."""
        total = 0
        # a task with pending notifications is kept: dead-letter those of failed webhooks first
        await self.dead_letter()
        while pruned := await self._prune_batch():
            total += pruned
        return total

    @writes
    def _prune_batch(self, connection: Connection) -> int:
        """Delete a batch of tasks; return how many."""
        parameters = {
            "before": time.time() - self.retention.log_ttl,
            "kept": self.retention.max_logs,
            "limit": PRUNE_BATCH,
            "yesterday": time.time() - DAY,
        }
        task_ids = {
            task_id
            for statement in (sql.expired_tasks, sql.surplus_tasks)
            for (task_id,) in connection.execute(statement, parameters).fetchall()
        }
        _delete_tasks(connection, task_ids)
        return len(task_ids)

    @reads
    def owners(self, connection: Connection, prefix: str) -> list[str]:
        """Return the task owners whose names begin with a prefix; none for an empty prefix."""
        bounds = {"owner": prefix, "owner_end": prefix_end(prefix)}
        return [owner for (owner,) in connection.execute(sql.owners, bounds)]

    async def delete_ended(self, owner: str) -> int:
        """Delete an owner's tasks that have ended, with everything that belongs to them."""
        total = 0
        while deleted := await self._delete_batch(owner):
            total += deleted
        return total

    @writes
    def _delete_batch(self, connection: Connection, owner: str) -> int:
        """Delete a batch of an owner's ended tasks; return how many."""
        parameters = {"owner": owner, "limit": PRUNE_BATCH}
        task_ids = {task_id for (task_id,) in connection.execute(sql.ended_tasks, parameters)}
        _delete_tasks(connection, task_ids)
        return len(task_ids)

    @writes
    def extend(
        self, connection: Connection, leases: Sequence[Lease], seconds: float
    ) -> list[Lease]:
        """Make leases expire in *seconds*; return those that are lost."""
        expires = time.monotonic() + seconds
        updates = ({**asdict(lease), "expires": expires} for lease in leases)
        counts = [connection.execute(sql.extend, update).rowcount for update in updates]
        return [lease for lease, is_held in zip(leases, counts, strict=True) if not is_held]

    @writes
    def claim(
        self, connection: Connection, limit: int, running: Collection[str] = ()
    ) -> Sequence[Claim]:
        """Lease up to *limit* tasks that are orphaned, or paused past their deadline."""
        monotonic_now, excluded = time.monotonic(), frozenset(running)
        parameters = {
            "monotonic_now": monotonic_now,
            "now": time.time(),
            "pauses": json.dumps([*self.restart_pauses]),
            "limit": limit + len(excluded),
        }
        claimable_rows = connection.execute(sql.claimable_tasks, parameters).fetchall()
        rows = [row for row in claimable_rows if row["id"] not in excluded][:limit]
        for row in rows:
            new_lease = {"task_id": row["id"], "expires": monotonic_now + self.lease_seconds}
            connection.execute(sql.claim, new_lease)
        return [
            Claim(_record(connection, row), Lease(row["id"], row["epoch"]), row["attempts"])
            for row in rows
        ]


def _delete_tasks(connection: Connection, task_ids: Iterable[str]) -> None:
    """Delete tasks with everything that belongs to them."""
    rows = [{"task_id": task_id} for task_id in task_ids]
    for statement in DELETE_TASK_STATEMENTS:
        connection.executemany(statement, rows)


def _reserve(connection: Connection, record: TaskRecord, send_key: SendKey) -> None:
    """Reserve an idempotency key for a task.

    Raises:
        RepeatedError: Another task has the key.
    """
    columns = {"owner": record.owner, "key": send_key.text, "digest": send_key.digest}
    for digest, task_id in connection.execute(sql.get_key, columns):
        raise send_key.conflict(digest, task_id)
    connection.execute(sql.add_key, {**columns, "task_id": record.task.id})


def _add_events(connection: Connection, task_id: str, events: Iterable[Event]) -> None:
    rows = [{"task_id": task_id, **event_columns(event)} for event in events]
    connection.executemany(sql.add_event, rows)


def _add_messages(connection: Connection, record: TaskRecord, stored_count: int) -> None:
    """Add the task's messages after the first *stored_count* to its conversation."""
    task = record.task
    common = {"owner": record.owner, "context_id": task.context_id, "task_id": task.id}
    bodies = (dump_json(message) for message in record.messages_after(stored_count))
    connection.executemany(sql.add_message, [{**common, "body": body} for body in bodies])


def _record(connection: Connection, task_row: Row) -> TaskRecord:
    """Return the record of a row, with the chunks and large messages that its body lacks."""
    later_events: Iterable[bytes] = ()
    if task_row["version"] > task_row["body_version"]:
        after = task_row["body_version"]
        parameters = {"task_id": task_row["id"], "after": after, "limit": -1}
        later_events = (body for _, body in connection.execute(sql.events, parameters))
    record = record_from(task_row, task_row["owner"], later_events)
    add_large_messages(connection, record.task, record.first)
    return record
