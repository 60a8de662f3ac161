"""The outbox in an SQLite file: webhooks of tasks and their pending notifications."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from sqlite3 import Connection, Row

from apcore_a2a_core.data import Task
from apcore_a2a_core.records import Payload

from apcore_a2a_server.store.exceptions import StaleError
from apcore_a2a_server.store.port import Event, is_state, unpack_payload
from apcore_a2a_server.store.rows import (
    backlog_from,
    event_columns,
    fill_gaps,
    gap_parameters,
    notification_from,
    notification_parameters,
    webhook_columns,
    webhook_conditions,
    webhook_from,
    webhook_status_from,
    with_conditions,
)
from apcore_a2a_server.store.webhooks import (
    TOO_MANY_PENDING,
    WEBHOOK_GONE,
    Attempt,
    ClaimRequest,
    Notification,
    Webhook,
    WebhookQuery,
    WebhookStatus,
    with_webhook,
)

from .file import FileStore, reads, writes
from .schema import sql


class FileOutbox(FileStore):
    """The part of the store that keeps webhooks and notifications."""

    @reads
    def webhooks(self, connection: Connection, task_id: str) -> Sequence[Webhook]:
        """Return the webhooks of a task, oldest first."""
        return webhooks_of(connection, task_id)

    @writes
    def save_webhooks(
        self,
        connection: Connection,
        task_id: str,
        webhooks: Sequence[Webhook],
        expected: Sequence[Webhook] | None = None,
    ) -> None:
        """Replace the webhooks of a task."""
        existing = webhooks_of(connection, task_id)
        has_task = connection.execute(sql.has_task, {"task_id": task_id}).fetchone()
        if not has_task or (expected is not None and [*expected] != existing):
            raise StaleError
        replace_webhooks(connection, task_id, existing, webhooks)
        self.wake_listener()

    @writes
    def claim_notifications(
        self, connection: Connection, request: ClaimRequest
    ) -> Sequence[Notification]:
        """Lease the next due notification of each webhook whose owner and host have a free slot."""
        notifications = _within_limits(request, _next_notifications(request, connection))
        leased_until = {"due": time.time() + request.seconds}
        parameters = [leased_until | row for row in map(notification_parameters, notifications)]
        connection.executemany(sql.claim_notification, parameters)
        return notifications

    @writes
    def settle(
        self, connection: Connection, notification: Notification, attempt: Attempt | None = None
    ) -> None:
        """Delete a notification that was delivered; the webhook's next one becomes due."""
        parameters = notification_parameters(notification, attempt)
        if connection.execute(sql.settle, parameters).rowcount:
            connection.execute(sql.set_due, parameters | {"due": time.time()})
            connection.execute(sql.add_attempt, parameters)

    @writes
    def postpone(
        self,
        connection: Connection,
        notification: Notification,
        seconds: float,
        attempt: Attempt | None = None,
    ) -> None:
        """Make a notification, and the later ones of its webhook, due in *seconds*."""
        parameters = notification_parameters(notification, attempt)
        if connection.execute(sql.is_still_claimed, parameters).fetchone():
            connection.execute(sql.set_due, parameters | {"due": time.time() + seconds})
            connection.execute(sql.add_attempt, parameters)

    @writes
    def give_up(
        self,
        connection: Connection,
        notification: Notification,
        reason: str,
        attempt: Attempt | None = None,
    ) -> int:
        """Mark a webhook as failed, and dead-letter its notifications; return how many."""
        parameters = {**notification_parameters(notification, attempt), "reason": reason}
        if not connection.execute(sql.fail, parameters).rowcount:
            return 0
        return connection.execute(sql.dead_letter, parameters).rowcount

    @reads
    def webhook_statuses(
        self, connection: Connection, query: WebhookQuery
    ) -> Sequence[WebhookStatus]:
        """Return the webhooks that match *query*; those of the newest tasks come first."""
        conditions, parameters = webhook_conditions(query, str)
        list_webhooks = with_conditions(sql.list_webhooks, conditions, "")
        rows = connection.execute(list_webhooks, parameters)
        return [webhook_status_from(row, row["owner"]) for row in rows]

    @writes
    def redeliver(self, connection: Connection, task_id: str, config_id: str) -> int | None:
        """Reactivate a failed webhook, make its dead letters due, and notify it of later states."""
        parameters = {"task_id": task_id, "config_id": config_id, "now": time.time()}
        row = connection.execute(sql.webhook_has_failed, parameters).fetchone()
        if row is None or not row["has_failed"]:
            return None if row is None else 0
        connection.execute(sql.reactivate, parameters)
        later_rows = connection.execute(sql.events_after_dead_letters, parameters).fetchall()
        requeued_count = connection.execute(sql.requeue, parameters).rowcount
        state_rows = [row for row in later_rows if is_state(unpack_payload(row["body"]))]
        notifications = [parameters | dict(row) for row in state_rows]
        connection.executemany(sql.add_notification, notifications)
        self.wake_listener()
        return requeued_count + len(notifications)

    async def limit_backlog(self, max_pending: int) -> int:
        """Limit each owner's pending notifications to *max_pending*.

        Webhooks with notifications beyond the limit fail.

        Returns:
            The number of notifications that were given up.
        """
        owner_rows = await self._count_pending()
        owners = [row["owner"] for row in owner_rows if row["pending"] > max_pending]
        dead_letters = await self.dead_letter(owners, max_pending) if owners else 0
        self._backlog = backlog_from(owner_rows, dead_letters)
        return dead_letters

    @reads
    def _count_pending(self, connection: Connection) -> list[Row]:
        return connection.execute(sql.count_pending, {"now": time.time()}).fetchall()

    @writes
    def dead_letter(
        self, connection: Connection, owners: Sequence[str] = (), max_pending: int = 0
    ) -> int:
        """Dead-letter notifications whose webhook has failed or is gone; return the count.

        Before that, limit the pending notifications of each of *owners* to *max_pending*: webhooks
        with notifications beyond the limit fail.
        """
        common = {"max_pending": max_pending, "reason": TOO_MANY_PENDING}
        parameters = [{"owner": owner, **common} for owner in owners]
        connection.executemany(sql.fail_surplus, parameters)
        return connection.execute(sql.dead_letter_all, {"reason": WEBHOOK_GONE}).rowcount


def webhooks_of(connection: Connection, task_id: str) -> list[Webhook]:
    """Return the webhooks of a task, oldest first."""
    rows = connection.execute(sql.get_webhooks, {"task_id": task_id})
    return [webhook_from(*row) for row in rows]


def replace_webhooks(
    connection: Connection, task_id: str, existing: Sequence[Webhook], webhooks: Sequence[Webhook]
) -> None:
    """Replace the *existing* webhooks of a task."""
    task = {"task_id": task_id}
    # a webhook whose push config is unchanged keeps its attempts
    attempts: dict[bytes, str] = {}
    if existing:
        attempts = dict(connection.execute(sql.get_attempts, task).fetchall())
    connection.execute(sql.delete_webhooks, task)
    rows = [task | webhook_columns(webhook, attempts) for webhook in webhooks]
    connection.executemany(sql.add_webhook, rows)
    connection.execute(sql.delete_notifications_of_removed_webhooks, task)
    common = task | {"now": time.time()}
    new_or_changed = [
        common | {"config_id": webhook.config.id, "host": webhook.host}
        for webhook in webhooks
        if not webhook.failure and webhook not in existing
    ]
    connection.executemany(sql.restart_delivery, new_or_changed)


def add_webhook(connection: Connection, task_id: str, webhook: Webhook) -> None:
    """Add a webhook to a task; it replaces a webhook with the same id.

    Raises:
        InvalidParamsError: The task has too many webhooks.
    """
    existing = webhooks_of(connection, task_id)
    replace_webhooks(connection, task_id, existing, with_webhook(existing, webhook))


def add_notifications(connection: Connection, task_id: str, events: Sequence[Event]) -> bool:
    """Add notifications of events for a task's active webhooks; return whether any were added."""
    common = {"task_id": task_id, "now": time.time()}
    parameters = [common | event_columns(event) for event in events]
    return connection.executemany(sql.add_notifications, parameters).rowcount > 0


def _next_notifications(request: ClaimRequest, connection: Connection) -> list[Notification]:
    """Return due notifications for hosts with a free slot, one per webhook, earliest first."""
    now = time.time()
    rows: list[Row] = []
    hosts_per_owner: Counter[str] = Counter()
    for _, owner, host in sorted(_free_pairs(request, now, connection)):
        hosts_per_owner[owner] += 1
        if hosts_per_owner[owner] > request.per_owner:
            continue
        parameters = {"owner": owner, "host": host, "now": now, "per_host": request.per_host}
        rows += connection.execute(sql.next_notifications, parameters).fetchall()
    return [
        notification_from(row, row["owner"], complete_payload(connection, row["body"]))
        for row in sorted(rows, key=tuple)
    ]


def complete_payload(connection: Connection, body: bytes) -> Payload:
    """Return an event's payload, with all messages if the payload is a task."""
    payload = unpack_payload(body)
    if isinstance(payload, Task):
        add_large_messages(connection, payload, 0)
    return payload


def add_large_messages(connection: Connection, task: Task, earlier_count: int) -> None:
    """Put large messages into a task's history, which lacks the first *earlier_count* messages."""
    parameters = gap_parameters(task, earlier_count)
    if parameters is not None:
        rows = connection.execute(sql.get_messages, parameters)
        fill_gaps(task, [body for (body,) in rows])


def _free_pairs(
    request: ClaimRequest, now: float, connection: Connection
) -> Iterator[tuple[float, str, str]]:
    """Yield owners and hosts with a free slot and due notifications, each pair with its due time.

    Each pair takes at most two index lookups. The hosts of a busy owner are skipped.
    """
    pair = connection.execute(sql.first_pair).fetchone()
    while pair is not None:
        due, owner, host = pair
        pair, parameters = None, {"owner": owner, "host": host}
        if owner not in request.owners:
            if due <= now and (owner, host) not in request.hosts:
                yield due, owner, host
            # A condition `(owner, host) > (:owner, :host)` would read all rows of this host.
            pair = connection.execute(sql.next_host, parameters).fetchone()
        if pair is None:
            pair = connection.execute(sql.next_owner, parameters).fetchone()


def _within_limits(
    request: ClaimRequest, notifications: Iterable[Notification]
) -> list[Notification]:
    claimed: list[Notification] = []
    owner_counts: Counter[str] = Counter()
    for notification in notifications:
        if len(claimed) < request.limit and owner_counts[notification.owner] < request.per_owner:
            owner_counts[notification.owner] += 1
            claimed.append(notification)
    return claimed
