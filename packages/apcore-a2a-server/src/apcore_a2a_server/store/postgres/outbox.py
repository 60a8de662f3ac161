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

from .database import Database, Queries, Session, Statement
from .rows import owner_bytes, owner_text, webhook_arrays
from .sql import LEASED, NEXT_DUE

ITS_WEBHOOK = "FROM apcore_a2a.webhooks w WHERE w.task_id = o.task_id AND w.config_id = o.config_id"
"""The webhook of a notification."""

GET_WEBHOOKS = Statement("""
SELECT body, version, failure FROM apcore_a2a.webhooks WHERE task_id = :task_id ORDER BY number
""")
"""Return the webhooks of a task, oldest first."""

LOCK_WEBHOOKS = Statement("""
UPDATE apcore_a2a.tasks SET hooks = hooks + 1 WHERE id = :task_id RETURNING 1
""")
"""Lock the webhooks of a task; a change that waits for this will know that it missed them."""

DELETE_WEBHOOKS = Statement("DELETE FROM apcore_a2a.webhooks WHERE task_id = :task_id")
"""Delete the webhooks of a task."""

INSERT_WEBHOOKS = Statement("""
INSERT INTO apcore_a2a.webhooks (task_id, config_id, host, version, failure, body)
SELECT :task_id, config_id, host, version, failure, body
FROM unnest(:config_ids::text[], :hosts::text[], :dialects::text[], :failures::text[],
        :configs::bytea[])
    WITH ORDINALITY AS new (config_id, host, version, failure, body, place) ORDER BY place
""")
"""Insert webhooks of a task in their order."""

DELETE_OTHERS = Statement("""
DELETE FROM apcore_a2a.outbox WHERE task_id = :task_id AND config_id <> ALL(:config_ids::text[])
""")
"""Delete the notifications of webhooks that are gone."""

RESTART = Statement("""
UPDATE apcore_a2a.outbox o SET attempts = 0, due = clock_timestamp(), host = w.host
FROM apcore_a2a.webhooks w WHERE w.task_id = :task_id AND o.task_id = :task_id
AND o.config_id = w.config_id AND w.config_id = ANY(:config_ids::text[]) AND o.due IS NOT NULL
""")
"""Make the notifications of webhooks that were set again due at once."""

ADD_MISSED = Statement(f"""
INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body, due)
SELECT :task_id, hook.config_id, event.version, task.owner, hook.host, event.body, {NEXT_DUE}
FROM apcore_a2a.webhooks hook JOIN apcore_a2a.events event USING (task_id)
    JOIN apcore_a2a.tasks task ON task.id = task_id
WHERE task_id = :task_id AND hook.failure = '' AND event.version = ANY(:versions::int[])
ON CONFLICT DO NOTHING
""")
"""Add the notifications of events for webhooks that the change of the task has not seen."""

MARK_DUE = Statement("""
UPDATE apcore_a2a.outbox o SET due = clock_timestamp()
WHERE task_id = :task_id AND due > clock_timestamp() AND attempts = 0 AND NOT EXISTS (
    SELECT FROM apcore_a2a.outbox p WHERE p.task_id = :task_id AND p.config_id = o.config_id
    AND p.version < o.version AND p.due IS NOT NULL
)
""")
"""Make the next notification of each webhook due, unless it was tried before.

A transaction that adds a notification and one that settles the notification before it do not see
each other. Each runs this after its own commit, so that the later one sees both.
"""

CLAIM = Statement(f"""
WITH RECURSIVE pair AS (
    (SELECT owner, host FROM apcore_a2a.outbox WHERE due IS NOT NULL ORDER BY owner, host LIMIT 1)
    UNION ALL
    SELECT next.owner, next.host FROM pair, LATERAL (
        SELECT o.owner, o.host FROM apcore_a2a.outbox o
        WHERE o.due IS NOT NULL AND (o.owner, o.host) > (pair.owner,
            CASE WHEN pair.owner = ANY(:busy_owners::bytea[]) THEN '~' ELSE pair.host END)
        ORDER BY o.owner, o.host LIMIT 1
    ) next
), head AS (
    SELECT pair.owner, next.* FROM pair, LATERAL (
        SELECT o.task_id, o.config_id, o.version, o.due FROM apcore_a2a.outbox o
        WHERE o.owner = pair.owner AND o.host = pair.host AND o.due <= now() AND NOT EXISTS (
            SELECT FROM apcore_a2a.outbox p WHERE p.task_id = o.task_id
            AND p.config_id = o.config_id AND p.version < o.version AND p.due IS NOT NULL
        ) ORDER BY o.due, o.version LIMIT :per_host
    ) next WHERE pair.owner <> ALL(:busy_owners::bytea[]) AND NOT EXISTS (
        SELECT FROM unnest(:owners_of_hosts::bytea[], :busy_hosts::text[]) AS busy (owner, host)
        WHERE busy.owner = pair.owner AND busy.host = pair.host
    )
), fair AS (
    SELECT *, row_number() OVER (PARTITION BY owner ORDER BY due, version) AS place FROM head
), mine AS (
    SELECT o.task_id, o.config_id, o.version
    FROM apcore_a2a.outbox o JOIN fair USING (task_id, config_id, version)
    WHERE fair.place <= :per_owner AND o.due <= now()
    ORDER BY fair.due LIMIT :limit FOR UPDATE OF o SKIP LOCKED
), taken AS (
    UPDATE apcore_a2a.outbox o SET due = {LEASED},
        attempts = o.attempts + (o.version = mine.version)::int
    FROM mine WHERE o.task_id = mine.task_id AND o.config_id = mine.config_id AND due IS NOT NULL
    RETURNING o.*
)
SELECT taken.*, w.body AS config, w.version AS dialect
FROM taken JOIN mine USING (task_id, config_id, version)
JOIN apcore_a2a.webhooks w ON w.failure = ''
    AND w.task_id = taken.task_id AND w.config_id = taken.config_id
""")
"""Lease the next notification of each webhook whose owner and host have a free slot.

The pairs of owner and host with pending notifications are found one by one, each by one look at
the index: a host with very many costs no more than others. All hosts of an owner without a free
slot are skipped at once: they sort before a "~".
"""

TAKEN = f"""
o.task_id = :task_id AND o.config_id = :config_id AND o.version = :version
AND o.attempts = :attempts AND EXISTS (SELECT {ITS_WEBHOOK} AND w.body = :config)
"""
"""The notification was not leased again meanwhile, and its webhook was not set again."""

SETTLE = Statement(f"DELETE FROM apcore_a2a.outbox o WHERE {TAKEN}")
"""Delete a notification that was delivered."""

POSTPONE = Statement(f"""
UPDATE apcore_a2a.outbox later SET due = {LEASED} FROM apcore_a2a.outbox o
WHERE later.task_id = o.task_id AND later.config_id = o.config_id AND later.due IS NOT NULL
AND o.due IS NOT NULL AND {TAKEN}
""")
"""Make a webhook's notifications due later."""

GIVE_UP = Statement("""
WITH failed AS (
    UPDATE apcore_a2a.webhooks SET failure = :reason
    WHERE task_id = :task_id AND config_id = :config_id AND body = :config AND failure = ''
    RETURNING 1
), dead AS (
    UPDATE apcore_a2a.outbox SET due = NULL, failure = :reason
    WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL
    AND EXISTS (SELECT FROM failed)
    RETURNING 1
)
SELECT count(*) FROM dead
""")
"""Mark a webhook as failed, unless it was set again, and dead-letter its notifications."""

FAIL_SURPLUS = Statement("""
UPDATE apcore_a2a.webhooks SET failure = :reason
WHERE failure = '' AND (task_id, config_id) IN (
    SELECT task_id, config_id FROM apcore_a2a.outbox WHERE owner = :owner AND due IS NOT NULL
    ORDER BY since, version OFFSET :most
)
""")
"""Mark the webhooks as failed that have an owner's latest notifications, beyond `most`."""

DEAD_LETTER = Statement(f"""
WITH dead AS (
    UPDATE apcore_a2a.outbox o
    SET due = NULL, failure = coalesce((SELECT w.failure {ITS_WEBHOOK} LIMIT 1), :gone)
    WHERE due IS NOT NULL AND NOT EXISTS (SELECT {ITS_WEBHOOK} AND w.failure = '') RETURNING 1
)
SELECT count(*) FROM dead
""")
"""Dead-letter the notifications whose webhook has failed or is gone."""

COUNT = Statement("""
SELECT owner, count(*), extract(epoch FROM now() - min(since))::float8 AS age
FROM apcore_a2a.outbox WHERE due IS NOT NULL GROUP BY owner
""")
"""Count each owner's pending notifications."""


async def webhooks(queries: Queries, task_id: str) -> list[Webhook]:
    """Return the webhooks of a task, oldest first."""
    return [webhook_from(*row) for row in await queries.fetch(GET_WEBHOOKS, task_id=task_id)]


async def save_webhooks(
    session: Session, task_id: str, new: Sequence[Webhook], known: Sequence[Webhook] | None
) -> None:
    """Replace the webhooks of a task, in a transaction.

    Raises:
        StaleError: The webhooks are not the *known* ones, or the task is gone.
    """
    if await session.fetch_value(LOCK_WEBHOOKS, task_id=task_id) is None:
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
    await session.execute(LOCK_WEBHOOKS, task_id=task_id)
    before = await webhooks(session, task_id)
    await _replace(session, task_id, before, with_webhook(before, webhook))


async def _replace(
    session: Session, task_id: str, before: Sequence[Webhook], new: Sequence[Webhook]
) -> None:
    await session.execute(DELETE_WEBHOOKS, task_id=task_id)
    arrays = webhook_arrays(new)
    await session.execute(INSERT_WEBHOOKS, task_id=task_id, **arrays)
    await session.execute(DELETE_OTHERS, task_id=task_id, **arrays)
    again = [w.config.id for w in new if not w.failure and w not in before]
    await session.execute(RESTART, task_id=task_id, config_ids=again)


async def claim(database: Database, request: ClaimRequest) -> list[Notification]:
    """Lease the next due notification of each webhook."""
    rows = await database.fetch(
        CLAIM,
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
    await database.execute(ADD_MISSED, task_id=task_id, versions=versions)


async def mark_due(database: Database, task_id: str) -> None:
    """Mark the next notifications due now; on failure the poll picks them up later."""
    with suppress(UnavailableError):
        await database.execute(MARK_DUE, task_id=task_id)


async def settle(database: Database, notification: Notification) -> None:
    """Delete a notification that was delivered; the next one is due."""
    await database.execute(SETTLE, **notification_columns(notification))
    await mark_due(database, notification.task_id)


async def postpone(database: Database, notification: Notification, seconds: float) -> None:
    """Make a notification, and those behind it, due in so many seconds."""
    await database.execute(
        POSTPONE, **notification_columns(notification), lease_seconds=float(seconds)
    )


async def give_up(session: Session, notification: Notification, reason: str) -> int:
    """Mark a webhook as failed, in a transaction; return how many notifications it had."""
    await session.execute(LOCK_WEBHOOKS, task_id=notification.task_id)
    count: int = await session.fetch_value(
        GIVE_UP, **notification_columns(notification), reason=reason
    )
    return count


async def dead_letter(database: Database) -> int:
    """Dead-letter notifications whose webhook has failed or is gone; return the count."""
    count: int = await database.fetch_value(DEAD_LETTER, gone=GONE)
    return count


async def limit_backlog(database: Database, most: int) -> tuple[Backlog, int]:
    """Count pending notifications; dead-letter what an owner has beyond *most*, and its count."""
    counts = await database.fetch(COUNT)
    surplus = [row["owner"] for row in counts if row["count"] > most]
    for owner in surplus:
        await database.execute(FAIL_SURPLUS, owner=owner, most=most, reason=TOO_MANY)
    dead = await dead_letter(database) if surplus else 0
    pending = sum(row["count"] for row in counts)
    age = max((row["age"] for row in counts), default=0)
    return Backlog(pending - dead, max(age, 0)), dead
