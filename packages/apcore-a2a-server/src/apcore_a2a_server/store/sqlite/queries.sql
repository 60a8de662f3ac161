-- The statements of the store in an SQLite file.


-- Tasks


-- create: Insert a task with its first lease.
INSERT INTO tasks (id, owner, context_id, skill, state, status_at, updated, version, messages,
    body, body_version, resume, epoch, attempts, started, expires)
VALUES (:task_id, :owner, :context_id, :skill, :state, :status_at,
    (SELECT coalesce(max(updated), 0) + 1 FROM tasks), :version, :messages,
    :body, :version, :resume, 1, 0, :now, :expires);

-- get_key: Return the digest and the task of the request that used an idempotency key.
SELECT digest, task_id FROM sends WHERE owner = :owner AND key = :key;

-- add_key: Insert the idempotency key of a request.
INSERT INTO sends (owner, key, digest, task_id) VALUES (:owner, :key, :digest, :task_id);

-- get_version: Return the values of a task that a change depends on.
SELECT version, epoch, first_event, messages FROM tasks WHERE id = :task_id;

-- change_state: Change the state of a task, and its lease.
UPDATE tasks SET
    skill = :skill, state = :state, status_at = :status_at,
    updated = (SELECT coalesce(max(updated), 0) + 1 FROM tasks), messages = :messages,
    resume = :resume, deadline = :deadline, body = :body,
    body_version = :version, version = :version,
    epoch = epoch + :run, attempts = CASE WHEN :run THEN 0 ELSE attempts + :restart END,
    started = CASE WHEN :run OR :restart THEN :now ELSE started END,
    expires = CASE WHEN :settled THEN NULL WHEN :run THEN :expires ELSE expires END,
    ended = CASE WHEN :terminal THEN :now END,
    spans = CASE WHEN :spans = '' THEN spans ELSE substr(spans || :spans, 1, :max_spans) END
WHERE id = :task_id;

-- get_spans: Return the spans of a task.
SELECT spans FROM tasks WHERE id = :task_id;

-- save_body: Write the body of a task with the chunks of its events.
UPDATE tasks SET body = :body, body_version = :version, version = :version WHERE id = :task_id;

-- save_version: Set the version of a task with new chunks or progress, without writing its body.
UPDATE tasks SET version = :version WHERE id = :task_id;

-- add_event: Add an event to the event log of a task.
INSERT INTO events (task_id, version, body) VALUES (:task_id, :version, :body);

-- delete_events: Delete the oldest events of a task.
DELETE FROM events WHERE task_id = :task_id AND version < :first;

-- save_first_event: Set the version of a task's first stored event.
UPDATE tasks SET first_event = :first WHERE id = :task_id;

-- add_message: Add a message to a conversation.
INSERT INTO messages (owner, context_id, task_id, body)
VALUES (:owner, :context_id, :task_id, :body);

-- get: Return the record of a task; if `owner` is given, only a task of that owner is read.
-- The body lacks the chunks of the events after `body_version`.
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version
FROM tasks WHERE id = :task_id AND (:owner IS NULL OR owner = :owner);

-- get_page_key: Return the key of page tokens.
SELECT key FROM page_key;

-- list_tasks: Return a page of the tasks that meet some conditions, newest first.
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version,
    {order} AS position
FROM tasks WHERE {conditions} ORDER BY {order} DESC LIMIT :limit;

-- count_tasks: Count the tasks that meet some conditions.
SELECT count(*) FROM tasks WHERE {conditions};

-- open_tasks: Count the tasks in each state that is not final, with the time of the oldest status.
-- Running tasks have a lease, and paused ones a deadline.
SELECT state, count(*), min(status_at) FROM tasks WHERE expires IS NOT NULL GROUP BY state
UNION ALL
SELECT state, count(*), min(status_at) FROM tasks
WHERE expires IS NULL AND deadline IS NOT NULL GROUP BY state;

-- get_first_event: Return the version of a task's first stored event.
SELECT first_event FROM tasks WHERE id = :task_id;

-- events: Return the next events of a task.
SELECT version, body FROM events WHERE task_id = :task_id AND version > :after
ORDER BY version LIMIT :limit;

-- get_messages: Return some messages of a task, oldest first.
SELECT body FROM messages WHERE task_id = :task_id ORDER BY number LIMIT :limit OFFSET :offset;

-- conversation: Return the latest messages of a conversation, oldest first.
SELECT body FROM (
    SELECT number, body FROM messages WHERE owner = :owner AND context_id = :context_id
    ORDER BY number DESC LIMIT :limit
) ORDER BY number;

-- expired_tasks: Return tasks of conversations that ended before `before`.
-- A task with a pending notification is kept, unless the notification is a day old.
SELECT id AS task_id FROM tasks t WHERE ended < :before
AND NOT EXISTS (
    SELECT 1 FROM outbox WHERE task_id = t.id AND due IS NOT NULL AND since > :yesterday
) AND NOT EXISTS (
    SELECT 1 FROM tasks o WHERE o.owner = t.owner AND o.context_id = t.context_id
    AND (o.ended IS NULL OR o.ended >= :before)
)
ORDER BY ended LIMIT :limit;

-- surplus_tasks: Return ended tasks beyond the number to keep.
-- Tasks with a pending notification are kept as in `expired_tasks`.
SELECT id AS task_id FROM tasks t WHERE ended IS NOT NULL
AND NOT EXISTS (
    SELECT 1 FROM outbox WHERE task_id = t.id AND due IS NOT NULL AND since > :yesterday
)
ORDER BY ended DESC LIMIT :limit OFFSET :kept;

-- ended_tasks: Return ended tasks of an owner.
SELECT id AS task_id FROM tasks WHERE owner = :owner AND ended IS NOT NULL LIMIT :limit;

-- owners: Return the owners from the name `owner` up to, but not including, `owner_end`.
SELECT DISTINCT owner FROM tasks WHERE owner >= :owner AND owner < :owner_end;

-- delete_task: Delete a task; other statements delete everything that belongs to it.
DELETE FROM tasks WHERE id = :task_id;

-- delete_task_events: Delete the events of a task.
DELETE FROM events WHERE task_id = :task_id;

-- delete_task_messages: Delete the messages of a task.
DELETE FROM messages WHERE task_id = :task_id;

-- delete_task_sends: Delete the idempotency keys of a task.
DELETE FROM sends WHERE task_id = :task_id;

-- delete_task_notifications: Delete the notifications of a task.
DELETE FROM outbox WHERE task_id = :task_id;

-- extend: Set when a lease expires, if it is still held.
UPDATE tasks SET expires = :expires
WHERE id = :task_id AND epoch = :epoch AND expires IS NOT NULL;

-- claimable_tasks: Return tasks whose lease has expired, or whose deadline has passed.
-- Leases expire by the monotonic clock, deadlines by the time of day (`now`). The rows
-- have the epoch that `claim` sets. The column `attempts` counts restarts;
-- `pauses` has, as JSON, the seconds from each start to the next. A clock that was set back must
-- not make that time longer.
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version,
    epoch + 1 AS epoch, attempts + 1 AS attempts
FROM tasks WHERE expires <= :monotonic_now AND (resume IS NULL OR :now NOT BETWEEN started
    AND started + coalesce(json_extract(:pauses, '$[' || attempts || ']'), 0))
UNION ALL
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version,
    epoch + 1, attempts + 1
FROM tasks WHERE expires IS NULL AND deadline <= :now
LIMIT :limit;

-- claim: Lease a task.
UPDATE tasks SET epoch = epoch + 1, expires = :expires
WHERE id = :task_id;

-- expire_all: Let all leases expire: this process has locked the file, so their holders have ended.
UPDATE tasks SET expires = 0 WHERE expires IS NOT NULL;


-- Webhooks and their notifications


-- has_task: Return a row if the task exists.
SELECT 1 FROM tasks WHERE id = :task_id;

-- get_webhooks: Return the webhooks of a task, oldest first.
SELECT body, version, failure, trace FROM webhooks WHERE task_id = :task_id ORDER BY number;

-- get_attempts: Return the attempts of the webhooks of a task.
SELECT body, attempts FROM webhooks WHERE task_id = :task_id AND attempts <> '';

-- list_webhooks: Return the webhooks that meet some conditions, from the newest task to the oldest.
-- The cross join makes SQLite read tasks in that order, and no more tasks than it needs.
SELECT w.task_id, t.owner, w.body AS config, w.version AS dialect, w.failure, w.trace,
    w.attempts, (
        SELECT count(due) FROM outbox o WHERE o.task_id = t.id AND o.config_id = w.config_id
    ) AS pending, (
        SELECT min(due) FROM outbox o WHERE o.task_id = t.id AND o.config_id = w.config_id
    ) AS due
FROM tasks t CROSS JOIN webhooks w ON w.task_id = t.id
WHERE {conditions} ORDER BY t.created DESC, w.number LIMIT :limit;

-- delete_webhooks: Delete the webhooks of a task.
DELETE FROM webhooks WHERE task_id = :task_id;

-- count_failed_webhooks: Count the webhooks that have failed.
SELECT count(*) FROM webhooks WHERE failure <> '';

-- add_webhook: Add a webhook to a task.
INSERT INTO webhooks (task_id, config_id, host, version, failure, trace, body, attempts)
VALUES (:task_id, :config_id, :host, :version, :failure, :trace, :body, :attempts);

-- delete_notifications_of_removed_webhooks: Delete the notifications of removed webhooks.
DELETE FROM outbox WHERE task_id = :task_id AND config_id NOT IN (
    SELECT config_id FROM webhooks WHERE task_id = :task_id
);

-- restart_delivery: Make notifications of a changed webhook due at once, and reset their attempts.
UPDATE outbox SET attempts = 0, due = :now, host = :host
WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL;

-- add_notifications: Add a notification of an event for each active webhook of a task.
-- The notification is due no earlier than the webhook's others, which may be leased or postponed.
INSERT INTO outbox (task_id, config_id, version, owner, host, body, since, due)
SELECT t.id, w.config_id, :version, t.owner, w.host, :body, :now, coalesce((
    SELECT max(o.due) FROM outbox o WHERE o.task_id = t.id AND o.config_id = w.config_id
), :now)
FROM tasks t JOIN webhooks w ON w.task_id = t.id WHERE t.id = :task_id AND w.failure = '';

-- first_pair: Return the first owner and host with pending notifications, and their next due time.
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL ORDER BY owner, host, due LIMIT 1;

-- next_host: Return the owner's next host.
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL AND owner = :owner AND host > :host
ORDER BY owner, host, due LIMIT 1;

-- next_owner: Return the next owner, with its first host.
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL AND owner > :owner
ORDER BY owner, host, due LIMIT 1;

-- next_notifications: Return the next due notification of each webhook of an owner and a host.
SELECT o.due, o.task_id, o.owner, o.version, o.body, o.attempts + 1 AS attempts, w.body AS config,
    w.version AS dialect, w.trace
FROM outbox o JOIN webhooks w ON w.task_id = o.task_id AND w.config_id = o.config_id
    AND w.failure = ''
WHERE o.owner = :owner AND o.host = :host AND o.due <= :now AND NOT EXISTS (
    SELECT 1 FROM outbox p WHERE p.task_id = o.task_id AND p.config_id = o.config_id
    AND p.version < o.version AND p.due IS NOT NULL
) ORDER BY o.due, o.version LIMIT :per_host;

-- claim_notification: Lease a notification, and the later ones of its webhook.
UPDATE outbox SET due = :due, attempts = attempts + (version = :version)
WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL;

-- settle: Delete a notification that was delivered.
-- Nothing happens if it was claimed again meanwhile, or its webhook replaced.
DELETE FROM outbox
WHERE task_id = :task_id AND config_id = :config_id AND version = :version
AND attempts = :attempts AND EXISTS (
    SELECT 1 FROM webhooks w
    WHERE w.task_id = :task_id AND w.config_id = :config_id AND w.body = :config
);

-- is_still_claimed: Return a row unless the notification was claimed again or its webhook replaced.
SELECT 1 FROM outbox
WHERE task_id = :task_id AND config_id = :config_id AND version = :version
AND attempts = :attempts AND EXISTS (
    SELECT 1 FROM webhooks w
    WHERE w.task_id = :task_id AND w.config_id = :config_id AND w.body = :config
);

-- set_due: Set when the notifications of a webhook are due.
UPDATE outbox SET due = :due
WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL;

-- add_attempt: Add an attempt to those of a webhook, the newest first.
UPDATE webhooks SET attempts = substr(:line || attempts, 1, :max_size)
WHERE task_id = :task_id AND config_id = :config_id;

-- fail: Mark a webhook as failed, unless it was replaced.
UPDATE webhooks SET failure = :reason, attempts = substr(:line || attempts, 1, :max_size)
WHERE task_id = :task_id AND config_id = :config_id AND body = :config AND failure = '';

-- fail_surplus: Fail an owner's webhooks with notifications beyond the `max_pending` oldest.
UPDATE webhooks SET failure = :reason WHERE failure = '' AND (task_id, config_id) IN (
    SELECT task_id, config_id FROM outbox WHERE owner = :owner AND due IS NOT NULL
    ORDER BY since, version LIMIT -1 OFFSET :max_pending
);

-- dead_letter: Dead-letter the notifications of a webhook.
UPDATE outbox SET due = NULL, failure = :reason
WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL;

-- webhook_has_failed: Return whether a webhook of a task has failed.
SELECT failure <> '' AS has_failed FROM webhooks
WHERE task_id = :task_id AND config_id = :config_id;

-- reactivate: Make a failed webhook active again.
UPDATE webhooks SET failure = '' WHERE task_id = :task_id AND config_id = :config_id;

-- events_after_dead_letters: Return the events of a task after the last dead letter of a webhook.
SELECT version, body FROM events WHERE task_id = :task_id AND version > (
    SELECT max(version) FROM outbox WHERE task_id = :task_id AND config_id = :config_id
) ORDER BY version;

-- requeue: Make the dead letters of a webhook due.
UPDATE outbox SET due = :now, since = :now, attempts = 0, failure = ''
WHERE task_id = :task_id AND config_id = :config_id AND due IS NULL;

-- add_notification: Add a notification of an event for one webhook of a task.
INSERT INTO outbox (task_id, config_id, version, owner, host, body, since, due)
SELECT t.id, w.config_id, :version, t.owner, w.host, :body, :now, :now
FROM tasks t JOIN webhooks w ON w.task_id = t.id
WHERE t.id = :task_id AND w.config_id = :config_id;

-- dead_letter_all: Dead-letter the notifications whose webhook has failed or is gone.
UPDATE outbox SET due = NULL, failure = coalesce((
    SELECT w.failure FROM webhooks w
    WHERE w.task_id = outbox.task_id AND w.config_id = outbox.config_id
), :reason)
WHERE due IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM webhooks w
    WHERE w.task_id = outbox.task_id AND w.config_id = outbox.config_id AND w.failure = ''
);

-- count_pending: Count each owner's pending notifications, and return the age of the oldest.
SELECT owner, count(*) AS pending, :now - min(since) AS age
FROM outbox WHERE due IS NOT NULL GROUP BY owner;


-- Checks


-- list_objects: Return the tables and indexes, without the indexes that SQLite creates itself.
SELECT type, name FROM sqlite_schema WHERE sql IS NOT NULL;

-- count_states: Count the tasks in each state.
SELECT state, count(*) FROM tasks GROUP BY state ORDER BY state;

-- count_dead_letters: Count the notifications that were given up.
SELECT count(*) FROM outbox WHERE due IS NULL;
