"""The outbox: notifications that webhooks have still to get, in a PostgreSQL database."""

from collections.abc import Sequence
from contextlib import suppress

from apcore_a2a_server.store.errors import StaleError, UnavailableError
from apcore_a2a_server.store.port import Store
from apcore_a2a_server.store.rows import (
    backlog_of,
    notification_columns,
    notification_from,
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

from .database import Database, Queries, Session, sql
from .rows import owner_bytes, owner_text, webhook_arrays


class DatabaseOutbox(Store):
    """Webhooks of tasks and their outbox, in a PostgreSQL database."""

    _database: Database

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the webhooks of a task, oldest first."""
        return await webhooks_of(self._database, task_id)

    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], known: Sequence[Webhook] | None = None
    ) -> None:
        """Keep these as the webhooks of a task."""
        async with self._database.transaction() as session:
            await save_webhooks(session, task_id, webhooks, known)
        self.ring()

    async def claim_notifications(self, request: ClaimRequest) -> Sequence[Notification]:
        """Lease the next due notification of each webhook whose owner and host have a free slot."""
        rows = await self._database.fetch(
            sql.claim_notifications,
            limit=request.limit,
            per_host=request.per_host,
            per_owner=request.per_owner,
            lease_seconds=float(request.seconds),
            busy_owners=[owner_bytes(owner) for owner in request.owners],
            owners_of_hosts=[owner_bytes(owner) for owner, _ in request.hosts],
            busy_hosts=[host for _, host in request.hosts],
        )
        return [notification_from(row, owner_text(row["owner"])) for row in rows]

    async def add_missed(self, task_id: str, versions: Sequence[int]) -> None:
        """Add notifications for webhooks that were saved during the change of their task."""
        await self._database.execute(sql.add_missed, task_id=task_id, versions=versions)

    async def mark_next_due(self, task_id: str) -> None:
        """Mark the next notifications due now; on failure the poll picks them up later."""
        with suppress(UnavailableError):
            await self._database.execute(sql.mark_due, task_id=task_id)

    async def settle(self, notification: Notification) -> None:
        """Delete a notification that was delivered; the next one is due."""
        await self._database.execute(sql.settle, **notification_columns(notification))
        await self.mark_next_due(notification.task_id)

    async def postpone(self, notification: Notification, seconds: float) -> None:
        """Make a notification, and those behind it, due in so many seconds."""
        columns = notification_columns(notification)
        await self._database.execute(sql.postpone, **columns, lease_seconds=float(seconds))

    async def give_up(self, notification: Notification, reason: str) -> int:
        """Mark a webhook as failed; return how many notifications it had."""
        columns = notification_columns(notification)
        async with self._database.transaction() as session:
            await session.execute(sql.lock_webhooks, task_id=notification.task_id)
            return int(await session.fetch_value(sql.give_up, **columns, reason=reason))

    async def dead_letter(self) -> int:
        """Dead-letter notifications whose webhook has failed or is gone; return the count."""
        return int(await self._database.fetch_value(sql.dead_letter_all, gone=GONE))

    async def limit_backlog(self, max_pending: int) -> int:
        """Count pending notifications; dead-letter what an owner has beyond *max_pending*."""
        counts = await self._database.fetch(sql.count_pending)
        surplus = [row["owner"] for row in counts if row["pending"] > max_pending]
        for owner in surplus:
            await self._database.execute(
                sql.fail_surplus, owner=owner, most=max_pending, reason=TOO_MANY
            )
        dead = await self.dead_letter() if surplus else 0
        self._backlog = backlog_of(counts, dead)
        return dead


async def webhooks_of(queries: Queries, task_id: str) -> list[Webhook]:
    """Return the webhooks of a task, oldest first."""
    return [webhook_from(*row) for row in await queries.fetch(sql.get_webhooks, task_id=task_id)]


async def save_webhooks(
    session: Session, task_id: str, new: Sequence[Webhook], known: Sequence[Webhook] | None
) -> None:
    """Replace the webhooks of a task, in a transaction.

    Raises:
        StaleError: The webhooks are not the *known* ones, or the task is gone.
    """
    if await session.fetch_value(sql.lock_webhooks, task_id=task_id) is None:
        raise StaleError
    before = await webhooks_of(session, task_id)
    if known is not None and before != [*known]:
        raise StaleError
    await _replace(session, task_id, before, new)


async def add_webhook(session: Session, task_id: str, webhook: Webhook) -> None:
    """Add a webhook to a task, in place of the one with the same id, in a transaction.

    Raises:
        InvalidParamsError: The task has too many.
    """
    await session.execute(sql.lock_webhooks, task_id=task_id)
    before = await webhooks_of(session, task_id)
    await _replace(session, task_id, before, with_webhook(before, webhook))


async def _replace(
    session: Session, task_id: str, before: Sequence[Webhook], new: Sequence[Webhook]
) -> None:
    await session.execute(sql.delete_webhooks, task_id=task_id)
    arrays = webhook_arrays(new)
    await session.execute(sql.add_webhooks, task_id=task_id, **arrays)
    await session.execute(sql.delete_other_notifications, task_id=task_id, **arrays)
    again = [w.config.id for w in new if not w.failure and w not in before]
    await session.execute(sql.restart, task_id=task_id, config_ids=again)
