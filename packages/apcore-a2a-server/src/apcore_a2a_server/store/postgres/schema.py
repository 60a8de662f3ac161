"""The schema of a PostgreSQL database, and its migrations."""

from typing import Any

from apcore_a2a_server.store.errors import SchemaError

TABLES = ("tasks", "events", "messages", "webhooks", "sends", "outbox")
INDEXES = (
    *(f"{table}_pkey" for table in TABLES),
    *("tasks_id_key", "tasks_owner_created_idx", "tasks_owner_context_id_created_idx"),
    *("tasks_owner_updated_idx", "tasks_expires_idx", "tasks_ended_idx"),
    *("messages_owner_context_id_number_idx", "messages_task_id_idx"),
    *("webhooks_task_id_config_id_idx", "outbox_owner_host_due_version_idx", "sends_task_id_idx"),
)
"""What PostgreSQL calls the indexes of these tables."""

MIGRATIONS = (
    """
    CREATE SEQUENCE apcore_a2a.updates;
    CREATE TABLE apcore_a2a.tasks (
        created BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id TEXT COLLATE "C" NOT NULL UNIQUE,
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
    CREATE INDEX ON apcore_a2a.tasks (owner, created);
    CREATE INDEX ON apcore_a2a.tasks (owner, context_id, created);
    CREATE INDEX ON apcore_a2a.tasks (owner, updated);
    CREATE INDEX ON apcore_a2a.tasks (expires) WHERE expires IS NOT NULL;
    CREATE INDEX ON apcore_a2a.tasks (ended) WHERE ended IS NOT NULL;
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
    CREATE INDEX ON apcore_a2a.messages (owner, context_id, number);
    CREATE INDEX ON apcore_a2a.messages (task_id);
    CREATE TABLE apcore_a2a.webhooks (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        task_id TEXT COLLATE "C" NOT NULL,
        config_id TEXT COLLATE "C" NOT NULL,
        host TEXT COLLATE "C" NOT NULL,
        version TEXT NOT NULL,
        failure TEXT NOT NULL,
        body BYTEA NOT NULL
    );
    CREATE INDEX ON apcore_a2a.webhooks (task_id, config_id);
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
    CREATE INDEX ON apcore_a2a.outbox (owner, host, due, version) WHERE due IS NOT NULL;
    CREATE TABLE apcore_a2a.sends (
        owner BYTEA NOT NULL,
        key TEXT COLLATE "C" NOT NULL,
        digest BYTEA NOT NULL,
        task_id TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (owner, key)
    );
    CREATE INDEX ON apcore_a2a.sends (task_id);
    """,
)
"""Each takes a database one version further; its version is the number of those done."""

LOCK = 0x61706132
"""The number of the advisory lock that a replica holds while it migrates ("apa2")."""


async def migrate(connection: Any) -> int:
    """Bring the database up to date; return its version. Replicas that start together do it once.

    Raises:
        SchemaError: It is newer than this package.
    """
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        known = await version_of(connection)
        if not known:
            await _begin(connection)
        if known > len(MIGRATIONS):
            raise SchemaError(known, len(MIGRATIONS))
        for number, script in enumerate(MIGRATIONS[known:], known + 1):
            await connection.execute(script)
            await connection.execute(f"INSERT INTO apcore_a2a.migrations VALUES ({number})")
    return len(MIGRATIONS)


async def _begin(connection: Any) -> None:
    """Create the schema, unless its owner has done so already."""
    # a role that may use the schema need not be allowed to create one
    if await connection.fetchval("SELECT to_regnamespace('apcore_a2a')") is None:
        await connection.execute("CREATE SCHEMA apcore_a2a")
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS apcore_a2a.migrations (version INTEGER PRIMARY KEY)"
    )


async def version_of(connection: Any) -> int:
    """Return the database's version; 0 when it has no schema of ours."""
    if await connection.fetchval("SELECT to_regclass('apcore_a2a.migrations')") is None:
        return 0
    sql = "SELECT coalesce(max(version), 0) FROM apcore_a2a.migrations"
    known: int = await connection.fetchval(sql)
    return known
