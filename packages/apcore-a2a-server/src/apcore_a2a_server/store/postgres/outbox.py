"""The outbox: notifications that webhooks have still to get, in a PostgreSQL database."""

from collections.abc import Sequence
from contextlib import suppress

from apcore_a2a_server.store.errors import StaleError, UnavailableError
from apcore_a2a_server.store.rows import notification_columns, notification_from, webhook_from
from apcore_a2a_server.store.webhooks import (
    GONE,
    TOO_MANY,
    Backlog,
    ClaimRequest,
    Notification,
    Webhook,
    with_webhook,
)

from .database import Database, Queries, Session, sql
from .rows import owner_bytes, owner_text, webhook_arrays


async def webhooks(queries: Queries, task_id: str) -> list[Webhook]:
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
    before = await webhooks(session, task_id)
    if known is not None and before != [*known]:
        raise StaleError
    await _replace(session, task_id, before, new)


async def add_webhook(session: Session, task_id: str, webhook: Webhook) -> None:
    """Add a webhook to a task, in place of the one with the same id, in a transaction.

    Raises:
        InvalidParamsError: The task has too many.
    """
    await session.execute(sql.lock_webhooks, task_id=task_id)
    before = await webhooks(session, task_id)
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


async def claim(database: Database, request: ClaimRequest) -> list[Notification]:
    """Lease the next due notification of each webhook."""
    rows = await database.fetch(
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


async def add_missed(database: Database, task_id: str, versions: Sequence[int]) -> None:
    """Add notifications for webhooks that were saved during the change of their task."""
    await database.execute(sql.add_missed, task_id=task_id, versions=versions)


async def mark_due(database: Database, task_id: str) -> None:
    """Mark the next notifications due now; on failure the poll picks them up later."""
    with suppress(UnavailableError):
        await database.execute(sql.mark_due, task_id=task_id)


async def settle(database: Database, notification: Notification) -> None:
    """Delete a notification that was delivered; the next one is due."""
    await database.execute(sql.settle, **notification_columns(notification))
    await mark_due(database, notification.task_id)


async def postpone(database: Database, notification: Notification, seconds: float) -> None:
    """Make a notification, and those behind it, due in so many seconds."""
    await database.execute(
        sql.postpone, **notification_columns(notification), lease_seconds=float(seconds)
    )


async def give_up(session: Session, notification: Notification, reason: str) -> int:
    """Mark a webhook as failed, in a transaction; return how many notifications it had."""
    await session.execute(sql.lock_webhooks, task_id=notification.task_id)
    count: int = await session.fetch_value(
        sql.give_up, **notification_columns(notification), reason=reason
    )
    return count


async def dead_letter(database: Database) -> int:
    """Dead-letter notifications whose webhook has failed or is gone; return the count."""
    count: int = await database.fetch_value(sql.dead_letter_all, gone=GONE)
    return count


async def limit_backlog(database: Database, most: int) -> tuple[Backlog, int]:
    """Count pending notifications; dead-letter what an owner has beyond *most*, and its count."""
    counts = await database.fetch(sql.count_pending)
    surplus = [row["owner"] for row in counts if row["pending"] > most]
    for owner in surplus:
        await database.execute(sql.fail_surplus, owner=owner, most=most, reason=TOO_MANY)
    dead = await dead_letter(database) if surplus else 0
    pending = sum(row["pending"] for row in counts)
    age = max((row["age"] for row in counts), default=0)
    return Backlog(pending - dead, max(age, 0)), dead
