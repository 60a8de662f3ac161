"""The statements about tasks. Each is one transaction; batched ones share theirs."""

from functools import cache

from .database import Statement

COLUMNS = """
    t.owner, t.skill, t.version, t.resume, t.messages, t.deadline, t.body,
    CASE WHEN t.version > t.body_version THEN
        (SELECT array_agg(e.body ORDER BY e.version) FROM apcore_a2a.events e
         WHERE e.task_id = t.id AND e.version > t.body_version)
    END AS later
"""
"""A record: the task's body, and the events that came after the body was written."""

LEASED = "clock_timestamp() + make_interval(secs => :lease_seconds)"
"""When a lease that begins now will expire."""

NEXT_DUE = """coalesce((
    SELECT max(o.due) FROM apcore_a2a.outbox o
    WHERE o.task_id = :task_id AND o.config_id = hook.config_id
), clock_timestamp())"""
"""When a webhook's next notification is due: a pause after a failure holds for all of them."""

CREATE = Statement(f"""
WITH task AS (
    INSERT INTO apcore_a2a.tasks (id, owner, context_id, skill, state, status_at, version,
        messages, body, body_version, resume, expires)
    VALUES (:task_id, :owner, :context_id, :skill, :state, :status_at, :version,
        :messages, :body, :version, :resume, {LEASED})
), event AS (
    INSERT INTO apcore_a2a.events (task_id, version, body)
    SELECT :task_id, version, body
    FROM unnest(:event_versions::int[], :event_bodies::bytea[]) AS new (version, body)
), send AS (
    INSERT INTO apcore_a2a.sends (owner, key, digest, task_id)
    SELECT :owner, :key, :digest, :task_id WHERE :key::text IS NOT NULL
), message AS (
    INSERT INTO apcore_a2a.messages (owner, context_id, task_id, body)
    SELECT :owner, :context_id, :task_id, body
    FROM unnest(:message_bodies::bytea[]) WITH ORDINALITY AS new (body, place) ORDER BY place
), webhook AS (
    INSERT INTO apcore_a2a.webhooks (task_id, config_id, host, version, failure, body)
    SELECT :task_id, config_id, host, version, failure, body
    FROM unnest(:config_ids::text[], :hosts::text[], :dialects::text[], :failures::text[],
            :configs::bytea[])
        WITH ORDINALITY AS new (config_id, host, version, failure, body, place) ORDER BY place
), notification AS (
    INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body)
    SELECT :task_id, hook.config_id, event.version, :owner, hook.host, event.body
    FROM unnest(:config_ids::text[], :hosts::text[], :failures::text[])
            AS hook (config_id, host, failure),
        unnest(:event_versions::int[], :event_bodies::bytea[]) AS event (version, body)
    WHERE hook.failure = ''
)
SELECT :place::int AS place
""")
"""Insert a task with its first events, messages, webhooks and notifications, and its send key."""

CHANGE_STATE = Statement(f"""
WITH known AS (
    SELECT messages, hooks FROM apcore_a2a.tasks WHERE id = :task_id
), task AS (
    UPDATE apcore_a2a.tasks SET
        version = :version, body_version = :version, state = :state, status_at = :status_at,
        updated = nextval('apcore_a2a.updates'), messages = :messages, body = :body,
        resume = :resume, epoch = epoch + :run::int,
        attempts = CASE :run::int WHEN 1 THEN 0 ELSE attempts END,
        expires = CASE WHEN :settled THEN to_timestamp(:deadline) WHEN :run::int = 1
            THEN {LEASED} ELSE expires END,
        ended = CASE WHEN :terminal THEN clock_timestamp() END, deadline = :deadline
    WHERE id = :task_id AND version = :base AND (:epoch::int IS NULL OR epoch = :epoch)
    RETURNING owner, context_id, epoch, first_event, hooks
), event AS (
    INSERT INTO apcore_a2a.events (task_id, version, body)
    SELECT :task_id, version, body
    FROM task, unnest(:event_versions::int[], :event_bodies::bytea[]) AS new (version, body)
), message AS (
    INSERT INTO apcore_a2a.messages (owner, context_id, task_id, body)
    SELECT task.owner, task.context_id, :task_id, new.body
    FROM task, known, unnest(:message_bodies::bytea[]) WITH ORDINALITY AS new (body, place)
    WHERE place > cardinality(:message_bodies::bytea[]) - (:messages - known.messages)
    ORDER BY place
), notification AS (
    INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body, due)
    SELECT :task_id, hook.config_id, new.version, task.owner, hook.host, new.body, {NEXT_DUE}
    FROM task, apcore_a2a.webhooks hook,
        unnest(:event_versions::int[], :event_bodies::bytea[]) AS new (version, body)
    WHERE hook.task_id = :task_id AND hook.failure = ''
        AND new.version = ANY(:state_versions::int[])
    RETURNING due
)
SELECT :place::int AS place, epoch, first_event, task.hooks <> known.hooks AS missed,
    EXISTS (SELECT FROM notification WHERE due > clock_timestamp()) AS behind,
    EXISTS (SELECT FROM notification) AS notifies
FROM task, known
""")
"""Change the state of a task that still has the version `base`, and the lease of that epoch.

`missed` is true if webhooks were saved while this statement waited for the row lock: it has not
seen them. `behind` is true if a notification waits for an earlier one of its webhook, `notifies`
if there is any notification.
"""

ADD_CHUNKS = Statement("""
WITH task AS (
    UPDATE apcore_a2a.tasks SET version = :version
    WHERE id = :task_id AND version = :base AND (:epoch::int IS NULL OR epoch = :epoch)
    RETURNING epoch, first_event
), event AS (
    INSERT INTO apcore_a2a.events (task_id, version, body)
    SELECT :task_id, version, body
    FROM task, unnest(:event_versions::int[], :event_bodies::bytea[]) AS new (version, body)
)
SELECT :place::int AS place, epoch, first_event, false AS missed, false AS behind,
    false AS notifies
FROM task
""")
"""Add chunks to the log of a task that still has the version `base`; its body stays as it is."""

TRIM = Statement("""
WITH task AS (
    UPDATE apcore_a2a.tasks SET first_event = :first, body = :body, body_version = :version
    WHERE id = :task_id AND version = :version RETURNING id
)
DELETE FROM apcore_a2a.events USING task WHERE task_id = task.id AND version < :first
""")
"""Delete the oldest events of a task, and write its body with what they said."""

GET_KEY = Statement("""
SELECT digest, task_id FROM apcore_a2a.sends WHERE owner = :owner AND key = :key
""")
"""Return the send that was known by an idempotency key."""

GET_LAST_CHANGE = Statement("""
SELECT t.epoch, t.first_event, e.body, false AS missed, true AS behind, true AS notifies
FROM apcore_a2a.tasks t
JOIN apcore_a2a.events e ON e.task_id = t.id AND e.version = :version WHERE t.id = :task_id
""")
"""Return the event of a version, to see which change has made it."""

GET_VERSION = Statement("SELECT version, epoch FROM apcore_a2a.tasks WHERE id = :task_id")
"""Return the version and the epoch of a task."""

GET = Statement(f"SELECT {COLUMNS} FROM apcore_a2a.tasks t WHERE id = :task_id")
"""Return the record of a task."""

GET_OWN = Statement(
    f"SELECT {COLUMNS} FROM apcore_a2a.tasks t WHERE id = :task_id AND owner = :owner"
)
"""Return the record of a task if it is the owner's."""

GET_VERSIONS = Statement("SELECT id, version FROM apcore_a2a.tasks WHERE id = ANY(:ids::text[])")
"""Return the versions of tasks."""

EVENTS = Statement("""
SELECT t.first_event, e.version, e.body FROM apcore_a2a.tasks t LEFT JOIN LATERAL (
    SELECT version, body FROM apcore_a2a.events
    WHERE task_id = t.id AND version > :after ORDER BY version LIMIT :limit
) e ON true WHERE t.id = :task_id
""")
"""Return the next events of a task, and the version of the first that is kept."""

CONVERSATION = Statement("""
SELECT body FROM (
    SELECT number, body FROM apcore_a2a.messages WHERE owner = :owner AND context_id = :context_id
    ORDER BY number DESC LIMIT :limit
) latest ORDER BY number
""")
"""Return the latest messages of a conversation in their order."""


@cache
def list_tasks(filters: tuple[str, ...], order: str) -> Statement:
    """Return a page of the tasks that the *filters* take, newest first."""
    return Statement(f"""
SELECT {COLUMNS}, t.{order} AS place FROM apcore_a2a.tasks t
WHERE {" AND ".join(filters)} ORDER BY {order} DESC LIMIT :limit
""")


@cache
def count_tasks(filters: tuple[str, ...]) -> Statement:
    """Return the number of tasks that the *filters* take."""
    return Statement(f"SELECT count(*) FROM apcore_a2a.tasks WHERE {' AND '.join(filters)}")


DELIVERED = """NOT EXISTS (
    SELECT FROM apcore_a2a.outbox WHERE task_id = t.id AND due IS NOT NULL
    AND since > clock_timestamp() - interval '1 day'
)"""
"""No notification about the task is pending; one that is a day old holds nothing back."""

PRUNE = Statement(f"""
WITH over AS (
    SELECT t.id FROM apcore_a2a.tasks t
    WHERE t.ended < clock_timestamp() - make_interval(secs => :ttl) AND {DELIVERED}
    AND NOT EXISTS (
        SELECT FROM apcore_a2a.tasks o WHERE o.owner = t.owner AND o.context_id = t.context_id
        AND (o.ended IS NULL OR o.ended >= clock_timestamp() - make_interval(secs => :ttl))
    )
    ORDER BY t.ended LIMIT :limit
), surplus AS (
    SELECT id FROM apcore_a2a.tasks t WHERE ended IS NOT NULL AND {DELIVERED} ORDER BY ended DESC
    OFFSET :kept LIMIT :limit
), task AS (
    DELETE FROM apcore_a2a.tasks WHERE id IN (SELECT id FROM over UNION SELECT id FROM surplus)
    RETURNING id
), event AS (
    DELETE FROM apcore_a2a.events USING task WHERE task_id = task.id
), message AS (
    DELETE FROM apcore_a2a.messages USING task WHERE task_id = task.id
), webhook AS (
    DELETE FROM apcore_a2a.webhooks USING task WHERE task_id = task.id
), send AS (
    DELETE FROM apcore_a2a.sends USING task WHERE task_id = task.id
), notification AS (
    DELETE FROM apcore_a2a.outbox USING task WHERE task_id = task.id
)
SELECT count(*) FROM task
""")
"""Delete tasks of conversations that have been over for `ttl` seconds, and those beyond `kept`."""

RENEW = Statement(f"""
WITH held AS (
    SELECT t.created FROM apcore_a2a.tasks t
    JOIN unnest(:ids::text[], :epochs::int[]) AS lease (id, epoch)
    ON t.id = lease.id AND t.epoch = lease.epoch AND t.expires IS NOT NULL AND t.deadline IS NULL
    ORDER BY t.id FOR UPDATE OF t
)
UPDATE apcore_a2a.tasks t SET expires = {LEASED}
FROM held WHERE t.created = held.created RETURNING t.id, t.epoch
""")
"""Renew leases; return those that are still held."""

CLAIM = Statement(f"""
WITH expired AS (
    SELECT id FROM apcore_a2a.tasks WHERE expires <= clock_timestamp()
    ORDER BY expires LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE apcore_a2a.tasks t SET epoch = epoch + 1, attempts = attempts + 1, expires = {LEASED}
FROM expired WHERE t.id = expired.id RETURNING {COLUMNS}, t.epoch, t.attempts
""")
"""Lease tasks whose lease, or whose deadline, has expired."""

PING = Statement("SELECT nextval('apcore_a2a.updates')")
"""Write something, to see that the database is no standby."""
