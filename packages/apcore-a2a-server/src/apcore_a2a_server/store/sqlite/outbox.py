"""The outbox: notifications that webhooks have still to get, in an SQLite file."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from sqlite3 import Connection, Row

from apcore_a2a_server.store.errors import StaleError
from apcore_a2a_server.store.port import Event
from apcore_a2a_server.store.rows import (
    backlog_of,
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

from .file import FileStore, reads, writes
from .schema import sql


class FileOutbox(FileStore):
    """Webhooks of tasks and their outbox, in an SQLite file."""

    @reads
    def webhooks(self, connection: Connection, task_id: str) -> Sequence[Webhook]:
        """Return the webhooks of a task, oldest first."""
        return webhooks_of(connection, task_id)

    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], known: Sequence[Webhook] | None = None
    ) -> None:
        """Keep these as the webhooks of a task."""
        await self._save_webhooks(task_id, webhooks, known)
        self.ring()

    @writes
    def _save_webhooks(
        self,
        connection: Connection,
        task_id: str,
        webhooks: Sequence[Webhook],
        known: Sequence[Webhook] | None,
    ) -> None:
        before = webhooks_of(connection, task_id)
        is_there = connection.execute(sql.has_task, {"task_id": task_id}).fetchone()
        if not is_there or (known is not None and [*known] != before):
            raise StaleError
        replace_webhooks(connection, task_id, before, webhooks)

    @writes
    def claim_notifications(
        self, connection: Connection, request: ClaimRequest
    ) -> Sequence[Notification]:
        """Lease the next due notification of each webhook whose owner and host have a free slot."""
        found = _fitting(request, _next(request, connection))
        due = {"due": time.time() + request.seconds}
        claimed = [due | notification_columns(each) for each in found]
        connection.executemany(sql.claim_notification, claimed)
        return found

    @writes
    def settle(self, connection: Connection, notification: Notification) -> None:
        """Delete a notification that was delivered; the next one is due."""
        key = notification_columns(notification)
        if connection.execute(sql.settle, key).rowcount:
            connection.execute(sql.postpone, key | {"due": time.time()})

    @writes
    def postpone(self, connection: Connection, notification: Notification, seconds: float) -> None:
        """Make a notification, and those behind it, due in so many seconds."""
        key = notification_columns(notification)
        if connection.execute(sql.is_claimed, key).fetchone():
            connection.execute(sql.postpone, key | {"due": time.time() + seconds})

    @writes
    def give_up(self, connection: Connection, notification: Notification, reason: str) -> int:
        """Mark a webhook as failed; return how many notifications it had."""
        values = {**notification_columns(notification), "reason": reason}
        if not connection.execute(sql.fail, values).rowcount:
            return 0
        return connection.execute(sql.dead_letter, values).rowcount

    async def limit_backlog(self, max_pending: int) -> int:
        """Count pending notifications; dead-letter what an owner has beyond *max_pending*."""
        counts = await self._count_pending()
        owners = [row["owner"] for row in counts if row["pending"] > max_pending]
        dead = await self._give_up_surplus(owners, max_pending) if owners else 0
        self._backlog = backlog_of(counts, dead)
        return dead

    @reads
    def _count_pending(self, connection: Connection) -> list[Row]:
        return connection.execute(sql.count_pending, {"now": time.time()}).fetchall()

    @writes
    def _give_up_surplus(self, connection: Connection, owners: Sequence[str], most: int) -> int:
        values = [{"owner": owner, "most": most, "reason": TOO_MANY} for owner in owners]
        connection.executemany(sql.fail_surplus, values)
        return dead_letter(connection)


def dead_letter(connection: Connection) -> int:
    """Dead-letter notifications whose webhook has failed or is gone; return the count."""
    return connection.execute(sql.dead_letter_all, {"gone": GONE}).rowcount


def webhooks_of(connection: Connection, task_id: str) -> list[Webhook]:
    """Return the webhooks of a task, oldest first."""
    rows = connection.execute(sql.get_webhooks, {"task_id": task_id})
    return [webhook_from(*row) for row in rows]


def replace_webhooks(
    connection: Connection, task_id: str, known: Sequence[Webhook], new: Sequence[Webhook]
) -> None:
    """Replace the *known* webhooks of a task."""
    task = {"task_id": task_id}
    connection.execute(sql.delete_webhooks, task)
    connection.executemany(sql.add_webhook, [task | webhook_columns(webhook) for webhook in new])
    gone = {webhook.config.id for webhook in known} - {webhook.config.id for webhook in new}
    connection.executemany(sql.delete_notifications, [task | {"config_id": each} for each in gone])
    again = (webhook for webhook in new if not webhook.failure and webhook not in known)
    now = task | {"now": time.time()}
    connection.executemany(sql.restart, [now | webhook_columns(webhook) for webhook in again])


def add_webhook(connection: Connection, task_id: str, webhook: Webhook) -> None:
    """Add a webhook to a task, in place of the one with the same id.

    Raises:
        InvalidParamsError: The task has too many.
    """
    known = webhooks_of(connection, task_id)
    replace_webhooks(connection, task_id, known, with_webhook(known, webhook))


def add_notifications(connection: Connection, task_id: str, events: Sequence[Event]) -> bool:
    """Add notifications of events for each webhook of their task; return whether it has any."""
    ids = {"task_id": task_id, "now": time.time()}
    rows = [ids | event_columns(event) for event in events]
    return connection.executemany(sql.add_notifications, rows).rowcount > 0


def _next(request: ClaimRequest, connection: Connection) -> list[Notification]:
    """Return the next notification of each webhook whose host has a free slot, oldest first."""
    now = time.time()
    found: list[Row] = []
    of_owner: Counter[str] = Counter()
    for _, owner, host in sorted(_pairs(request, now, connection)):
        of_owner[owner] += 1
        if of_owner[owner] > request.per_owner:
            continue
        values = {"owner": owner, "host": host, "now": now, "per_host": request.per_host}
        found += connection.execute(sql.next_notifications, values).fetchall()
    return [notification_from(row, row["owner"]) for row in sorted(found, key=tuple)]


def _pairs(
    request: ClaimRequest, now: float, connection: Connection
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
