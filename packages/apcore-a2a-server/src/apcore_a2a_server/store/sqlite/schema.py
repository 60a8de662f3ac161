"""The schema of an SQLite file, and its migrations."""

import sqlite3

from apcore_a2a_server.store.errors import SchemaError, UnavailableError

MIGRATIONS = (
    """
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
    """,
)
"""Each takes a file one version further; a file's version is the number of those done."""


def migrate(connection: sqlite3.Connection) -> int:
    """Bring the file up to date; return its version.

    Raises:
        SchemaError: It is newer than this package.
        UnavailableError: It is another program's.
    """
    known = version_of(connection)
    if known > len(MIGRATIONS):
        raise SchemaError(known, len(MIGRATIONS))
    if not known and connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        raise UnavailableError("The file is another program's database")
    connection.execute("PRAGMA journal_mode = WAL")
    for number, script in enumerate(MIGRATIONS[known:], known + 1):
        # one transaction each, with the number in it
        connection.executescript(
            f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT"
        )
    return len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the file's version; 0 when it is empty."""
    known: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return known
