"""What webhooks have to be told, in an SQLite file."""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from a2a import types as a2a

from apcore_a2a_store.errors import StaleError
from apcore_a2a_store.events import Event, pack, unpack
from apcore_a2a_store.webhooks import (
    GONE,
    TOO_MANY,
    Backlog,
    Notification,
    Version,
    Wanted,
    Webhook,
)

ROW = "task_id = ? AND config_id = ? AND version = ? AND attempts = ?"
"""One that nobody else has taken meanwhile."""
ITS_WEBHOOK = "FROM webhooks w WHERE w.task_id = outbox.task_id AND w.config_id = outbox.config_id"


def webhooks(task_id: str, connection: sqlite3.Connection) -> list[Webhook]:
    rows = connection.execute(
        "SELECT body, version, failure FROM webhooks WHERE task_id = ? ORDER BY number",
        (task_id,),
    )
    return [_webhook(*row) for row in rows]


def _webhook(body: bytes, version: Version, failure: str) -> Webhook:
    return Webhook(a2a.TaskPushNotificationConfig.FromString(body), version, failure)


def save_webhooks(task_id: str, new: Sequence[Webhook], connection: sqlite3.Connection) -> None:
    known = webhooks(task_id, connection)
    connection.execute("DELETE FROM webhooks WHERE task_id = ?", (task_id,))
    connection.executemany(
        "INSERT INTO webhooks (task_id, config_id, version, failure, body) VALUES (?, ?, ?, ?, ?)",
        [(task_id, w.config.id, w.version, w.failure, w.config.SerializeToString()) for w in new],
    )
    gone = {w.config.id for w in known} - {w.config.id for w in new}
    connection.executemany(
        "DELETE FROM outbox WHERE task_id = ? AND config_id = ?",
        [(task_id, config_id) for config_id in gone],
    )
    connection.executemany(
        "UPDATE outbox SET attempts = 0, due = ?"
        " WHERE task_id = ? AND config_id = ? AND due IS NOT NULL",
        [(time.time(), task_id, w.config.id) for w in new if not w.failure and w not in known],
    )


def replace(
    task_id: str,
    new: Sequence[Webhook],
    known: Sequence[Webhook] | None,
    connection: sqlite3.Connection,
) -> None:
    if known is not None and [*known] != webhooks(task_id, connection):
        raise StaleError
    save_webhooks(task_id, new, connection)


def add(connection: sqlite3.Connection, task_id: str, events: Sequence[Event]) -> None:
    """Each of the task's webhooks has to be told of these."""
    now = time.time()
    connection.executemany(
        "INSERT INTO outbox (task_id, config_id, version, body, since, due)"
        " SELECT task_id, config_id, ?, ?, ?, ? FROM webhooks WHERE task_id = ? AND failure = ''",
        [(event.version, pack(event.payload), now, now, task_id) for event in events],
    )


def claim(wanted: Wanted, connection: sqlite3.Connection) -> list[Notification]:
    now = time.time()
    rows = connection.execute(
        "SELECT o.task_id, t.owner, o.version, o.body, o.attempts, w.body, w.version"
        " FROM outbox o JOIN tasks t ON t.id = o.task_id"
        " JOIN webhooks w ON w.task_id = o.task_id AND w.config_id = o.config_id"
        " AND w.failure = '' WHERE o.due <= ? AND NOT EXISTS (SELECT 1 FROM outbox p"
        " WHERE p.task_id = o.task_id AND p.config_id = o.config_id AND p.version < o.version"
        " AND p.due IS NOT NULL) ORDER BY o.due, o.version",
        (now,),
    )
    found = _fitting(wanted, map(_notification, rows))
    connection.executemany(
        f"UPDATE outbox SET due = ?, attempts = attempts + 1 WHERE {ROW}",
        [(now + wanted.seconds, *_key(each, each.attempts - 1)) for each in found],
    )
    return found


def _fitting(wanted: Wanted, rows: Iterable[Notification]) -> list[Notification]:
    found: list[Notification] = []
    of_owner = Counter(dict.fromkeys(wanted.owners, wanted.per_owner))
    of_host = Counter(dict.fromkeys(wanted.hosts, wanted.per_host))
    for row in rows:
        if len(found) >= wanted.limit:
            break
        host = row.owner, row.webhook.host
        if of_owner[row.owner] < wanted.per_owner and of_host[host] < wanted.per_host:
            of_owner[row.owner] += 1
            of_host[host] += 1
            found.append(row)
    return found


def _notification(row: Sequence[Any]) -> Notification:
    task_id, owner, version, body, attempts, config, dialect = row
    webhook = _webhook(config, dialect, "")
    return Notification(task_id, owner, version, unpack(body), webhook, attempts + 1)


def _key(of: Notification, attempts: int) -> tuple[str, str, int, int]:
    return of.task_id, of.webhook.config.id, of.version, attempts


def settle(notification: Notification, connection: sqlite3.Connection) -> None:
    key = _key(notification, notification.attempts)
    connection.execute(f"DELETE FROM outbox WHERE {ROW}", key)


def postpone(notification: Notification, seconds: float, connection: sqlite3.Connection) -> None:
    key = _key(notification, notification.attempts)
    connection.execute(f"UPDATE outbox SET due = ? WHERE {ROW}", (time.time() + seconds, *key))


def give_up(notification: Notification, reason: str, connection: sqlite3.Connection) -> int:
    """Dead-letter what waits for a webhook, unless it has been set again."""
    body = notification.webhook.config.SerializeToString()
    ids = notification.task_id, notification.webhook.config.id
    return connection.execute(
        "UPDATE outbox SET due = NULL, failure = ? WHERE task_id = ? AND config_id = ?"
        f" AND due IS NOT NULL AND EXISTS (SELECT 1 {ITS_WEBHOOK} AND w.body = ?)",
        (reason, *ids, body),
    ).rowcount


def backlog(most: int, connection: sqlite3.Connection) -> Backlog:
    connection.execute(
        "UPDATE webhooks SET failure = ? WHERE failure = '' AND (task_id, config_id) IN ("
        " SELECT task_id, config_id FROM (SELECT o.task_id, o.config_id, row_number()"
        " OVER (PARTITION BY t.owner ORDER BY o.since, o.version) AS place"
        " FROM outbox o JOIN tasks t ON t.id = o.task_id WHERE o.due IS NOT NULL)"
        " WHERE place > ?)",
        (TOO_MANY, most),
    )
    given_up = connection.execute(
        f"UPDATE outbox SET due = NULL, failure = coalesce((SELECT w.failure {ITS_WEBHOOK}), ?)"
        f" WHERE due IS NOT NULL AND NOT EXISTS (SELECT 1 {ITS_WEBHOOK} AND w.failure = '')",
        (GONE,),
    ).rowcount
    pending, since = connection.execute(
        "SELECT count(*), min(since) FROM outbox WHERE due IS NOT NULL"
    ).fetchone()
    return Backlog(pending, max(time.time() - since, 0) if pending else 0, given_up)
