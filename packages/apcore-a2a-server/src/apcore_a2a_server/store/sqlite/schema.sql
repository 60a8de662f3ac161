-- The schema of an SQLite file: each block raises the schema version by one.

-- version_1: Tasks with their events, messages and webhooks, idempotency keys, and the outbox.
-- `sends` has the requests with an idempotency key, and the task of each.
-- `created` and `updated` are numbers that give an order, not times. `expires` is a time by the
-- monotonic clock; all other times are in seconds since 1970.
CREATE TABLE tasks (
    created INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    context_id TEXT NOT NULL,
    skill TEXT NOT NULL,
    state INTEGER NOT NULL,
    status_at REAL NOT NULL,
    updated INTEGER NOT NULL,
    version INTEGER NOT NULL,
    first_event INTEGER NOT NULL DEFAULT 1,
    messages INTEGER NOT NULL,
    body BLOB NOT NULL,
    body_version INTEGER NOT NULL,
    resume BLOB,
    deadline REAL,
    epoch INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    expires REAL,
    ended REAL
);
CREATE INDEX tasks_created ON tasks (owner, created);
CREATE INDEX tasks_context ON tasks (owner, context_id, created);
CREATE INDEX tasks_updated ON tasks (owner, updated);
CREATE INDEX tasks_update ON tasks (updated);
CREATE INDEX tasks_expires ON tasks (expires) WHERE expires IS NOT NULL;
CREATE INDEX tasks_deadline ON tasks (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX tasks_ended ON tasks (ended) WHERE ended IS NOT NULL;
CREATE TABLE events (
    task_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task_id, version)
) WITHOUT ROWID;
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    context_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX messages_context ON messages (owner, context_id, number);
CREATE INDEX messages_task ON messages (task_id);
CREATE TABLE webhooks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL,
    config_id TEXT NOT NULL,
    host TEXT NOT NULL,
    version TEXT NOT NULL,
    failure TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX webhooks_task ON webhooks (task_id, config_id);
CREATE TABLE outbox (
    task_id TEXT NOT NULL,
    config_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    owner TEXT NOT NULL,
    host TEXT NOT NULL,
    body BLOB NOT NULL,
    since REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due REAL,
    failure TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (task_id, config_id, version)
) WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox (owner, host, due, version, since) WHERE due IS NOT NULL;
CREATE TABLE sends (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    task_id TEXT NOT NULL,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;
CREATE INDEX sends_task ON sends (task_id);

-- version_2: The key of page tokens.
CREATE TABLE page_key (key BLOB NOT NULL);
INSERT INTO page_key VALUES (randomblob(32));

-- version_3: The time when a task's module was last started, in seconds since 1970.
ALTER TABLE tasks ADD COLUMN started REAL NOT NULL DEFAULT 0;

-- version_4: JSON in place of protobuf in all bodies.
UPDATE tasks SET body = as_json('tasks', body);
UPDATE messages SET body = as_json('messages', body);
UPDATE webhooks SET body = as_json('webhooks', body);
UPDATE events SET body = as_json('events', body);
UPDATE outbox SET body = as_json('outbox', body);

-- version_5: Indexes for lists in update order, and for counting tasks by state and time.
DROP INDEX tasks_updated;
CREATE INDEX tasks_updated ON tasks (owner, updated, state, status_at);
CREATE INDEX tasks_context_updated ON tasks (owner, context_id, updated, state, status_at);

-- version_6: The trace context of a webhook's task, for its notifications.
ALTER TABLE webhooks ADD COLUMN trace TEXT NOT NULL DEFAULT '';

-- version_7: The last attempts of a webhook, and an index of the webhooks that have failed.
ALTER TABLE webhooks ADD COLUMN attempts TEXT NOT NULL DEFAULT '';
CREATE INDEX webhooks_failed ON webhooks (task_id) WHERE failure <> '';

-- version_8: The spans of a task, for its trace page.
ALTER TABLE tasks ADD COLUMN spans TEXT NOT NULL DEFAULT '';

-- version_9: No change. Only the PostgreSQL schema changes; both have the same version numbers.
SELECT 9;
