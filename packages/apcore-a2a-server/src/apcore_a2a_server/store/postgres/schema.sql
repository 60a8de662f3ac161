-- The schema of a PostgreSQL database: each block raises the schema version by one.

-- version_1: Tasks with their events, messages and webhooks, idempotency keys, and the outbox.
-- `sends` has the requests with an idempotency key, and the task of each.
-- `created` and `updated` are numbers that give an order, not times. `hooks` counts the edits of a
-- task's webhooks. `expires` is the end of the task's lease, or the deadline of a paused task.
CREATE SEQUENCE apcore_a2a.updates;
CREATE TABLE apcore_a2a.tasks (
    created BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL,
    owner BYTEA NOT NULL,
    context_id TEXT COLLATE "C" NOT NULL,
    skill TEXT NOT NULL,
    state SMALLINT NOT NULL,
    status_at DOUBLE PRECISION NOT NULL,
    updated BIGINT NOT NULL DEFAULT nextval('apcore_a2a.updates'),
    version INTEGER NOT NULL,
    first_event INTEGER NOT NULL DEFAULT 1,
    messages INTEGER NOT NULL,
    body BYTEA NOT NULL,
    body_version INTEGER NOT NULL,
    resume BYTEA,
    deadline DOUBLE PRECISION,
    hooks INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 1,
    attempts INTEGER NOT NULL DEFAULT 0,
    expires TIMESTAMPTZ,
    ended TIMESTAMPTZ
);
CREATE UNIQUE INDEX tasks_id_key ON apcore_a2a.tasks (id);
CREATE INDEX tasks_owner_created_idx ON apcore_a2a.tasks (owner, created);
CREATE INDEX tasks_owner_context_id_created_idx ON apcore_a2a.tasks (owner, context_id, created);
CREATE INDEX tasks_owner_updated_idx ON apcore_a2a.tasks (owner, updated);
CREATE INDEX tasks_expires_idx ON apcore_a2a.tasks (expires) WHERE expires IS NOT NULL;
CREATE INDEX tasks_ended_idx ON apcore_a2a.tasks (ended) WHERE ended IS NOT NULL;
CREATE TABLE apcore_a2a.events (
    task_id TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (task_id, version)
);
CREATE TABLE apcore_a2a.messages (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner BYTEA NOT NULL,
    context_id TEXT COLLATE "C" NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX messages_owner_context_id_number_idx
    ON apcore_a2a.messages (owner, context_id, number);
CREATE INDEX messages_task_id_idx ON apcore_a2a.messages (task_id);
CREATE TABLE apcore_a2a.webhooks (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id TEXT COLLATE "C" NOT NULL,
    config_id TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    version TEXT NOT NULL,
    failure TEXT NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX webhooks_task_id_config_id_idx ON apcore_a2a.webhooks (task_id, config_id);
CREATE TABLE apcore_a2a.outbox (
    task_id TEXT COLLATE "C" NOT NULL,
    config_id TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    owner BYTEA NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL,
    since TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    attempts INTEGER NOT NULL DEFAULT 0,
    due TIMESTAMPTZ DEFAULT clock_timestamp(),
    failure TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (task_id, config_id, version)
);
CREATE INDEX outbox_owner_host_due_version_idx
    ON apcore_a2a.outbox (owner, host, due, version) WHERE due IS NOT NULL;
CREATE TABLE apcore_a2a.sends (
    owner BYTEA NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    digest BYTEA NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (owner, key)
);
CREATE INDEX sends_task_id_idx ON apcore_a2a.sends (task_id);

-- version_2: The key of page tokens: two random UUIDs have 244 random bits.
CREATE TABLE apcore_a2a.page_key (key BYTEA NOT NULL);
INSERT INTO apcore_a2a.page_key
VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- version_3: The time when a task's module was last started.
-- `now()` is evaluated only once, so adding the column does not rewrite the table.
ALTER TABLE apcore_a2a.tasks ADD COLUMN started TIMESTAMPTZ NOT NULL DEFAULT now();
ALTER TABLE apcore_a2a.tasks ALTER COLUMN started SET DEFAULT clock_timestamp();

-- version_4: JSON in place of protobuf in all bodies; `migrate` converts them.
SELECT 4;

-- version_5: An index for lists in update order, and for counting tasks by state and time.
DROP INDEX apcore_a2a.tasks_owner_updated_idx;
CREATE INDEX tasks_owner_updated_idx ON apcore_a2a.tasks (owner, updated, state, status_at);

-- version_6: The trace context of a webhook's task, for its notifications.
ALTER TABLE apcore_a2a.webhooks ADD COLUMN trace TEXT NOT NULL DEFAULT '';

-- version_7: The last attempts of a webhook, and an index of the webhooks that have failed.
ALTER TABLE apcore_a2a.webhooks ADD COLUMN attempts TEXT NOT NULL DEFAULT '';
CREATE INDEX webhooks_failed_idx ON apcore_a2a.webhooks (task_id) WHERE failure <> '';

-- version_8: The spans of a task, for its trace page.
ALTER TABLE apcore_a2a.tasks ADD COLUMN spans TEXT NOT NULL DEFAULT '';

-- version_9: The replicas that share the database, and the replica that has the lease of a task.
ALTER TABLE apcore_a2a.tasks ADD COLUMN holder TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE TABLE apcore_a2a.replicas (
    id TEXT COLLATE "C" PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    version TEXT NOT NULL,
    started DOUBLE PRECISION NOT NULL,
    draining BOOLEAN NOT NULL,
    leases INTEGER NOT NULL,
    running INTEGER NOT NULL,
    seen TIMESTAMPTZ NOT NULL
);
