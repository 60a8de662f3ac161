"""The statements. Each is one transaction; those that create and change a task may share one."""

COLUMNS = """
    t.owner, t.skill, t.version, t.resume, t.messages, t.deadline, t.body,
    CASE WHEN t.version > t.body_version THEN
        (SELECT array_agg(e.body ORDER BY e.version) FROM apcore_a2a.events e
         WHERE e.task_id = t.id AND e.version > t.body_version)
    END AS chunks
"""
"""What a record is made of: its body, and the chunks that the body has not yet."""

LEASED = "clock_timestamp() + make_interval(secs => {})"

CREATE = f"""
WITH task AS (
    INSERT INTO apcore_a2a.tasks (id, owner, context_id, skill, state, status_at, version,
        messages, body, body_version, resume, expires)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $7, $10, {LEASED.format("$11")})
), event AS (
    INSERT INTO apcore_a2a.events (task_id, version, body)
    SELECT $1, version, body FROM unnest($12::int[], $13::bytea[]) AS new (version, body)
), send AS (
    INSERT INTO apcore_a2a.sends (owner, key, digest, task_id)
    SELECT $2, $18, $19, $1 WHERE $18::text IS NOT NULL
), message AS (
    INSERT INTO apcore_a2a.messages (owner, context_id, task_id, body)
    SELECT $2, $3, $1, body FROM unnest($14::bytea[]) WITH ORDINALITY AS new (body, place)
    ORDER BY place
), webhook AS (
    INSERT INTO apcore_a2a.webhooks (task_id, config_id, host, version, failure, body)
    SELECT $1, config_id, host, version, failure, body
    FROM unnest($15::text[], $16::text[], $17::text[], $20::text[], $21::bytea[])
        WITH ORDINALITY AS new (config_id, host, version, failure, body, place) ORDER BY place
), told AS (
    INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body)
    SELECT $1, hook.config_id, event.version, $2, hook.host, event.body
    FROM unnest($15::text[], $16::text[], $20::text[]) AS hook (config_id, host, failure),
        unnest($12::int[], $13::bytea[]) AS event (version, body)
    WHERE hook.failure = ''
)
SELECT $22::int AS place
"""

BEHIND = """coalesce((
    SELECT max(o.due) FROM apcore_a2a.outbox o WHERE o.task_id = $1 AND o.config_id = hook.config_id
), clock_timestamp())"""
"""What a webhook has to be told is due together: nobody looks at it before."""

CHANGE_STATE = f"""
WITH known AS (
    SELECT messages, hooks FROM apcore_a2a.tasks WHERE id = $1
), task AS (
    UPDATE apcore_a2a.tasks SET
        version = $4, body_version = $4, state = $5, status_at = $6,
        updated = nextval('apcore_a2a.updates'), messages = $7, body = $8, resume = $9,
        epoch = epoch + $11::int, attempts = CASE $11::int WHEN 1 THEN 0 ELSE attempts END,
        expires = CASE WHEN $10 THEN to_timestamp($17) WHEN $11::int = 1
            THEN {LEASED.format("$12")} ELSE expires END,
        ended = CASE WHEN $13 THEN clock_timestamp() END, deadline = $17
    WHERE id = $1 AND version = $2 AND ($3::int IS NULL OR epoch = $3)
    RETURNING owner, context_id, epoch, first_event, hooks
), event AS (
    INSERT INTO apcore_a2a.events (task_id, version, body)
    SELECT $1, version, body FROM task, unnest($14::int[], $15::bytea[]) AS new (version, body)
), message AS (
    INSERT INTO apcore_a2a.messages (owner, context_id, task_id, body)
    SELECT task.owner, task.context_id, $1, new.body
    FROM task, known, unnest($16::bytea[]) WITH ORDINALITY AS new (body, place)
    WHERE place > cardinality($16::bytea[]) - ($7 - known.messages) ORDER BY place
), told AS (
    INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body, due)
    SELECT $1, hook.config_id, new.version, task.owner, hook.host, new.body, {BEHIND}
    FROM task, apcore_a2a.webhooks hook, unnest($14::int[], $15::bytea[]) AS new (version, body)
    WHERE hook.task_id = $1 AND hook.failure = '' AND new.version = ANY($18::int[])
    RETURNING due
)
SELECT $19::int AS place, epoch, first_event, task.hooks <> known.hooks AS missed,
    EXISTS (SELECT FROM told WHERE due > clock_timestamp()) AS behind
FROM task, known
"""
"""Of webhooks that were set while it waited for their being set, it knows that it missed them."""

TELL = f"""
INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body, due)
SELECT $1, hook.config_id, event.version, task.owner, hook.host, event.body, {BEHIND}
FROM apcore_a2a.webhooks hook JOIN apcore_a2a.events event USING (task_id)
    JOIN apcore_a2a.tasks task ON task.id = task_id
WHERE task_id = $1 AND hook.failure = '' AND event.version = ANY($2::int[])
ON CONFLICT DO NOTHING
"""

HURRY = """
UPDATE apcore_a2a.outbox o SET due = clock_timestamp()
WHERE task_id = $1 AND due > clock_timestamp() AND attempts = 0 AND NOT EXISTS (
    SELECT FROM apcore_a2a.outbox p WHERE p.task_id = $1 AND p.config_id = o.config_id
    AND p.version < o.version AND p.due IS NOT NULL
)
"""
"""What is the next for its webhook, and was never taken, is due.

Who adds to what waits and who settles what it waits for do not see each other: each looks behind
its own commit, so that the later one sees both.
"""

ADD_CHUNKS = """
WITH task AS (
    UPDATE apcore_a2a.tasks SET version = $4
    WHERE id = $1 AND version = $2 AND ($3::int IS NULL OR epoch = $3)
    RETURNING epoch, first_event
), event AS (
    INSERT INTO apcore_a2a.events (task_id, version, body)
    SELECT $1, version, body FROM task, unnest($5::int[], $6::bytea[]) AS new (version, body)
)
SELECT $7::int AS place, epoch, first_event, false AS missed, false AS behind FROM task
"""

TRIM = """
WITH task AS (
    UPDATE apcore_a2a.tasks SET first_event = $2, body = $4, body_version = $3
    WHERE id = $1 AND version = $3 RETURNING id
)
DELETE FROM apcore_a2a.events USING task WHERE task_id = task.id AND version < $2
"""

EVENTS = """
SELECT t.first_event, e.version, e.body FROM apcore_a2a.tasks t LEFT JOIN LATERAL (
    SELECT version, body FROM apcore_a2a.events
    WHERE task_id = t.id AND version > $2 ORDER BY version LIMIT $3
) e ON true WHERE t.id = $1
"""

CONVERSATION = """
SELECT body FROM (
    SELECT number, body FROM apcore_a2a.messages WHERE owner = $1 AND context_id = $2
    ORDER BY number DESC LIMIT $3
) latest ORDER BY number
"""

UNTOLD = """NOT EXISTS (
    SELECT FROM apcore_a2a.outbox WHERE task_id = t.id AND due IS NOT NULL
    AND since > clock_timestamp() - interval '1 day'
)"""
"""Nobody waits to be told of the task; what has waited for a day holds nothing back."""

PRUNE = f"""
WITH over AS (
    SELECT t.id FROM apcore_a2a.tasks t
    WHERE t.ended < clock_timestamp() - make_interval(secs => $1) AND {UNTOLD} AND NOT EXISTS (
        SELECT FROM apcore_a2a.tasks o WHERE o.owner = t.owner AND o.context_id = t.context_id
        AND (o.ended IS NULL OR o.ended >= clock_timestamp() - make_interval(secs => $1))
    )
    ORDER BY t.ended LIMIT $3
), surplus AS (
    SELECT id FROM apcore_a2a.tasks t WHERE ended IS NOT NULL AND {UNTOLD} ORDER BY ended DESC
    OFFSET $2 LIMIT $3
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
), told AS (
    DELETE FROM apcore_a2a.outbox USING task WHERE task_id = task.id
)
SELECT count(*) FROM task
"""
RENEW = f"""
WITH held AS (
    SELECT t.created FROM apcore_a2a.tasks t
    JOIN unnest($1::text[], $2::int[]) AS lease (id, epoch)
    ON t.id = lease.id AND t.epoch = lease.epoch AND t.expires IS NOT NULL AND t.deadline IS NULL
    ORDER BY t.id FOR UPDATE OF t
)
UPDATE apcore_a2a.tasks t SET expires = {LEASED.format("$3")}
FROM held WHERE t.created = held.created RETURNING t.id, t.epoch
"""

CLAIM = f"""
WITH lost AS (
    SELECT id FROM apcore_a2a.tasks WHERE expires <= clock_timestamp()
    ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE apcore_a2a.tasks t SET
    epoch = epoch + 1, attempts = attempts + 1, expires = {LEASED.format("$2")}
FROM lost WHERE t.id = lost.id RETURNING {COLUMNS}, t.epoch, t.attempts
"""
