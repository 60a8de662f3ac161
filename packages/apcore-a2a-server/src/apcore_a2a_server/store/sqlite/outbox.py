"""What webhooks have to be told, in an SQLite file."""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from a2a import types as a2a
from apcore_a2a_core.records import Version

from apcore_a2a_server.store.errors import StaleError
from apcore_a2a_server.store.events import Event, pack, unpack
from apcore_a2a_server.store.webhooks import GONE, TOO_MANY, Notification, Wanted, Webhook

LANE = "task_id = ? AND config_id = ? AND due IS NOT NULL"
"""What waits for one webhook."""
ITS_WEBHOOK = "FROM webhooks w WHERE w.task_id = outbox.task_id AND w.config_id = outbox.config_id"
ROW = (
    "task_id = ? AND config_id = ? AND version = ? AND attempts = ?"
    f" AND EXISTS (SELECT 1 {ITS_WEBHOOK} AND w.body = ?)"
)
"""One that nobody else has taken meanwhile, to a webhook that was not set again."""


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
        "INSERT INTO webhooks (task_id, config_id, host, version, failure, body)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [
            (task_id, w.config.id, w.host, w.version, w.failure, w.config.SerializeToString())
            for w in new
        ],
    )
    gone = {w.config.id for w in known} - {w.config.id for w in new}
    connection.executemany(
        "DELETE FROM outbox WHERE task_id = ? AND config_id = ?",
        [(task_id, config_id) for config_id in gone],
    )
    connection.executemany(
        f"UPDATE outbox SET attempts = 0, due = ?, host = ? WHERE {LANE}",
        [
            (time.time(), w.host, task_id, w.config.id)
            for w in new
            if not w.failure and w not in known
        ],
    )


def replace(
    task_id: str,
    new: Sequence[Webhook],
    known: Sequence[Webhook] | None,
    connection: sqlite3.Connection,
) -> None:
    is_there = connection.execute("SELECT 1 FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if not is_there or (known is not None and [*known] != webhooks(task_id, connection)):
        raise StaleError
    save_webhooks(task_id, new, connection)


def add(connection: sqlite3.Connection, task_id: str, events: Sequence[Event]) -> None:
    """Each of the task's webhooks has to be told of these, behind what it waits for."""
    now = time.time()
    connection.executemany(
        "INSERT INTO outbox (task_id, config_id, version, owner, host, body, since, due)"
        " SELECT t.id, w.config_id, ?, t.owner, w.host, ?, ?, coalesce((SELECT max(o.due)"
        " FROM outbox o WHERE o.task_id = t.id AND o.config_id = w.config_id), ?)"
        " FROM tasks t JOIN webhooks w ON w.task_id = t.id WHERE t.id = ? AND w.failure = ''",
        [(event.version, pack(event.payload), now, now, task_id) for event in events],
    )


def claim(wanted: Wanted, connection: sqlite3.Connection) -> list[Notification]:
    found = _fitting(wanted, _heads(wanted, connection))
    due = time.time() + wanted.seconds
    connection.executemany(
        f"UPDATE outbox SET due = ?, attempts = attempts + (version = ?) WHERE {LANE}",
        [(due, each.version, *_lane(each)) for each in found],
    )
    return found


def _heads(wanted: Wanted, connection: sqlite3.Connection) -> list[Notification]:
    """The next notification of each webhook, the oldest first, as far as its host has time."""
    now = time.time()
    found: list[Any] = []
    of_owner: Counter[str] = Counter()
    for _, owner, host in sorted(_pairs(wanted, now, connection)):
        of_owner[owner] += 1
        if of_owner[owner] > wanted.per_owner:
            continue
        found += connection.execute(
            "SELECT o.due, o.task_id, o.owner, o.version, o.body, o.attempts, w.body, w.version"
            " FROM outbox o JOIN webhooks w ON w.task_id = o.task_id"
            " AND w.config_id = o.config_id AND w.failure = ''"
            " WHERE o.owner = ? AND o.host = ? AND o.due <= ? AND NOT EXISTS (SELECT 1"
            " FROM outbox p WHERE p.task_id = o.task_id AND p.config_id = o.config_id"
            " AND p.version < o.version AND p.due IS NOT NULL) ORDER BY o.due, o.version LIMIT ?",
            (owner, host, now, wanted.per_host),
        ).fetchall()
    return [_notification(row) for row in sorted(found)]


def _pairs(
    wanted: Wanted, now: float, connection: sqlite3.Connection
) -> Iterator[tuple[float, str, str]]:
    """Since when something is due for which owner and host, as far as there is time for them.

    Each is found by one look at the index; of owners without time, one is enough for all hosts.
    """
    sql = "SELECT due, owner, host FROM outbox WHERE due IS NOT NULL"
    first = "ORDER BY owner, host, due LIMIT 1"
    pair = connection.execute(f"{sql} {first}").fetchone()
    while pair is not None:
        due, owner, host = pair
        pair = None
        if owner not in wanted.owners:
            if due <= now and (owner, host) not in wanted.hosts:
                yield due, owner, host
            # a comparison of both at once would go through all that waits for this host
            next_host = f"{sql} AND owner = ? AND host > ? {first}"
            pair = connection.execute(next_host, (owner, host)).fetchone()
        if pair is None:
            pair = connection.execute(f"{sql} AND owner > ? {first}", (owner,)).fetchone()


def _fitting(wanted: Wanted, rows: Iterable[Notification]) -> list[Notification]:
    found: list[Notification] = []
    of_owner: Counter[str] = Counter()
    for row in rows:
        if len(found) < wanted.limit and of_owner[row.owner] < wanted.per_owner:
            of_owner[row.owner] += 1
            found.append(row)
    return found


def _notification(row: Sequence[Any]) -> Notification:
    _, task_id, owner, version, body, attempts, config, dialect = row
    webhook = _webhook(config, dialect, "")
    return Notification(task_id, owner, version, unpack(body), webhook, attempts + 1)


def _lane(of: Notification) -> tuple[str, str]:
    return of.task_id, of.webhook.config.id


def _row(of: Notification) -> tuple[str, str, int, int, bytes]:
    return *_lane(of), of.version, of.attempts, of.webhook.config.SerializeToString()


def settle(notification: Notification, connection: sqlite3.Connection) -> None:
    if connection.execute(f"DELETE FROM outbox WHERE {ROW}", _row(notification)).rowcount:
        _set_due(connection, notification, 0)


def postpone(notification: Notification, seconds: float, connection: sqlite3.Connection) -> None:
    if connection.execute(f"SELECT 1 FROM outbox WHERE {ROW}", _row(notification)).fetchone():
        _set_due(connection, notification, seconds)


def _set_due(connection: sqlite3.Connection, of: Notification, seconds: float) -> None:
    """What a webhook has to be told is due together: nobody looks at it before."""
    due = time.time() + seconds
    connection.execute(f"UPDATE outbox SET due = ? WHERE {LANE}", (due, *_lane(of)))


def give_up(notification: Notification, reason: str, connection: sqlite3.Connection) -> int:
    """Have a webhook fail, and dead-letter what waits for it, unless it has been set again."""
    lane, body = _lane(notification), notification.webhook.config.SerializeToString()
    failed = connection.execute(
        "UPDATE webhooks SET failure = ?"
        " WHERE task_id = ? AND config_id = ? AND body = ? AND failure = ''",
        (reason, *lane, body),
    ).rowcount
    if not failed:
        return 0
    sql = f"UPDATE outbox SET due = NULL, failure = ? WHERE {LANE}"
    return connection.execute(sql, (reason, *lane)).rowcount


def counted(connection: sqlite3.Connection) -> list[tuple[str, int, float]]:
    """How many wait for each owner, and since when the oldest."""
    return connection.execute(
        "SELECT owner, count(*), min(since) FROM outbox WHERE due IS NOT NULL GROUP BY owner"
    ).fetchall()


def give_up_surplus(owners: Sequence[str], most: int, connection: sqlite3.Connection) -> int:
    """Have the webhooks fail to which these owners have more than so many; how much that was."""
    for owner in owners:
        connection.execute(
            "UPDATE webhooks SET failure = ? WHERE failure = '' AND (task_id, config_id) IN ("
            " SELECT task_id, config_id FROM outbox WHERE owner = ? AND due IS NOT NULL"
            " ORDER BY since, version LIMIT -1 OFFSET ?)",
            (TOO_MANY, owner, most),
        )
    return bury(connection)


def bury(connection: sqlite3.Connection) -> int:
    """Dead-letter what nobody is to be told of any more."""
    return connection.execute(
        f"UPDATE outbox SET due = NULL, failure = coalesce((SELECT w.failure {ITS_WEBHOOK}), ?)"
        f" WHERE due IS NOT NULL AND NOT EXISTS (SELECT 1 {ITS_WEBHOOK} AND w.failure = '')",
        (GONE,),
    ).rowcount
