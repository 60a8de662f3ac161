"""Work on the tasks of a file: each function is done whole or not at all."""

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from apcore_a2a_server.store.errors import KeyReusedError, LeaseLostError, RepeatedError, StaleError
from apcore_a2a_server.store.port import (
    Change,
    Claim,
    Event,
    Lease,
    Page,
    Query,
    Retention,
    SendKey,
    unpack,
)
from apcore_a2a_server.store.rows import (
    before_cursor,
    composed,
    conditions,
    event_columns,
    messages_since,
    page_of,
    record_from,
    task_columns,
)
from apcore_a2a_server.store.sqlite import outbox
from apcore_a2a_server.store.webhooks import Webhook

from .schema import sql

DAY = 24 * 3600  # seconds
PRUNE_BATCH = 500  # tasks deleted at a time, so that nobody waits for it long
DELETE_TASK = (
    sql.delete_task,
    sql.delete_task_events,
    sql.delete_task_messages,
    sql.delete_task_notifications,
    sql.delete_task_sends,
    sql.delete_webhooks,
)


def create(
    record: TaskRecord,
    events: Sequence[Event],
    webhooks: Sequence[Webhook],
    key: SendKey | None,
    expires: float,
    connection: sqlite3.Connection,
) -> Lease:
    """Insert a new task, with all that belongs to it."""
    task_id = record.task.id
    if key is not None:
        _reserve(connection, record, key)
    values = {**task_columns(record), "owner": record.owner, "expires": expires}
    connection.execute(sql.create, values)
    _add_events(connection, task_id, events)
    _add_messages(connection, record, 0)
    if webhooks:
        outbox.save_webhooks(task_id, webhooks, connection)
        outbox.add(connection, task_id, events)
    return Lease(task_id, 1)


def _reserve(connection: sqlite3.Connection, record: TaskRecord, key: SendKey) -> None:
    """Take an idempotency key for a task.

    Raises:
        RepeatedError: Another task has it.
    """
    values = {"owner": record.owner, "key": key.text, "digest": key.digest}
    for digest, task_id in connection.execute(sql.get_key, values):
        raise (RepeatedError if digest == key.digest else KeyReusedError)(task_id)
    connection.execute(sql.add_key, {**values, "task_id": record.task.id})


def change(
    change: Change, expires: float, max_events: int, connection: sqlite3.Connection
) -> tuple[Lease | None, bool]:
    """Make a change; return the lease, and whether there are notifications of it.

    Raises:
        StaleError: The task has another version than the change was made from, or is gone.
        LeaseLostError: The task has been leased to somebody else.
        InvalidParamsError: The webhook of the change is one too many.
    """
    record, task = change.record, change.record.task
    known = connection.execute(sql.get_version, {"task_id": task.id}).fetchone()
    if known is None or known["version"] != change.base:
        raise StaleError
    if change.lease is not None and change.lease.epoch != known["epoch"]:
        raise LeaseLostError
    if change.webhook is not None:
        outbox.add_webhook(task.id, change.webhook, connection)
    _add_events(connection, task.id, change.events)
    notifies = outbox.add(connection, task.id, change.states)
    trims = record.version - known["first_event"] + 1 > 2 * max_events
    values = task_columns(record)
    if change.states:
        connection.execute(sql.change_state, {**values, **_of_run(change, expires)})
        _add_messages(connection, record, known["messages"])
    else:  # the chunks that are about to leave must be in the body
        connection.execute(sql.save_body if trims else sql.save_version, values)
    if trims:
        values["first"] = record.version - max_events + 1
        connection.execute(sql.delete_events, values)
        connection.execute(sql.save_first_event, values)
    if task.status.state in SETTLED:
        return None, notifies
    lease = Lease(task.id, known["epoch"] + 1) if change.run else change.lease
    return lease, notifies


def _of_run(change: Change, expires: float) -> dict[str, Any]:
    """Return who runs the task after a change of its state, and when it has ended."""
    state = change.record.task.status.state
    return {
        "run": change.run,
        "settled": state in SETTLED,
        "expires": expires,
        "ended": time.time() if state in TERMINAL else None,
    }


def _add_events(connection: sqlite3.Connection, task_id: str, events: Iterable[Event]) -> None:
    rows = [{"task_id": task_id, **event_columns(event)} for event in events]
    connection.executemany(sql.add_event, rows)


def _add_messages(connection: sqlite3.Connection, record: TaskRecord, known: int) -> None:
    """Keep the messages that the task has had since it had *known* of them."""
    task = record.task
    ids = {"owner": record.owner, "context_id": task.context_id, "task_id": task.id}
    bodies = (message.SerializeToString() for message in messages_since(record, known))
    connection.executemany(sql.add_message, [{**ids, "body": body} for body in bodies])


def get(
    statement: str, values: Mapping[str, str], connection: sqlite3.Connection
) -> TaskRecord | None:
    """Return the record that *statement* selects."""
    row = connection.execute(statement, values).fetchone()
    return None if row is None else _record(connection, row)


def _record(connection: sqlite3.Connection, row: sqlite3.Row) -> TaskRecord:
    later: Iterable[bytes] = ()
    if row["version"] > row["body_version"]:
        values = {"task_id": row["id"], "after": row["body_version"], "limit": -1}
        later = (body for _, body in connection.execute(sql.events, values))
    return record_from(row, row["owner"], later)


def events(
    task_id: str, after: int, limit: int, connection: sqlite3.Connection
) -> list[Event] | None:
    """Return the next events of a task; None when some of them are gone."""
    values = {"task_id": task_id, "after": after, "limit": limit}
    known = connection.execute(sql.first_event, values).fetchone()
    if known is None or after < known["first_event"] - 1:
        return None
    return [
        Event(version, unpack(body)) for version, body in connection.execute(sql.events, values)
    ]


def query(query: Query, connection: sqlite3.Connection) -> Page:
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


def conversation(
    owner: str, context_id: str, limit: int, connection: sqlite3.Connection
) -> list[a2a.Message]:
    """Return the latest messages of a conversation in their order."""
    values = {"owner": owner, "context_id": context_id, "limit": limit}
    rows = connection.execute(sql.conversation, values)
    return [a2a.Message.FromString(body) for (body,) in rows]


def prune(retention: Retention, connection: sqlite3.Connection) -> int:
    """Delete conversations that are over, and surplus tasks; return how many tasks that were."""
    values = {
        "before": time.time() - retention.log_ttl,
        "kept": retention.max_logs,
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


def renew(leases: Sequence[Lease], expires: float, connection: sqlite3.Connection) -> list[Lease]:
    """Renew leases; return those that are lost."""
    return [
        lease
        for lease in leases
        if not connection.execute(
            sql.renew, {"task_id": lease.task_id, "epoch": lease.epoch, "expires": expires}
        ).rowcount
    ]


def claim(limit: int, now: float, expires: float, connection: sqlite3.Connection) -> list[Claim]:
    """Lease tasks whose lease, or whose deadline, has expired."""
    values = {"now": now, "time": time.time(), "limit": limit}
    claims: list[Claim] = []
    for row in connection.execute(sql.expired, values).fetchall():
        lease, attempts = Lease(row["id"], row["epoch"] + 1), row["attempts"] + 1
        claims.append(Claim(_record(connection, row), lease, attempts))
        leased = {"task_id": row["id"], "epoch": lease.epoch, "attempts": attempts}
        connection.execute(sql.claim, {**leased, "expires": expires})
    return claims
