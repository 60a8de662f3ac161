-- The statements of the store over an SQLite file.


-- Tasks


-- create: Insert a task, leased to its writer.
INSERT INTO tasks (id, owner, context_id, skill, state, status_at, updated, version, messages,
    body, body_version, resume, epoch, attempts, expires)
VALUES (:task_id, :owner, :context_id, :skill, :state, :status_at,
    (SELECT coalesce(max(updated), 0) + 1 FROM tasks), :version, :messages,
    :body, :version, :resume, 1, 0, :expires);

-- get_key: Return the send that was known by an idempotency key.
SELECT digest, task_id FROM sends WHERE owner = :owner AND key = :key;

-- add_key: Keep the idempotency key of a send.
INSERT INTO sends (owner, key, digest, task_id) VALUES (:owner, :key, :digest, :task_id);

-- get_version: Return what a change depends on.
SELECT version, epoch, first_event, messages FROM tasks WHERE id = :task_id;

-- change_state: Change the state of a task, and who runs it.
UPDATE tasks SET
    state = :state, status_at = :status_at,
    updated = (SELECT coalesce(max(updated), 0) + 1 FROM tasks), messages = :messages,
    resume = :resume, deadline = :deadline, body = :body,
    body_version = :version, version = :version,
    epoch = epoch + :run, attempts = CASE WHEN :run THEN 0 ELSE attempts END,
    expires = CASE WHEN :settled THEN NULL WHEN :run THEN :expires ELSE expires END,
    ended = :ended
WHERE id = :task_id;

-- save_body: Write the body of a task with what its events said.
UPDATE tasks SET body = :body, body_version = :version, version = :version WHERE id = :task_id;

-- save_version: Set the version of a task to which chunks were added; its body stays as it is.
UPDATE tasks SET version = :version WHERE id = :task_id;

-- add_event: Add an event to the log of a task.
INSERT INTO events (task_id, version, body) VALUES (:task_id, :version, :body);

-- delete_events: Delete the oldest events of a task.
DELETE FROM events WHERE task_id = :task_id AND version < :first;

-- save_first_event: Set the version of the first event that is kept.
UPDATE tasks SET first_event = :first WHERE id = :task_id;

-- add_message: Add a message to a conversation.
INSERT INTO messages (owner, context_id, task_id, body)
VALUES (:owner, :context_id, :task_id, :body);

-- get: Return the record of a task; the events after `body_version` have what the body lacks.
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version
FROM tasks WHERE id = :task_id;

-- get_own: Return the record of a task if it is the owner's.
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version
FROM tasks WHERE id = :task_id AND owner = :owner;

-- list_tasks: Return a page of the tasks that some conditions hold for, newest first.
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version,
    {order} AS place
FROM tasks WHERE {conditions} ORDER BY {order} DESC LIMIT :limit;

-- count_tasks: Count the tasks that some conditions hold for.
SELECT count(*) FROM tasks WHERE {conditions};

-- first_event: Return the version of the first event that is kept.
SELECT first_event FROM tasks WHERE id = :task_id;

-- events: Return the next events of a task.
SELECT version, body FROM events WHERE task_id = :task_id AND version > :after
ORDER BY version LIMIT :limit;

-- conversation: Return the latest messages of a conversation in their order.
SELECT body FROM (
    SELECT number, body FROM messages WHERE owner = :owner AND context_id = :context_id
    ORDER BY number DESC LIMIT :limit
) ORDER BY number;

-- over: Return tasks of conversations that were over `before`.
-- A pending notification holds a task back, unless it is a day old.
SELECT id AS task_id FROM tasks t WHERE ended < :before
AND NOT EXISTS (
    SELECT 1 FROM outbox WHERE task_id = t.id AND due IS NOT NULL AND since > :yesterday
) AND NOT EXISTS (
    SELECT 1 FROM tasks o WHERE o.owner = t.owner AND o.context_id = t.context_id
    AND (o.ended IS NULL OR o.ended >= :before)
)
ORDER BY ended LIMIT :limit;

-- surplus: Return ended tasks beyond the number that is kept; notifications hold them back too.
SELECT id AS task_id FROM tasks t WHERE ended IS NOT NULL
AND NOT EXISTS (
    SELECT 1 FROM outbox WHERE task_id = t.id AND due IS NOT NULL AND since > :yesterday
)
ORDER BY ended DESC LIMIT :limit OFFSET :kept;

-- delete_task: Delete a task; what belongs to it is deleted beside it.
DELETE FROM tasks WHERE id = :task_id;

-- delete_task_events: Delete the events of a task.
DELETE FROM events WHERE task_id = :task_id;

-- delete_task_messages: Delete the messages of a task.
DELETE FROM messages WHERE task_id = :task_id;

-- delete_task_sends: Delete the idempotency keys of a task.
DELETE FROM sends WHERE task_id = :task_id;

-- delete_task_notifications: Delete the notifications of a task.
DELETE FROM outbox WHERE task_id = :task_id;

-- renew: Renew a lease that is still held.
UPDATE tasks SET expires = :expires
WHERE id = :task_id AND epoch = :epoch AND expires IS NOT NULL;

-- expired: Return tasks whose lease has expired by the clock of leases, or whose deadline is over.
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version, epoch, attempts
FROM tasks WHERE expires <= :now
UNION ALL
SELECT owner, skill, version, resume, messages, deadline, id, body, body_version, epoch, attempts
FROM tasks WHERE expires IS NULL AND deadline <= :time
LIMIT :limit;

-- claim: Lease a task.
UPDATE tasks SET epoch = :epoch, attempts = :attempts, expires = :expires WHERE id = :task_id;


-- Webhooks and their notifications


-- has_task: Return a row if the task is there.
SELECT 1 FROM tasks WHERE id = :task_id;

-- get_webhooks: Return the webhooks of a task, oldest first.
SELECT body, version, failure FROM webhooks WHERE task_id = :task_id ORDER BY number;

-- delete_webhooks: Delete the webhooks of a task.
DELETE FROM webhooks WHERE task_id = :task_id;

-- add_webhook: Insert a webhook of a task.
INSERT INTO webhooks (task_id, config_id, host, version, failure, body)
VALUES (:task_id, :config_id, :host, :version, :failure, :body);

-- delete_notifications: Delete the notifications of a webhook that is gone.
DELETE FROM outbox WHERE task_id = :task_id AND config_id = :config_id;

-- restart: Make the notifications of a webhook that was set again due at once.
UPDATE outbox SET attempts = 0, due = :now, host = :host
WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL;

-- add_notifications: Add a notification of an event for each webhook of a task.
-- A pause after a failure holds for all notifications of a webhook.
INSERT INTO outbox (task_id, config_id, version, owner, host, body, since, due)
SELECT t.id, w.config_id, :version, t.owner, w.host, :body, :now, coalesce((
    SELECT max(o.due) FROM outbox o WHERE o.task_id = t.id AND o.config_id = w.config_id
), :now)
FROM tasks t JOIN webhooks w ON w.task_id = t.id WHERE t.id = :task_id AND w.failure = '';

-- first_pair: Return the first owner and host with pending notifications, and the earliest due.
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL ORDER BY owner, host, due LIMIT 1;

-- next_host: Return the owner's next host.
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL AND owner = :owner AND host > :host
ORDER BY owner, host, due LIMIT 1;

-- next_owner: Return the next owner, with the first host.
SELECT due, owner, host FROM outbox WHERE due IS NOT NULL AND owner > :owner
ORDER BY owner, host, due LIMIT 1;

-- next_notifications: Return the next due notification of each webhook of an owner and a host.
SELECT o.due, o.task_id, o.owner, o.version, o.body, o.attempts + 1 AS attempts, w.body AS config,
    w.version AS dialect
FROM outbox o JOIN webhooks w ON w.task_id = o.task_id AND w.config_id = o.config_id
    AND w.failure = ''
WHERE o.owner = :owner AND o.host = :host AND o.due <= :now AND NOT EXISTS (
    SELECT 1 FROM outbox p WHERE p.task_id = o.task_id AND p.config_id = o.config_id
    AND p.version < o.version AND p.due IS NOT NULL
) ORDER BY o.due, o.version LIMIT :per_host;

-- claim_notification: Lease a notification, and those of its webhook that wait for it.
UPDATE outbox SET due = :due, attempts = attempts + (version = :version)
WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL;

-- settle: Delete a notification that was delivered.
-- It must not have been leased again meanwhile, nor its webhook set again.
DELETE FROM outbox
WHERE task_id = :task_id AND config_id = :config_id AND version = :version
AND attempts = :attempts AND EXISTS (
    SELECT 1 FROM webhooks w
    WHERE w.task_id = :task_id AND w.config_id = :config_id AND w.body = :config
);

-- is_claimed: Return a row if the notification is still leased, and its webhook was not set again.
SELECT 1 FROM outbox
WHERE task_id = :task_id AND config_id = :config_id AND version = :version
AND attempts = :attempts AND EXISTS (
    SELECT 1 FROM webhooks w
    WHERE w.task_id = :task_id AND w.config_id = :config_id AND w.body = :config
);

-- postpone: Make the notifications of a webhook due at another time.
UPDATE outbox SET due = :due
WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL;

-- fail: Mark a webhook as failed, unless it was set again.
UPDATE webhooks SET failure = :reason
WHERE task_id = :task_id AND config_id = :config_id AND body = :config AND failure = '';

-- fail_surplus: Mark the webhooks as failed with an owner's latest notifications, beyond `most`.
UPDATE webhooks SET failure = :reason WHERE failure = '' AND (task_id, config_id) IN (
    SELECT task_id, config_id FROM outbox WHERE owner = :owner AND due IS NOT NULL
    ORDER BY since, version LIMIT -1 OFFSET :most
);

-- dead_letter: Dead-letter the notifications of a webhook.
UPDATE outbox SET due = NULL, failure = :reason
WHERE task_id = :task_id AND config_id = :config_id AND due IS NOT NULL;

-- dead_letter_all: Dead-letter the notifications whose webhook has failed or is gone.
UPDATE outbox SET due = NULL, failure = coalesce((
    SELECT w.failure FROM webhooks w
    WHERE w.task_id = outbox.task_id AND w.config_id = outbox.config_id
), :gone)
WHERE due IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM webhooks w
    WHERE w.task_id = outbox.task_id AND w.config_id = outbox.config_id AND w.failure = ''
);

-- count_pending: Count each owner's pending notifications, and return the age of the oldest.
SELECT owner, count(*) AS pending, :now - min(since) AS age
FROM outbox WHERE due IS NOT NULL GROUP BY owner;


-- Checks


-- list_objects: Return the tables and indexes, but for those that SQLite has made itself.
SELECT type, name FROM sqlite_schema WHERE sql IS NOT NULL;

-- count_states: Count the tasks in each state.
SELECT state, count(*) FROM tasks GROUP BY state ORDER BY state;

-- count_dead_letters: Count the notifications that were given up.
SELECT count(*) FROM outbox WHERE due IS NULL;

-- expire_all: Let all leases expire: this process has the file, so their holders are gone.
UPDATE tasks SET expires = 0 WHERE expires IS NOT NULL;
