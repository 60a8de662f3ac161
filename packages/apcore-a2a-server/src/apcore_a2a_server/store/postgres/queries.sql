-- The statements of the store in a PostgreSQL database.
-- Each runs in a separate transaction, except in a batch or in `Database.transaction`.


-- Tasks


-- create: Insert a task with its events, messages, webhooks, notifications and idempotency key.
WITH task AS (
    INSERT INTO apcore_a2a.tasks (id, owner, context_id, skill, state, status_at, version,
        messages, body, body_version, resume, holder, expires)
    VALUES (:task_id, :owner, :context_id, :skill, :state, :status_at, :version,
        :messages, :body, :version, :resume, :holder,
        clock_timestamp() + make_interval(secs => :lease_seconds))
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
    FROM unnest(:message_bodies::bytea[]) WITH ORDINALITY AS new (body, position) ORDER BY position
), webhook AS (
    INSERT INTO apcore_a2a.webhooks (task_id, config_id, host, version, failure, trace, body)
    SELECT :task_id, config_id, host, version, failure, trace, body
    FROM unnest(:config_ids::text[], :hosts::text[], :dialects::text[], :failures::text[],
            :traces::text[], :configs::bytea[]) WITH ORDINALITY
        AS new (config_id, host, version, failure, trace, body, position) ORDER BY position
), notification AS (
    INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body)
    SELECT :task_id, hook.config_id, event.version, :owner, hook.host, event.body
    FROM unnest(:config_ids::text[], :hosts::text[], :failures::text[])
            AS hook (config_id, host, failure),
        unnest(:event_versions::int[], :event_bodies::bytea[]) AS event (version, body)
    WHERE hook.failure = ''
)
SELECT :call_index::int AS call_index;

-- change_state: Change the state and the lease of a task that still has the version `base`.
-- If `epoch` is given, the lease must have it. `snapshot` has values from before the wait for the
-- row lock. `hooks` counts the edits of the task's webhooks: `missed` is true if there were
-- edits during that wait. This statement does not see them. `behind` is true if a new
-- notification is not due yet, because earlier ones of its webhook are claimed or postponed;
-- `notifies` is true if any notification was added.
WITH snapshot AS (
    SELECT messages, hooks FROM apcore_a2a.tasks WHERE id = :task_id
), task AS (
    UPDATE apcore_a2a.tasks SET
        version = :version, body_version = :version, skill = :skill, state = :state,
        status_at = :status_at, updated = nextval('apcore_a2a.updates'), messages = :messages,
        body = :body, resume = :resume, epoch = epoch + :run::int,
        attempts = CASE :run::int WHEN 1 THEN 0 ELSE attempts + :restart::int END,
        started = CASE WHEN 1 IN (:run::int, :restart::int) THEN clock_timestamp()
            ELSE started END,
        expires = CASE WHEN :settled THEN to_timestamp(:deadline)
            WHEN :run::int = 1 THEN clock_timestamp() + make_interval(secs => :lease_seconds)
            ELSE expires END,
        holder = CASE :run::int WHEN 1 THEN :holder ELSE holder END,
        ended = CASE WHEN :terminal THEN clock_timestamp() END, deadline = :deadline,
        spans = CASE WHEN :spans::text = '' THEN spans
            ELSE left(spans || :spans::text, :max_spans) END
    WHERE id = :task_id AND version = :base AND (:epoch::int IS NULL OR epoch = :epoch)
    RETURNING owner, context_id, epoch, first_event, hooks
), event AS (
    INSERT INTO apcore_a2a.events (task_id, version, body)
    SELECT :task_id, version, body
    FROM task, unnest(:event_versions::int[], :event_bodies::bytea[]) AS new (version, body)
), message AS (
    INSERT INTO apcore_a2a.messages (owner, context_id, task_id, body)
    SELECT task.owner, task.context_id, :task_id, new.body
    FROM task, snapshot, unnest(:message_bodies::bytea[]) WITH ORDINALITY AS new (body, position)
    WHERE position > cardinality(:message_bodies::bytea[]) - (:messages - snapshot.messages)
    ORDER BY position
), notification AS (
    INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body, due)
    SELECT :task_id, hook.config_id, new.version, task.owner, hook.host, new.body, coalesce((
        SELECT max(o.due) FROM apcore_a2a.outbox o
        WHERE o.task_id = :task_id AND o.config_id = hook.config_id
    ), clock_timestamp())
    FROM task, apcore_a2a.webhooks hook,
        unnest(:event_versions::int[], :event_bodies::bytea[]) AS new (version, body)
    WHERE hook.task_id = :task_id AND hook.failure = ''
        AND new.version = ANY(:state_versions::int[])
    RETURNING due
)
SELECT :call_index::int AS call_index, epoch, first_event, task.hooks <> snapshot.hooks AS missed,
    EXISTS (SELECT FROM notification WHERE due > clock_timestamp()) AS behind,
    EXISTS (SELECT FROM notification) AS notifies
FROM task, snapshot;

-- add_chunks: Add chunks or progress to the events of a task that still has the version `base`.
-- The task's body is not written: a read adds the chunks of the events after `body_version`.
WITH task AS (
    UPDATE apcore_a2a.tasks SET version = :version
    WHERE id = :task_id AND version = :base AND (:epoch::int IS NULL OR epoch = :epoch)
    RETURNING epoch, first_event
), event AS (
    INSERT INTO apcore_a2a.events (task_id, version, body)
    SELECT :task_id, version, body
    FROM task, unnest(:event_versions::int[], :event_bodies::bytea[]) AS new (version, body)
)
SELECT :call_index::int AS call_index, epoch, first_event, false AS missed, false AS behind,
    false AS notifies
FROM task;

-- trim: Delete the oldest events of a task, and write a body that contains their chunks.
WITH task AS (
    UPDATE apcore_a2a.tasks SET first_event = :first, body = :body, body_version = :version
    WHERE id = :task_id AND version = :version RETURNING id
)
DELETE FROM apcore_a2a.events USING task WHERE task_id = task.id AND version < :first;

-- get_spans: Return the spans of a task.
SELECT spans FROM apcore_a2a.tasks WHERE id = :task_id;

-- get_key: Return the digest and the task of the request that used an idempotency key.
SELECT digest, task_id FROM apcore_a2a.sends WHERE owner = :owner AND key = :key;

-- get_last_change: Return the last event of a change whose reply may have been lost.
-- The other columns are those of `change_state` but for `call_index`. The flags were lost with the reply: all are true
-- here, to be safe.
SELECT t.epoch, t.first_event, e.body, true AS missed, true AS behind, true AS notifies
FROM apcore_a2a.tasks t
JOIN apcore_a2a.events e ON e.task_id = t.id AND e.version = :version WHERE t.id = :task_id;

-- get_version: Return the version and the epoch of a task.
SELECT version, epoch FROM apcore_a2a.tasks WHERE id = :task_id;

-- get_versions: Return the versions of tasks.
SELECT id, version FROM apcore_a2a.tasks WHERE id = ANY(:ids::text[]);

-- get: Return the record of a task; if `owner` is given, only a task of that owner is read.
-- `later_events` are the events since the body was written.
SELECT t.owner, t.skill, t.version, t.resume, t.messages, t.deadline, t.body,
    CASE WHEN t.version > t.body_version THEN
        (SELECT array_agg(e.body ORDER BY e.version) FROM apcore_a2a.events e
         WHERE e.task_id = t.id AND e.version > t.body_version)
    END AS later_events
FROM apcore_a2a.tasks t WHERE id = :task_id AND (:owner::bytea IS NULL OR owner = :owner);

-- get_page_key: Return the key of page tokens.
SELECT key FROM apcore_a2a.page_key;

-- list_tasks: Return a page of the tasks that meet some conditions, newest first.
SELECT t.owner, t.skill, t.version, t.resume, t.messages, t.deadline, t.body,
    CASE WHEN t.version > t.body_version THEN
        (SELECT array_agg(e.body ORDER BY e.version) FROM apcore_a2a.events e
         WHERE e.task_id = t.id AND e.version > t.body_version)
    END AS later_events, t.{order} AS position
FROM apcore_a2a.tasks t WHERE {conditions} ORDER BY {order} DESC LIMIT :limit;

-- count_tasks: Count the tasks that meet some conditions.
SELECT count(*) FROM apcore_a2a.tasks WHERE {conditions};

-- open_tasks: Count the tasks in each state that is not final, with the time of the oldest status.
-- Only ended tasks have no `expires`: it is the end of a lease, or the deadline of a paused task.
SELECT state, count(*), min(status_at) FROM apcore_a2a.tasks
WHERE expires IS NOT NULL GROUP BY state;

-- events: Return the next events of a task, and the version of its first stored event.
SELECT t.first_event, e.version, e.body FROM apcore_a2a.tasks t LEFT JOIN LATERAL (
    SELECT version, body FROM apcore_a2a.events
    WHERE task_id = t.id AND version > :after ORDER BY version LIMIT :limit
) e ON true WHERE t.id = :task_id;

-- get_messages: Return some messages of a task, oldest first.
SELECT body FROM apcore_a2a.messages WHERE task_id = :task_id
ORDER BY number LIMIT :limit OFFSET :offset;

-- conversation: Return the latest messages of a conversation, oldest first.
SELECT body FROM (
    SELECT number, body FROM apcore_a2a.messages WHERE owner = :owner AND context_id = :context_id
    ORDER BY number DESC LIMIT :limit
) latest ORDER BY number;

-- prune: Delete expired conversations, and ended tasks beyond the `kept` latest.
-- A conversation expires `ttl` seconds after the end of its last task. A task with a pending
-- notification stays, unless the notification is a day old.
WITH expired AS (
    SELECT t.id FROM apcore_a2a.tasks t
    WHERE t.ended < clock_timestamp() - make_interval(secs => :ttl)
    AND NOT EXISTS (
        SELECT FROM apcore_a2a.outbox WHERE task_id = t.id AND due IS NOT NULL
        AND since > clock_timestamp() - interval '1 day'
    ) AND NOT EXISTS (
        SELECT FROM apcore_a2a.tasks o WHERE o.owner = t.owner AND o.context_id = t.context_id
        AND (o.ended IS NULL OR o.ended >= clock_timestamp() - make_interval(secs => :ttl))
    )
    ORDER BY t.ended LIMIT :limit
), surplus AS (
    SELECT id FROM apcore_a2a.tasks t WHERE ended IS NOT NULL
    AND NOT EXISTS (
        SELECT FROM apcore_a2a.outbox WHERE task_id = t.id AND due IS NOT NULL
        AND since > clock_timestamp() - interval '1 day'
    )
    ORDER BY ended DESC OFFSET :kept LIMIT :limit
), task AS (
    DELETE FROM apcore_a2a.tasks WHERE id IN (SELECT id FROM expired UNION SELECT id FROM surplus)
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
SELECT count(*) FROM task;

-- owners: Return the owners from the name `owner` up to, but not including, `owner_end`.
SELECT DISTINCT owner FROM apcore_a2a.tasks WHERE owner >= :owner AND owner < :owner_end;

-- delete_ended: Delete ended tasks of an owner and all that belongs to them; count the tasks.
WITH task AS (
    DELETE FROM apcore_a2a.tasks WHERE id IN (
        SELECT id FROM apcore_a2a.tasks WHERE owner = :owner AND ended IS NOT NULL LIMIT :limit
    ) RETURNING id
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
SELECT count(*) FROM task;

-- extend: Set when leases expire, if they are still held; return the held ones.
-- The rows are locked in the order of task ids, as in batches, so that replicas can't deadlock.
WITH held AS (
    SELECT t.created FROM apcore_a2a.tasks t
    JOIN unnest(:ids::text[], :epochs::int[]) AS lease (id, epoch)
    ON t.id = lease.id AND t.epoch = lease.epoch AND t.expires IS NOT NULL AND t.deadline IS NULL
    ORDER BY t.id FOR UPDATE OF t
)
UPDATE apcore_a2a.tasks t SET expires = clock_timestamp() + make_interval(secs => :lease_seconds)
FROM held WHERE t.created = held.created RETURNING t.id, t.epoch;

-- claim: Lease tasks whose lease has expired, or whose deadline has passed.
-- A paused task has no lease: its `expires` is its deadline. Tasks that another replica is
-- claiming are skipped, and so are tasks that must not start again yet. The column
-- `attempts` counts restarts; `pauses` has the seconds to wait from each start to the next. A clock
-- that was set back must not make that time longer.
WITH expired AS (
    SELECT id FROM apcore_a2a.tasks WHERE expires <= clock_timestamp() AND (
        resume IS NULL OR deadline IS NOT NULL OR clock_timestamp() NOT BETWEEN started AND started
            + make_interval(secs => coalesce((:pauses::float8[])[attempts + 1], 0))
    )
    ORDER BY expires LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE apcore_a2a.tasks t SET epoch = epoch + 1, holder = :holder,
    expires = clock_timestamp() + make_interval(secs => :lease_seconds)
FROM expired WHERE t.id = expired.id
RETURNING t.owner, t.skill, t.version, t.resume, t.messages, t.deadline, t.body,
    CASE WHEN t.version > t.body_version THEN
        (SELECT array_agg(e.body ORDER BY e.version) FROM apcore_a2a.events e
         WHERE e.task_id = t.id AND e.version > t.body_version)
    END AS later_events, t.id, t.epoch, t.attempts + 1 AS attempts;

-- lease_holders: Return the replicas that have a lease of these tasks.
SELECT id, holder FROM apcore_a2a.tasks
WHERE id = ANY(:ids::text[]) AND expires > clock_timestamp() AND deadline IS NULL AND holder <> '';

-- save_replica: Save what a replica reports about itself.
INSERT INTO apcore_a2a.replicas (id, host, pid, version, started, draining, leases, running, seen)
VALUES (:replica_id, :host, :pid, :version, :started, :draining, :leases, :running,
    clock_timestamp())
ON CONFLICT (id) DO UPDATE SET draining = excluded.draining, leases = excluded.leases,
    running = excluded.running, seen = excluded.seen;

-- replicas: Return the replicas that have reported lately, and how many seconds ago.
SELECT id, host, pid, version, started, draining, leases, running,
    extract(epoch FROM clock_timestamp() - seen)::float8 AS age
FROM apcore_a2a.replicas WHERE seen > clock_timestamp() - make_interval(secs => :seconds)
ORDER BY started, id;

-- remove_replica: Remove a replica that shuts down.
DELETE FROM apcore_a2a.replicas WHERE id = :replica_id;

-- prune_replicas: Delete the replicas that have not reported lately.
-- Rows that another replica is deleting are skipped, so that no two replicas can deadlock.
DELETE FROM apcore_a2a.replicas WHERE id IN (
    SELECT id FROM apcore_a2a.replicas
    WHERE seen <= clock_timestamp() - make_interval(secs => :seconds) FOR UPDATE SKIP LOCKED
);

-- now: Return the time by the database's clock, in seconds since 1970.
SELECT extract(epoch FROM clock_timestamp())::float8;

-- ping: Write something, to find out whether the database is a standby.
SELECT nextval('apcore_a2a.updates');

-- notify: Send a change notification without waiting for the disk; it may be lost.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(:channel, :payload);

-- clear: Delete all tasks with everything that belongs to them, and the reports of replicas.
TRUNCATE apcore_a2a.tasks, apcore_a2a.events, apcore_a2a.messages, apcore_a2a.webhooks,
    apcore_a2a.sends, apcore_a2a.outbox, apcore_a2a.replicas;


-- Webhooks and their notifications


-- get_webhooks: Return the webhooks of a task, oldest first.
SELECT body, version, failure, trace FROM apcore_a2a.webhooks WHERE task_id = :task_id ORDER BY number;

-- count_failed_webhooks: Count the webhooks that have failed.
SELECT count(*) FROM apcore_a2a.webhooks WHERE failure <> '';

-- lock_webhooks: Lock the row of a task until the end of the transaction, to edit its webhooks.
-- A change that waits for this lock learns from `hooks` that it may have missed the edit.
UPDATE apcore_a2a.tasks SET hooks = hooks + 1 WHERE id = :task_id RETURNING 1;

-- get_attempts: Return the attempts of the webhooks of a task, and lock the rows of the webhooks.
-- `settle` and `postpone` wait until these rows are replaced, and then do nothing.
SELECT body, attempts FROM apcore_a2a.webhooks WHERE task_id = :task_id FOR UPDATE;

-- list_webhooks: Return the webhooks that meet some conditions, from the newest task to the oldest.
SELECT w.task_id, t.owner, w.body AS config, w.version AS dialect, w.failure, w.trace,
    w.attempts, o.pending, o.due
FROM apcore_a2a.tasks t JOIN apcore_a2a.webhooks w ON w.task_id = t.id, LATERAL (
    SELECT count(due) AS pending, extract(epoch FROM min(due))::float8 AS due
    FROM apcore_a2a.outbox WHERE task_id = w.task_id AND config_id = w.config_id
) o
WHERE {conditions} ORDER BY t.created DESC, w.number LIMIT :limit;

-- delete_webhooks: Delete the webhooks of a task.
DELETE FROM apcore_a2a.webhooks WHERE task_id = :task_id;

-- add_webhooks: Add webhooks to a task in the given order.
INSERT INTO apcore_a2a.webhooks (task_id, config_id, host, version, failure, trace, body, attempts)
SELECT :task_id, config_id, host, version, failure, trace, body, attempts
FROM unnest(:config_ids::text[], :hosts::text[], :dialects::text[], :failures::text[],
        :traces::text[], :configs::bytea[], :attempts::text[]) WITH ORDINALITY
    AS new (config_id, host, version, failure, trace, body, attempts, position) ORDER BY position;

-- delete_notifications_of_removed_webhooks: Delete the notifications of removed webhooks.
DELETE FROM apcore_a2a.outbox WHERE task_id = :task_id AND config_id <> ALL(:config_ids::text[]);

-- restart_delivery: Make notifications of changed webhooks due at once, and reset their attempts.
UPDATE apcore_a2a.outbox o SET attempts = 0, due = clock_timestamp(), host = w.host
FROM apcore_a2a.webhooks w WHERE w.task_id = :task_id AND o.task_id = :task_id
AND o.config_id = w.config_id AND w.config_id = ANY(:config_ids::text[]) AND o.due IS NOT NULL;

-- add_missed_notifications: Add the missing notifications of a change's events for active webhooks.
INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body, due)
SELECT :task_id, hook.config_id, event.version, task.owner, hook.host, event.body, coalesce((
    SELECT max(o.due) FROM apcore_a2a.outbox o
    WHERE o.task_id = :task_id AND o.config_id = hook.config_id
), clock_timestamp())
FROM apcore_a2a.webhooks hook JOIN apcore_a2a.events event USING (task_id)
    JOIN apcore_a2a.tasks task ON task.id = task_id
WHERE task_id = :task_id AND hook.failure = '' AND event.version = ANY(:versions::int[])
ON CONFLICT DO NOTHING;

-- mark_next_due: Make the next notification of each webhook of a task due, unless attempted before.
-- If a notification is added while the previous one is settled, neither transaction sees the
-- other. This statement runs after each of the two commits, so the second run sees both.
UPDATE apcore_a2a.outbox o SET due = clock_timestamp()
WHERE task_id = :task_id AND due > clock_timestamp() AND attempts = 0 AND NOT EXISTS (
    SELECT FROM apcore_a2a.outbox p WHERE p.task_id = :task_id AND p.config_id = o.config_id
    AND p.version < o.version AND p.due IS NOT NULL
);

-- claim_notifications: Lease the next due notification of each webhook, as far as slots are free.
-- Each owner has a limited number of slots, and so has each of its hosts. `pair` finds the pairs of
-- owner and host with pending notifications one by one, each with one index lookup: a host with
-- many notifications costs no more than other hosts. All hosts of an owner without a free slot are
-- skipped at once: host names sort before "~". Later notifications of a webhook get the same `due`.
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
        SELECT FROM unnest(:busy_pair_owners::bytea[], :busy_pair_hosts::text[])
            AS busy (owner, host)
        WHERE busy.owner = pair.owner AND busy.host = pair.host
    )
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY owner ORDER BY due, version) AS owner_rank FROM head
), claimable AS (
    SELECT o.task_id, o.config_id, o.version
    FROM apcore_a2a.outbox o JOIN ranked USING (task_id, config_id, version)
    WHERE ranked.owner_rank <= :per_owner AND o.due <= now()
    ORDER BY ranked.due LIMIT :limit FOR UPDATE OF o SKIP LOCKED
), leased AS (
    UPDATE apcore_a2a.outbox o SET
        due = clock_timestamp() + make_interval(secs => :lease_seconds),
        attempts = o.attempts + (o.version = claimable.version)::int
    FROM claimable
    WHERE o.task_id = claimable.task_id AND o.config_id = claimable.config_id AND due IS NOT NULL
    RETURNING o.*
)
SELECT leased.*, w.body AS config, w.version AS dialect, w.trace
FROM leased JOIN claimable USING (task_id, config_id, version)
JOIN apcore_a2a.webhooks w ON w.failure = ''
    AND w.task_id = leased.task_id AND w.config_id = leased.config_id;

-- settle: Delete a notification that was delivered, and add the attempt to the webhook's attempts.
-- Nothing happens if the notification was claimed again meanwhile, or its webhook replaced. The row
-- of the webhook is locked before the notification, as in all statements that lock both.
WITH hook AS (
    UPDATE apcore_a2a.webhooks w SET attempts = left(:line || w.attempts, :max_size)
    WHERE w.task_id = :task_id AND w.config_id = :config_id AND w.body = :config AND EXISTS (
        SELECT FROM apcore_a2a.outbox WHERE task_id = :task_id AND config_id = :config_id
        AND version = :version AND attempts = :attempts
    )
    RETURNING 1
)
DELETE FROM apcore_a2a.outbox
WHERE task_id = :task_id AND config_id = :config_id AND version = :version
AND attempts = :attempts AND EXISTS (SELECT FROM hook);

-- postpone: Make all notifications of a webhook due later, and add the attempt to its attempts.
-- Nothing happens if the notification was claimed again meanwhile, or its webhook replaced.
WITH hook AS (
    UPDATE apcore_a2a.webhooks w SET attempts = left(:line || w.attempts, :max_size)
    WHERE w.task_id = :task_id AND w.config_id = :config_id AND w.body = :config AND EXISTS (
        SELECT FROM apcore_a2a.outbox WHERE task_id = :task_id AND config_id = :config_id
        AND version = :version AND attempts = :attempts AND due IS NOT NULL
    )
    RETURNING 1
)
UPDATE apcore_a2a.outbox later SET
    due = clock_timestamp() + make_interval(secs => :seconds)
FROM apcore_a2a.outbox o
WHERE later.task_id = o.task_id AND later.config_id = o.config_id AND later.due IS NOT NULL
AND o.task_id = :task_id AND o.config_id = :config_id AND o.version = :version
AND o.due IS NOT NULL AND o.attempts = :attempts AND EXISTS (SELECT FROM hook);

-- give_up: Mark a webhook as failed, unless it was replaced, and dead-letter its notifications.
WITH failed AS (
    UPDATE apcore_a2a.webhooks SET failure = :reason, attempts = left(:line || attempts, :max_size)
    WHERE task_id = :task_id AND config_id = :config_id AND body = :config AND failure = ''
    RETURNING 1
), dead AS (
    UPDATE apcore_a2a.outbox SET due = NULL, failure = :reason
    WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL
    AND EXISTS (SELECT FROM failed)
    RETURNING 1
)
SELECT count(*) FROM dead;

-- webhook_has_failed: Return whether a webhook of a task has failed.
SELECT failure <> '' AS has_failed FROM apcore_a2a.webhooks
WHERE task_id = :task_id AND config_id = :config_id;

-- reactivate: Make a failed webhook active again.
UPDATE apcore_a2a.webhooks SET failure = '' WHERE task_id = :task_id AND config_id = :config_id;

-- events_after_dead_letters: Return the events of a task after the last dead letter of a webhook.
SELECT version, body FROM apcore_a2a.events WHERE task_id = :task_id AND version > (
    SELECT max(version) FROM apcore_a2a.outbox
    WHERE task_id = :task_id AND config_id = :config_id
) ORDER BY version;

-- requeue: Make a webhook's dead letters due, and add notifications of later events; count both.
WITH requeued AS (
    UPDATE apcore_a2a.outbox SET due = clock_timestamp(), since = clock_timestamp(), attempts = 0,
        failure = ''
    WHERE task_id = :task_id AND config_id = :config_id AND due IS NULL
    RETURNING 1
), added AS (
    INSERT INTO apcore_a2a.outbox (task_id, config_id, version, owner, host, body)
    SELECT :task_id, hook.config_id, event.version, task.owner, hook.host, event.body
    FROM apcore_a2a.webhooks hook JOIN apcore_a2a.events event USING (task_id)
        JOIN apcore_a2a.tasks task ON task.id = task_id
    WHERE task_id = :task_id AND hook.config_id = :config_id
        AND event.version = ANY(:versions::int[])
    RETURNING 1
)
SELECT (SELECT count(*) FROM requeued) + (SELECT count(*) FROM added);

-- fail_surplus: Fail an owner's webhooks with notifications beyond the `max_pending` oldest.
UPDATE apcore_a2a.webhooks SET failure = :reason
WHERE failure = '' AND (task_id, config_id) IN (
    SELECT task_id, config_id FROM apcore_a2a.outbox WHERE owner = :owner AND due IS NOT NULL
    ORDER BY since, version OFFSET :max_pending
);

-- dead_letter_all: Dead-letter the notifications whose webhook has failed or is gone; count them.
WITH dead AS (
    UPDATE apcore_a2a.outbox o SET due = NULL, failure = coalesce((
        SELECT w.failure FROM apcore_a2a.webhooks w
        WHERE w.task_id = o.task_id AND w.config_id = o.config_id LIMIT 1
    ), :reason)
    WHERE due IS NOT NULL AND NOT EXISTS (
        SELECT FROM apcore_a2a.webhooks w
        WHERE w.task_id = o.task_id AND w.config_id = o.config_id AND w.failure = ''
    )
    RETURNING 1
)
SELECT count(*) FROM dead;

-- count_pending: Count each owner's pending notifications, and return the age of the oldest.
SELECT owner, count(*) AS pending, extract(epoch FROM now() - min(since))::float8 AS age
FROM apcore_a2a.outbox WHERE due IS NOT NULL GROUP BY owner;


-- Checks


-- get_schema_version: Return the version of the schema.
SELECT coalesce(max(version), 0) FROM apcore_a2a.migrations;

-- list_objects: Return all tables, and all valid indexes.
SELECT c.relname FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.relnamespace = to_regnamespace('apcore_a2a') AND i.indisvalid IS NOT FALSE;

-- count_states: Count the tasks in each state.
SELECT state, count(*) FROM apcore_a2a.tasks GROUP BY state ORDER BY state;

-- count_dead_letters: Count the notifications that were given up.
SELECT count(*) FROM apcore_a2a.outbox WHERE due IS NULL;
