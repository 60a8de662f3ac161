"""What webhooks have to be told, in a PostgreSQL database."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from apcore_a2a_server.store.errors import StaleError, UnavailableError
from apcore_a2a_server.store.webhooks import (
    GONE,
    TOO_MANY,
    Backlog,
    Notification,
    Wanted,
    Webhook,
)

from .rows import notification_of, owner_bytes, webhook_columns, webhook_of
from .sql import HURRY, LEASED

WEBHOOKS = """
SELECT body, version, failure FROM apcore_a2a.webhooks WHERE task_id = $1 ORDER BY number
"""

TOUCH = "UPDATE apcore_a2a.tasks SET hooks = hooks + 1 WHERE id = $1 RETURNING 1"
"""Nobody else changes its webhooks now, and who changes the task sees that somebody has."""

SET_AGAIN = """
UPDATE apcore_a2a.outbox o SET attempts = 0, due = clock_timestamp(), host = w.host
FROM apcore_a2a.webhooks w WHERE w.task_id = $1 AND o.task_id = $1
AND o.config_id = w.config_id AND w.config_id = ANY($2::text[]) AND o.due IS NOT NULL
"""

INSERT = """
INSERT INTO apcore_a2a.webhooks (task_id, config_id, host, version, failure, body)
SELECT $1, config_id, host, version, failure, body
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[])
    WITH ORDINALITY AS new (config_id, host, version, failure, body, place) ORDER BY place
"""

CLAIM = f"""
WITH RECURSIVE pair AS (
    (SELECT owner, host FROM apcore_a2a.outbox WHERE due IS NOT NULL ORDER BY owner, host LIMIT 1)
    UNION ALL
    SELECT next.owner, next.host FROM pair, LATERAL (
        SELECT o.owner, o.host FROM apcore_a2a.outbox o
        WHERE o.due IS NOT NULL AND (o.owner, o.host) > (pair.owner,
            CASE WHEN pair.owner = ANY($5::bytea[]) THEN '~' ELSE pair.host END)
        ORDER BY o.owner, o.host LIMIT 1
    ) next
), head AS (
    SELECT pair.owner, next.* FROM pair, LATERAL (
        SELECT o.task_id, o.config_id, o.version, o.due FROM apcore_a2a.outbox o
        WHERE o.owner = pair.owner AND o.host = pair.host AND o.due <= now() AND NOT EXISTS (
            SELECT FROM apcore_a2a.outbox p WHERE p.task_id = o.task_id
            AND p.config_id = o.config_id AND p.version < o.version AND p.due IS NOT NULL
        ) ORDER BY o.due, o.version LIMIT $2
    ) next WHERE pair.owner <> ALL($5::bytea[]) AND NOT EXISTS (
        SELECT FROM unnest($6::bytea[], $7::text[]) AS busy (owner, host)
        WHERE busy.owner = pair.owner AND busy.host = pair.host
    )
), fair AS (
    SELECT *, row_number() OVER (PARTITION BY owner ORDER BY due, version) AS place FROM head
), mine AS (
    SELECT o.task_id, o.config_id, o.version
    FROM apcore_a2a.outbox o JOIN fair USING (task_id, config_id, version)
    WHERE fair.place <= $3 AND o.due <= now()
    ORDER BY fair.due LIMIT $1 FOR UPDATE OF o SKIP LOCKED
), taken AS (
    UPDATE apcore_a2a.outbox o SET due = {LEASED.format("$4")},
        attempts = o.attempts + (o.version = mine.version)::int
    FROM mine WHERE o.task_id = mine.task_id AND o.config_id = mine.config_id AND due IS NOT NULL
    RETURNING o.*
)
SELECT taken.*, w.body AS webhook, w.version AS dialect
FROM taken JOIN mine USING (task_id, config_id, version)
JOIN apcore_a2a.webhooks w ON w.failure = ''
    AND w.task_id = taken.task_id AND w.config_id = taken.config_id
"""
"""The next notification of each webhook, as far as there is time for its owner and its host.

Owners and hosts for which anything waits are found one by one, by a look at the index for each;
a host to which very much waits costs no more than others. Of an owner without time all hosts are
passed over at once: they come before a "~".
"""

ITS_WEBHOOK = "FROM apcore_a2a.webhooks w WHERE w.task_id = o.task_id AND w.config_id = o.config_id"

SETTLE = f"""
DELETE FROM apcore_a2a.outbox o
WHERE task_id = $1 AND config_id = $2 AND version = $3 AND attempts = $4
AND EXISTS (SELECT {ITS_WEBHOOK} AND w.body = $5)
"""

POSTPONE = f"""
UPDATE apcore_a2a.outbox o SET due = {LEASED.format("$6")} FROM apcore_a2a.outbox head
WHERE o.task_id = $1 AND o.config_id = $2 AND o.due IS NOT NULL AND head.task_id = $1
AND head.config_id = $2 AND head.version = $3 AND head.attempts = $4 AND head.due IS NOT NULL
AND EXISTS (SELECT {ITS_WEBHOOK} AND w.body = $5)
"""

GIVE_UP = """
WITH failed AS (
    UPDATE apcore_a2a.webhooks SET failure = $4
    WHERE task_id = $1 AND config_id = $2 AND body = $3 AND failure = '' RETURNING 1
), dead AS (
    UPDATE apcore_a2a.outbox SET due = NULL, failure = $4
    WHERE task_id = $1 AND config_id = $2 AND due IS NOT NULL AND EXISTS (SELECT FROM failed)
    RETURNING 1
)
SELECT count(*) FROM dead
"""

FAIL_SURPLUS = """
UPDATE apcore_a2a.webhooks SET failure = $3
WHERE failure = '' AND (task_id, config_id) IN (
    SELECT task_id, config_id FROM apcore_a2a.outbox WHERE owner = $1 AND due IS NOT NULL
    ORDER BY since, version OFFSET $2
)
"""

BURY = f"""
WITH dead AS (
    UPDATE apcore_a2a.outbox o
    SET due = NULL, failure = coalesce((SELECT w.failure {ITS_WEBHOOK} LIMIT 1), $1)
    WHERE due IS NOT NULL AND NOT EXISTS (SELECT {ITS_WEBHOOK} AND w.failure = '') RETURNING 1
)
SELECT count(*) FROM dead
"""

COUNT = """
SELECT owner, count(*), extract(epoch FROM now() - min(since))::float8 AS age
FROM apcore_a2a.outbox WHERE due IS NOT NULL GROUP BY owner
"""

Ask = Callable[..., Awaitable[Any]]
"""Runs a statement on any connection: the method's name, the statement, its values."""


async def webhooks(ask: Ask, task_id: str) -> list[Webhook]:
    """The webhooks of a task, oldest first."""
    return [webhook_of(*row) for row in await ask("fetch", WEBHOOKS, task_id)]


async def save_webhooks(
    connection: Any, task_id: str, new: Sequence[Webhook], known: Sequence[Webhook] | None
) -> None:
    """Replace the webhooks of a task, in a transaction.

    Raises:
        StaleError: They are not what is known of them.
    """
    if await connection.fetchval(TOUCH, task_id) is None:
        raise StaleError
    before = [webhook_of(*row) for row in await connection.fetch(WEBHOOKS, task_id)]
    if known is not None and before != [*known]:
        raise StaleError
    await connection.execute("DELETE FROM apcore_a2a.webhooks WHERE task_id = $1", task_id)
    await connection.execute(INSERT, task_id, *webhook_columns(new))
    await connection.execute(
        "DELETE FROM apcore_a2a.outbox WHERE task_id = $1 AND config_id <> ALL($2::text[])",
        task_id,
        [webhook.config.id for webhook in new],
    )
    again = [w.config.id for w in new if not w.failure and w not in before]
    await connection.execute(SET_AGAIN, task_id, again)


async def claim(ask: Ask, wanted: Wanted) -> list[Notification]:
    """Take what is due, the next of each webhook."""
    rows = await ask(
        "fetch",
        CLAIM,
        *(wanted.limit, wanted.per_host, wanted.per_owner, float(wanted.seconds)),
        [owner_bytes(owner) for owner in wanted.owners],
        [owner_bytes(owner) for owner, _ in wanted.hosts],
        [host for _, host in wanted.hosts],
    )
    return [notification_of(row) for row in rows]


async def settle(ask: Ask, notification: Notification) -> None:
    """It has been delivered; what follows is due."""
    await ask("execute", SETTLE, *_key(notification))
    await hurry(ask, notification.task_id)


async def hurry(ask: Ask, task_id: str) -> None:
    """What is the next for a webhook is due; when that can't be said, it is so after a while."""
    with suppress(UnavailableError):
        await ask("execute", HURRY, task_id)


async def postpone(ask: Ask, notification: Notification, seconds: float) -> None:
    """It may be taken again in so many seconds."""
    await ask("execute", POSTPONE, *_key(notification), float(seconds))


def _key(of: Notification) -> tuple[str, str, int, int, bytes]:
    """What nobody else has taken meanwhile, to a webhook that was not set again."""
    config = of.webhook.config
    return of.task_id, config.id, of.version, of.attempts, config.SerializeToString()


async def give_up(connection: Any, notification: Notification, reason: str) -> int:
    """Have a webhook fail, in a transaction, unless it has been set again."""
    task_id, config = notification.task_id, notification.webhook.config
    await connection.execute(TOUCH, task_id)
    body = config.SerializeToString()
    count: int = await connection.fetchval(GIVE_UP, task_id, config.id, body, reason)
    return count


async def bury(ask: Ask) -> int:
    """Dead-letter what nobody is to be told of any more; how much that was."""
    count: int = await ask("fetchval", BURY, GONE)
    return count


async def backlog(ask: Ask, most: int) -> Backlog:
    """What waits; what is too much of one owner is dead-lettered."""
    counts = await ask("fetch", COUNT)
    surplus = [row["owner"] for row in counts if row["count"] > most]
    for owner in surplus:
        await ask("execute", FAIL_SURPLUS, owner, most, TOO_MANY)
    given_up = await bury(ask) if surplus else 0
    pending = sum(row["count"] for row in counts)
    age = max((row["age"] for row in counts), default=0)
    return Backlog(pending - given_up, max(age, 0), given_up)
