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

from .schema import sql


def webhooks(task_id: str, connection: sqlite3.Connection) -> list[Webhook]:
    """Return the webhooks of a task, oldest first."""
    return [
        webhook_from(*row) for row in connection.execute(sql.get_webhooks, {"task_id": task_id})
    ]


def save_webhooks(task_id: str, new: Sequence[Webhook], connection: sqlite3.Connection) -> None:
    """Replace the webhooks of a task."""
    known, task = webhooks(task_id, connection), {"task_id": task_id}
    connection.execute(sql.delete_webhooks, task)
    connection.executemany(sql.add_webhook, [task | webhook_columns(webhook) for webhook in new])
    gone = {webhook.config.id for webhook in known} - {webhook.config.id for webhook in new}
    connection.executemany(sql.delete_notifications, [task | {"config_id": each} for each in gone])
    again = (webhook for webhook in new if not webhook.failure and webhook not in known)
    now = task | {"now": time.time()}
    connection.executemany(sql.restart, [now | webhook_columns(webhook) for webhook in again])


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
    is_there = connection.execute(sql.has_task, {"task_id": task_id}).fetchone()
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
    added = connection.executemany(
        sql.add_notifications, [ids | event_columns(event) for event in events]
    )
    return added.rowcount > 0


def claim(request: ClaimRequest, connection: sqlite3.Connection) -> list[Notification]:
    """Lease the next due notification of each webhook whose owner and host have a free slot."""
    found = _fitting(request, _next(request, connection))
    due = {"due": time.time() + request.seconds}
    connection.executemany(
        sql.claim_notification, [due | notification_columns(each) for each in found]
    )
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
        found += connection.execute(sql.next_notifications, values).fetchall()
    return [notification_from(row, row["owner"]) for row in sorted(found, key=tuple)]


def _pairs(
    request: ClaimRequest, now: float, connection: sqlite3.Connection
) -> Iterator[tuple[float, str, str]]:
    """Yield each owner and host with a free slot and due notifications, and since when.

    Each is found by one look at the index. All hosts of an owner without a free slot are skipped.
    """
    pair = connection.execute(sql.first_pair).fetchone()
    while pair is not None:
        due, owner, host = pair
        pair, values = None, {"owner": owner, "host": host}
        if owner not in request.owners:
            if due <= now and (owner, host) not in request.hosts:
                yield due, owner, host
            # comparing both at once would read all notifications of this host
            pair = connection.execute(sql.next_host, values).fetchone()
        if pair is None:
            pair = connection.execute(sql.next_owner, values).fetchone()


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
    if connection.execute(sql.settle, key).rowcount:
        connection.execute(sql.postpone, key | {"due": time.time()})


def postpone(notification: Notification, seconds: float, connection: sqlite3.Connection) -> None:
    """Make a notification, and those behind it, due in so many seconds."""
    key = notification_columns(notification)
    if connection.execute(sql.is_claimed, key).fetchone():
        connection.execute(sql.postpone, key | {"due": time.time() + seconds})


def give_up(notification: Notification, reason: str, connection: sqlite3.Connection) -> int:
    """Mark a webhook as failed; return how many notifications it had."""
    values = {**notification_columns(notification), "reason": reason}
    if not connection.execute(sql.fail, values).rowcount:
        return 0
    return connection.execute(sql.dead_letter, values).rowcount


def counted(connection: sqlite3.Connection) -> list[tuple[str, int, float]]:
    """Return each owner's number of pending notifications, and when the oldest was added."""
    return connection.execute(sql.count_pending).fetchall()


def give_up_surplus(owners: Iterable[str], most: int, connection: sqlite3.Connection) -> int:
    """Dead-letter what these owners have beyond *most*; return the count."""
    values = [{"owner": owner, "most": most, "reason": TOO_MANY} for owner in owners]
    connection.executemany(sql.fail_surplus, values)
    return dead_letter(connection)


def dead_letter(connection: sqlite3.Connection) -> int:
    """Dead-letter notifications whose webhook has failed or is gone; return the count."""
    return connection.execute(sql.dead_letter_all, {"gone": GONE}).rowcount
