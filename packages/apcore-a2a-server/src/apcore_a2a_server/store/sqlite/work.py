"""What is done with a connection: each function is one piece of work, done whole or not at all."""

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from apcore_a2a_server.store.cursors import number_of
from apcore_a2a_server.store.errors import KeyReusedError, LeaseLostError, RepeatedError, StaleError
from apcore_a2a_server.store.events import Event, fold, pack, unpack
from apcore_a2a_server.store.port import Change, Claim, Lease, Page, Query, SendKey
from apcore_a2a_server.store.sqlite import outbox
from apcore_a2a_server.store.webhooks import Webhook

COLUMNS = "owner, skill, version, resume, messages, deadline, id, body, body_version"
OF_TASKS = ("events", "messages", "webhooks", "sends", "outbox")
DAY = 24 * 3600
"""Seconds."""
PRUNED = 500
"""How many tasks are dropped at a time, so that nobody waits for it long."""
UNTOLD = (
    "NOT EXISTS (SELECT 1 FROM outbox WHERE task_id = t.id"
    " AND due IS NOT NULL AND since > :yesterday)"
)
"""Nobody waits to be told of the task; what has waited for a day holds nothing back."""
NEXT_UPDATE = "(SELECT coalesce(max(updated), 0) + 1 FROM tasks)"
SAVE_STATE = f"""
UPDATE tasks SET
    state = :state, status_at = :status_at, updated = {NEXT_UPDATE}, messages = :messages,
    resume = :resume, deadline = :deadline, body = :body,
    body_version = :version, version = :version,
    epoch = epoch + :run, attempts = CASE WHEN :run THEN 0 ELSE attempts END,
    expires = CASE WHEN :settled THEN NULL WHEN :run THEN :expires ELSE expires END,
    ended = :ended
WHERE id = :id
"""


def create(
    record: TaskRecord,
    events: Sequence[Event],
    webhooks: Sequence[Webhook],
    key: SendKey | None,
    expires: float,
    connection: sqlite3.Connection,
) -> Lease:
    """Keep a new task."""
    task = record.task
    if key is not None:
        _reserve(connection, record, key)
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
    if webhooks:
        outbox.save_webhooks(task.id, webhooks, connection)
        outbox.add(connection, task.id, events)
    return Lease(task.id, 1)


def _reserve(connection: sqlite3.Connection, record: TaskRecord, key: SendKey) -> None:
    """Take a key for a task, unless another has it."""
    sql = "SELECT digest, task_id FROM sends WHERE owner = ? AND key = ?"
    for digest, task_id in connection.execute(sql, (record.owner, key.text)):
        raise (RepeatedError if digest == key.digest else KeyReusedError)(task_id)
    connection.execute(
        "INSERT INTO sends (owner, key, digest, task_id) VALUES (?, ?, ?, ?)",
        (record.owner, key.text, key.digest, record.task.id),
    )


def change(
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
    outbox.add(connection, task.id, change.states)
    trims = record.version - first_event + 1 > 2 * max_events
    if change.states:
        _save_state(connection, change, expires)
        _listen(connection, record, messages)
    elif trims:  # the chunks that are about to leave must be in the body
        _save_body(connection, record)
    else:
        connection.execute("UPDATE tasks SET version = ? WHERE id = ?", (record.version, task.id))
    if trims:
        _trim(connection, task.id, record.version - max_events + 1)
    if task.status.state in SETTLED:
        return None
    return Lease(task.id, epoch + 1) if change.run else change.lease


def _save_state(connection: sqlite3.Connection, change: Change, expires: float) -> None:
    record, task, state = change.record, change.record.task, change.record.task.status.state
    connection.execute(
        SAVE_STATE,
        {
            "id": task.id,
            "state": state,
            "status_at": _moment(task),
            "messages": record.messages,
            "resume": record.resume,
            "deadline": record.deadline,
            "body": task.SerializeToString(),
            "version": record.version,
            "run": change.run,
            "settled": state in SETTLED,
            "expires": expires,
            "ended": time.time() if state in TERMINAL else None,
        },
    )


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


def get(where: str, values: tuple[str, ...], connection: sqlite3.Connection) -> TaskRecord | None:
    row = connection.execute(f"SELECT {COLUMNS} FROM tasks WHERE {where}", values).fetchone()
    return None if row is None else _record(connection, row)


def _record(connection: sqlite3.Connection, row: Sequence[Any]) -> TaskRecord:
    """The record of a row; what its body has not yet is in its events."""
    owner, skill, version, resume, messages, deadline, task_id, body, body_version = row
    task = a2a.Task.FromString(body)
    if version > body_version:
        for event in events(task_id, body_version, version - body_version, connection) or ():
            if isinstance(event.payload, a2a.TaskArtifactUpdateEvent):
                fold(task, event.payload)
    return TaskRecord(task, owner, skill, version, resume, messages, deadline)


def events(
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


def query(query: Query, connection: sqlite3.Connection) -> Page:
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


def conversation(
    owner: str, context_id: str, limit: int, connection: sqlite3.Connection
) -> list[a2a.Message]:
    rows = connection.execute(
        "SELECT body FROM messages WHERE owner = ? AND context_id = ? ORDER BY number DESC LIMIT ?",
        (owner, context_id, limit),
    ).fetchall()
    return [a2a.Message.FromString(body) for (body,) in reversed(rows)]


def prune(before: float, most: int, connection: sqlite3.Connection) -> int:
    values = {"before": before, "most": most, "limit": PRUNED, "yesterday": time.time() - DAY}
    over = connection.execute(
        f"SELECT id FROM tasks t WHERE ended < :before AND {UNTOLD}"
        " AND NOT EXISTS (SELECT 1 FROM tasks o"
        " WHERE o.owner = t.owner AND o.context_id = t.context_id"
        " AND (o.ended IS NULL OR o.ended >= :before)) ORDER BY ended LIMIT :limit",
        values,
    ).fetchall()
    surplus = connection.execute(
        f"SELECT id FROM tasks t WHERE ended IS NOT NULL AND {UNTOLD}"
        " ORDER BY ended DESC LIMIT :limit OFFSET :most",
        values,
    ).fetchall()
    gone = {*over, *surplus}
    for table, column in (("tasks", "id"), *((name, "task_id") for name in OF_TASKS)):
        connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)
    return len(gone)


def renew(leases: Sequence[Lease], expires: float, connection: sqlite3.Connection) -> list[Lease]:
    sql = "UPDATE tasks SET expires = ? WHERE id = ? AND epoch = ? AND expires IS NOT NULL"
    return [
        lease
        for lease in leases
        if not connection.execute(sql, (expires, lease.task_id, lease.epoch)).rowcount
    ]


def claim(limit: int, now: float, expires: float, connection: sqlite3.Connection) -> list[Claim]:
    rows = connection.execute(
        f"SELECT {COLUMNS}, epoch, attempts FROM tasks WHERE expires <= ?"
        f" UNION ALL SELECT {COLUMNS}, epoch, attempts FROM tasks"
        " WHERE expires IS NULL AND deadline <= ? LIMIT ?",
        (now, time.time(), limit),
    ).fetchall()
    claims = [
        Claim(_record(connection, row), Lease(row[6], epoch + 1), attempts + 1)
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
