"""The outbox: notifications that webhooks have still to get, in an SQLite file."""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from apcore_a2a_server.store.errors import StaleError
from apcore_a2a_server.store.port import Event
from apcore_a2a_server.store.rows import (
    event_columns,
    notification_columns,
    notification_from,
    webhook_columns,
    webhook_from,
)
from apcore_a2a_server.store.webhooks import (
    GONE,
    TOO_MANY,
    ClaimRequest,
    Notification,
    Webhook,
    with_webhook,
)

ITS_WEBHOOK = "FROM webhooks w WHERE w.task_id = outbox.task_id AND w.config_id = outbox.config_id"
"""The webhook of a notification."""

OF_WEBHOOK = "task_id = :task_id AND config_id = :config_id AND due IS NOT NULL"
"""The pending notifications of a webhook."""

TAKEN = f"""
task_id = :task_id AND config_id = :config_id AND version = :version AND attempts = :attempts
AND EXISTS (SELECT 1 {ITS_WEBHOOK} AND w.body = :config)
"""
"""The notification was not leased again meanwhile, and its webhook was not set again."""

HAS_TASK = "SELECT 1 FROM tasks WHERE id = :task_id"
"""Return a row if the task is there."""

GET_WEBHOOKS = """
SELECT body, version, failure FROM webhooks WHERE task_id = :task_id ORDER BY number
"""
"""Return the webhooks of a task, oldest first."""

DELETE_WEBHOOKS = "DELETE FROM webhooks WHERE task_id = :task_id"
"""Delete the webhooks of a task."""

INSERT_WEBHOOK = """
INSERT INTO webhooks (task_id, config_id, host, version, failure, body)
VALUES (:task_id, :config_id, :host, :version, :failure, :body)
"""
"""Insert a webhook of a task."""

DELETE_NOTIFICATIONS = "DELETE FROM outbox WHERE task_id = :task_id AND config_id = :config_id"
"""Delete the notifications of a webhook that is gone."""

RESTART = f"UPDATE outbox SET attempts = 0, due = :now, host = :host WHERE {OF_WEBHOOK}"
"""Make the notifications of a webhook that was set again due at once."""

ADD = """
INSERT INTO outbox (task_id, config_id, version, owner, host, body, since, due)
SELECT t.id, w.config_id, :version, t.owner, w.host, :body, :now, coalesce((
    SELECT max(o.due) FROM outbox o WHERE o.task_id = t.id AND o.config_id = w.config_id
), :now)
FROM tasks t JOIN webhooks w ON w.task_id = t.id WHERE t.id = :task_id AND w.failure = ''
"""
"""Add a notification for each webhook of a task; a pause after a failure holds for all of them."""

FIRST_PAIR = """
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL ORDER BY owner, host, due LIMIT 1
"""
"""Return the first owner and host with pending notifications, and when the earliest is due."""

NEXT_HOST = """
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL AND owner = :owner AND host > :host
ORDER BY owner, host, due LIMIT 1
"""
"""Return the owner's next host."""

NEXT_OWNER = """
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL AND owner > :owner
ORDER BY owner, host, due LIMIT 1
"""
"""Return the next owner, with the first host."""

NEXT_NOTIFICATIONS = """
SELECT o.due, o.task_id, o.owner, o.version, o.body, o.attempts + 1 AS attempts, w.body AS config,
    w.version AS dialect
FROM outbox o JOIN webhooks w ON w.task_id = o.task_id AND w.config_id = o.config_id
    AND w.failure = ''
WHERE o.owner = :owner AND o.host = :host AND o.due <= :now AND NOT EXISTS (
    SELECT 1 FROM outbox p WHERE p.task_id = o.task_id AND p.config_id = o.config_id
    AND p.version < o.version AND p.due IS NOT NULL
) ORDER BY o.due, o.version LIMIT :per_host
"""
"""Return the next due notification of each webhook of an owner and a host."""

CLAIM = f"""
UPDATE outbox SET due = :due, attempts = attempts + (version = :version) WHERE {OF_WEBHOOK}
"""
"""Lease a notification, and those of its webhook that wait for it."""

SETTLE = f"DELETE FROM outbox WHERE {TAKEN}"
"""Delete a notification that was delivered."""

IS_TAKEN = f"SELECT 1 FROM outbox WHERE {TAKEN}"
"""Return a row if the notification is still leased."""

POSTPONE = f"UPDATE outbox SET due = :due WHERE {OF_WEBHOOK}"
"""Make the notifications of a webhook due at another time."""

FAIL = """
UPDATE webhooks SET failure = :reason
WHERE task_id = :task_id AND config_id = :config_id AND body = :config AND failure = ''
"""
"""Mark a webhook as failed, unless it was set again."""

DEAD_LETTER_ALL = f"UPDATE outbox SET due = NULL, failure = :reason WHERE {OF_WEBHOOK}"
"""Dead-letter the notifications of a webhook."""

COUNT = """
SELECT owner, count(*), min(since) FROM outbox WHERE due IS NOT NULL GROUP BY owner
"""
"""Count each owner's pending notifications, and return when the oldest was added."""

FAIL_SURPLUS = """
UPDATE webhooks SET failure = :reason WHERE failure = '' AND (task_id, config_id) IN (
    SELECT task_id, config_id FROM outbox WHERE owner = :owner AND due IS NOT NULL
    ORDER BY since, version LIMIT -1 OFFSET :most
)
"""
"""Mark the webhooks as failed that have an owner's latest notifications, beyond `most`."""

DEAD_LETTER = f"""
UPDATE outbox SET due = NULL, failure = coalesce((SELECT w.failure {ITS_WEBHOOK}), :gone)
WHERE due IS NOT NULL AND NOT EXISTS (SELECT 1 {ITS_WEBHOOK} AND w.failure = '')
"""
"""Dead-letter the notifications whose webhook has failed or is gone."""


def webhooks(task_id: str, connection: sqlite3.Connection) -> list[Webhook]:
    """Return the webhooks of a task, oldest first."""
    return [webhook_from(*row) for row in connection.execute(GET_WEBHOOKS, {"task_id": task_id})]


def save_webhooks(task_id: str, new: Sequence[Webhook], connection: sqlite3.Connection) -> None:
    """Replace the webhooks of a task."""
    known, task = webhooks(task_id, connection), {"task_id": task_id}
    connection.execute(DELETE_WEBHOOKS, task)
    connection.executemany(INSERT_WEBHOOK, [task | webhook_columns(webhook) for webhook in new])
    gone = {webhook.config.id for webhook in known} - {webhook.config.id for webhook in new}
    connection.executemany(DELETE_NOTIFICATIONS, [task | {"config_id": each} for each in gone])
    again = (webhook for webhook in new if not webhook.failure and webhook not in known)
    now = task | {"now": time.time()}
    connection.executemany(RESTART, [now | webhook_columns(webhook) for webhook in again])


def replace(
    task_id: str,
    new: Sequence[Webhook],
    known: Sequence[Webhook] | None,
    connection: sqlite3.Connection,
) -> None:
    """Replace the webhooks of a task.

    Raises:
        StaleError: The webhooks are not the *known* ones, or the task is gone.
    """
    is_there = connection.execute(HAS_TASK, {"task_id": task_id}).fetchone()
    if not is_there or (known is not None and [*known] != webhooks(task_id, connection)):
        raise StaleError
    save_webhooks(task_id, new, connection)


def add_webhook(task_id: str, webhook: Webhook, connection: sqlite3.Connection) -> None:
    """Add a webhook to a task, in place of the one with the same id.

    Raises:
        InvalidParamsError: The task has too many.
    """
    save_webhooks(task_id, with_webhook(webhooks(task_id, connection), webhook), connection)


def add(connection: sqlite3.Connection, task_id: str, events: Sequence[Event]) -> bool:
    """Add notifications of events for each webhook of their task; return whether it has any."""
    ids = {"task_id": task_id, "now": time.time()}
    added = connection.executemany(ADD, [ids | event_columns(event) for event in events])
    return added.rowcount > 0


def claim(request: ClaimRequest, connection: sqlite3.Connection) -> list[Notification]:
    """Lease the next due notification of each webhook whose owner and host have a free slot."""
    found = _fitting(request, _next(request, connection))
    due = {"due": time.time() + request.seconds}
    connection.executemany(CLAIM, [due | notification_columns(each) for each in found])
    return found


def _next(request: ClaimRequest, connection: sqlite3.Connection) -> list[Notification]:
    """Return the next notification of each webhook whose host has a free slot, oldest first."""
    now = time.time()
    found: list[sqlite3.Row] = []
    of_owner: Counter[str] = Counter()
    for _, owner, host in sorted(_pairs(request, now, connection)):
        of_owner[owner] += 1
        if of_owner[owner] > request.per_owner:
            continue
        values = {"owner": owner, "host": host, "now": now, "per_host": request.per_host}
        found += connection.execute(NEXT_NOTIFICATIONS, values).fetchall()
    return [notification_from(row, row["owner"]) for row in sorted(found, key=tuple)]


def _pairs(
    request: ClaimRequest, now: float, connection: sqlite3.Connection
) -> Iterator[tuple[float, str, str]]:
    """Yield each owner and host with a free slot and due notifications, and since when.

    Each is found by one look at the index. All hosts of an owner without a free slot are skipped.
    """
    pair = connection.execute(FIRST_PAIR).fetchone()
    while pair is not None:
        due, owner, host = pair
        pair, values = None, {"owner": owner, "host": host}
        if owner not in request.owners:
            if due <= now and (owner, host) not in request.hosts:
                yield due, owner, host
            # comparing both at once would read all notifications of this host
            pair = connection.execute(NEXT_HOST, values).fetchone()
        if pair is None:
            pair = connection.execute(NEXT_OWNER, values).fetchone()


def _fitting(request: ClaimRequest, rows: Iterable[Notification]) -> list[Notification]:
    found: list[Notification] = []
    of_owner: Counter[str] = Counter()
    for row in rows:
        if len(found) < request.limit and of_owner[row.owner] < request.per_owner:
            of_owner[row.owner] += 1
            found.append(row)
    return found


def settle(notification: Notification, connection: sqlite3.Connection) -> None:
    """Delete a notification that was delivered; the next one is due."""
    key = notification_columns(notification)
    if connection.execute(SETTLE, key).rowcount:
        connection.execute(POSTPONE, key | {"due": time.time()})


def postpone(notification: Notification, seconds: float, connection: sqlite3.Connection) -> None:
    """Make a notification, and those behind it, due in so many seconds."""
    key = notification_columns(notification)
    if connection.execute(IS_TAKEN, key).fetchone():
        connection.execute(POSTPONE, key | {"due": time.time() + seconds})


def give_up(notification: Notification, reason: str, connection: sqlite3.Connection) -> int:
    """Mark a webhook as failed; return how many notifications it had."""
    values = {**notification_columns(notification), "reason": reason}
    if not connection.execute(FAIL, values).rowcount:
        return 0
    return connection.execute(DEAD_LETTER_ALL, values).rowcount


def counted(connection: sqlite3.Connection) -> list[tuple[str, int, float]]:
    """Return each owner's number of pending notifications, and when the oldest was added."""
    return connection.execute(COUNT).fetchall()


def give_up_surplus(owners: Iterable[str], most: int, connection: sqlite3.Connection) -> int:
    """Dead-letter what these owners have beyond *most*; return the count."""
    values = [{"owner": owner, "most": most, "reason": TOO_MANY} for owner in owners]
    connection.executemany(FAIL_SURPLUS, values)
    return dead_letter(connection)


def dead_letter(connection: sqlite3.Connection) -> int:
    """Dead-letter notifications whose webhook has failed or is gone; return the count."""
    return connection.execute(DEAD_LETTER, {"gone": GONE}).rowcount
