"""The outbox in a PostgreSQL database: webhooks of tasks and their pending notifications."""

from collections.abc import Sequence
from contextlib import suppress

from apcore_a2a_core.data import Task
from apcore_a2a_core.records import Payload

from apcore_a2a_server.store.exceptions import StaleError, UnavailableError
from apcore_a2a_server.store.port import Store, is_state, unpack_payload
from apcore_a2a_server.store.rows import (
    backlog_from,
    fill_gaps,
    gap_parameters,
    notification_from,
    notification_parameters,
    webhook_conditions,
    webhook_from,
    webhook_status_from,
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

from .database import Database, Session, StatementRunner, fill_conditions, sql
from .rows import owner_bytes, owner_text, webhook_arrays


class DatabaseOutbox(Store):
    """The part of the store that keeps webhooks and notifications."""

    _database: Database

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the webhooks of a task, oldest first."""
        return await webhooks_of(self._database, task_id)

    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], expected: Sequence[Webhook] | None = None
    ) -> None:
        """Replace the webhooks of a task."""
        async with self._database.transaction() as session:
            await save_webhooks(session, task_id, webhooks, expected)
        self.wake_listener()

    async def claim_notifications(self, request: ClaimRequest) -> Sequence[Notification]:
        """Lease the next due notification of each webhook whose owner and host have a free slot."""
        rows = await self._database.fetch(
            sql.claim_notifications,
            limit=request.limit,
            per_host=request.per_host,
            per_owner=request.per_owner,
            lease_seconds=float(request.seconds),
            busy_owners=[owner_bytes(owner) for owner in request.owners],
            busy_pair_owners=[owner_bytes(owner) for owner, _ in request.hosts],
            busy_pair_hosts=[host for _, host in request.hosts],
        )
        return [
            notification_from(row, owner_text(row["owner"]), await self.read_payload(row["body"]))
            for row in rows
        ]

    async def read_payload(self, body: bytes) -> Payload:
        """Return an event's payload, with all messages if the payload is a task."""
        payload = unpack_payload(body)
        if isinstance(payload, Task):
            await self.add_large_messages(payload, 0)
        return payload

    async def add_large_messages(self, task: Task, earlier_count: int) -> None:
        """Put large messages into a task's history, which begins after *earlier_count* messages."""
        parameters = gap_parameters(task, earlier_count)
        if parameters is not None:
            rows = await self._database.fetch(sql.get_messages, **parameters)
            fill_gaps(task, [row["body"] for row in rows])

    async def add_missed_notifications(self, task_id: str, versions: Sequence[int]) -> None:
        """Add the notifications that a change missed because it did not see new webhooks."""
        parameters = {"task_id": task_id, "versions": versions}
        await self._database.execute(sql.add_missed_notifications, **parameters)

    async def mark_next_due(self, task_id: str) -> None:
        """Make a task's next notifications due now; on failure the poll picks them up later."""
        with suppress(UnavailableError):
            await self._database.execute(sql.mark_next_due, task_id=task_id)

    async def settle(self, notification: Notification, attempt: Attempt | None = None) -> None:
        """Delete a notification that was delivered; the webhook's next one becomes due."""
        await self._database.execute(sql.settle, **notification_parameters(notification, attempt))
        await self.mark_next_due(notification.task_id)

    async def postpone(
        self, notification: Notification, seconds: float, attempt: Attempt | None = None
    ) -> None:
        """Make a notification, and the later ones of its webhook, due in *seconds*."""
        parameters = notification_parameters(notification, attempt)
        await self._database.execute(sql.postpone, **parameters, seconds=float(seconds))

    async def give_up(
        self, notification: Notification, reason: str, attempt: Attempt | None = None
    ) -> int:
        """Mark a webhook as failed, and dead-letter its notifications; return how many."""
        parameters = notification_parameters(notification, attempt)
        async with self._database.transaction() as session:
            await session.execute(sql.lock_webhooks, task_id=notification.task_id)
            return int(await session.fetch_value(sql.give_up, **parameters, reason=reason))

    async def webhook_statuses(self, query: WebhookQuery) -> Sequence[WebhookStatus]:
        """Return the webhooks that match *query*; those of the newest tasks come first."""
        conditions, parameters = webhook_conditions(query, owner_bytes)
        list_webhooks = fill_conditions(sql.list_webhooks, conditions)
        rows = await self._database.fetch(list_webhooks, **parameters)
        return [webhook_status_from(row, owner_text(row["owner"])) for row in rows]

    async def redeliver(self, task_id: str, config_id: str) -> int | None:
        """Reactivate a failed webhook, make its dead letters due, and notify it of later states."""
        webhook = {"task_id": task_id, "config_id": config_id}
        async with self._database.transaction() as session:
            await session.execute(sql.lock_webhooks, task_id=task_id)
            has_failed: bool | None = await session.fetch_value(sql.webhook_has_failed, **webhook)
            if not has_failed:
                return None if has_failed is None else 0
            await session.execute(sql.reactivate, **webhook)
            events = await session.fetch(sql.events_after_dead_letters, **webhook)
            versions = [version for version, body in events if is_state(unpack_payload(body))]
            count = int(await session.fetch_value(sql.requeue, **webhook, versions=versions))
        self.wake_listener()
        return count

    async def dead_letter(self) -> int:
        """Dead-letter notifications whose webhook has failed or is gone; return the count."""
        return int(await self._database.fetch_value(sql.dead_letter_all, reason=WEBHOOK_GONE))

    async def limit_backlog(self, max_pending: int) -> int:
        """Limit each owner's pending notifications to *max_pending*.

        Webhooks with notifications beyond the limit fail.

        Returns:
            The number of notifications that were given up.
        """
        owner_rows = await self._database.fetch(sql.count_pending)
        owners = [row["owner"] for row in owner_rows if row["pending"] > max_pending]
        for owner in owners:
            parameters = {"owner": owner, "max_pending": max_pending, "reason": TOO_MANY_PENDING}
            await self._database.execute(sql.fail_surplus, **parameters)
        dead_letters = await self.dead_letter() if owners else 0
        self._backlog = backlog_from(owner_rows, dead_letters)
        return dead_letters


async def webhooks_of(runner: StatementRunner, task_id: str) -> list[Webhook]:
    """Return the webhooks of a task, oldest first."""
    return [webhook_from(*row) for row in await runner.fetch(sql.get_webhooks, task_id=task_id)]


async def save_webhooks(
    session: Session, task_id: str, webhooks: Sequence[Webhook], expected: Sequence[Webhook] | None
) -> None:
    """Replace the webhooks of a task, in a transaction.

    Raises:
        StaleError: The task has other webhooks than *expected*, or was deleted.
    """
    # The lock is on the row of the task: a concurrent change either sees the new webhooks, or
    # waits for this transaction and then learns that it has missed them.
    if await session.fetch_value(sql.lock_webhooks, task_id=task_id) is None:
        raise StaleError
    existing = await webhooks_of(session, task_id)
    if expected is not None and existing != [*expected]:
        raise StaleError
    await _replace(session, task_id, existing, webhooks)


async def add_webhook(session: Session, task_id: str, webhook: Webhook) -> None:
    """Add a webhook to a task in a transaction; it replaces a webhook with the same id.

    Raises:
        InvalidParamsError: The task has too many webhooks.
    """
    await session.execute(sql.lock_webhooks, task_id=task_id)
    existing = await webhooks_of(session, task_id)
    await _replace(session, task_id, existing, with_webhook(existing, webhook))


async def _replace(
    session: Session, task_id: str, existing: Sequence[Webhook], webhooks: Sequence[Webhook]
) -> None:
    # a webhook whose push config is unchanged keeps its attempts
    attempts = dict(await session.fetch(sql.get_attempts, task_id=task_id)) if existing else {}
    await session.execute(sql.delete_webhooks, task_id=task_id)
    arrays = webhook_arrays(webhooks, attempts)
    await session.execute(sql.add_webhooks, task_id=task_id, **arrays)
    await session.execute(sql.delete_notifications_of_removed_webhooks, task_id=task_id, **arrays)
    new_or_changed = [
        webhook.config.id for webhook in webhooks if not webhook.failure and webhook not in existing
    ]
    await session.execute(sql.restart_delivery, task_id=task_id, config_ids=new_or_changed)
