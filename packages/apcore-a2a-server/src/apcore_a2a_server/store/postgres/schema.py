"""The schema of a PostgreSQL database: migrations and checks."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from apcore_a2a_server.store.exceptions import SchemaError
from apcore_a2a_server.store.maintenance import CheckResult
from apcore_a2a_server.store.statements import read_blocks

from .database import DATABASE_ERRORS, driver, sql, unavailable_error

MIGRATIONS = (*read_blocks("apcore_a2a_server.store.postgres", "schema.sql").values(),)
"""Scripts that each raise the schema version by one, starting at 0."""

JSON_VERSION = 4
"""The first version whose bodies are JSON."""

TABLES = re.findall(r"CREATE TABLE apcore_a2a\.(\w+)", " ".join(MIGRATIONS))
INDEXES = re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+)", " ".join(MIGRATIONS))

MIGRATION_LOCK = 0x61706132
"""Number of the advisory lock that a replica holds while it migrates: "apa2" in ASCII."""


async def migrate(connection: Any) -> int:
    """Migrate the database to the latest schema version; return that version.

    If replicas start at the same time, one of them migrates and the others wait.

    Raises:
        SchemaError: The schema is newer than this package.
    """
    async with connection.transaction():
        # The lock is released at the end of the transaction; until then other replicas wait here.
        await connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        current_version = await version_of(connection)
        if not current_version:
            await _create_schema(connection)
        if current_version > len(MIGRATIONS):
            raise SchemaError(current_version, len(MIGRATIONS))
        for number, script in enumerate(MIGRATIONS[current_version:], current_version + 1):
            await connection.execute(script)
            if number == JSON_VERSION and current_version:
                await _convert_bodies(connection)
            await connection.execute(f"INSERT INTO apcore_a2a.migrations VALUES ({number})")
    return len(MIGRATIONS)


async def _convert_bodies(connection: Any) -> None:
    from apcore_a2a_server.store import protobuf_bodies

    for table in protobuf_bodies.TABLES:
        update = f"UPDATE apcore_a2a.{table} SET body = $2 WHERE ctid = $1::text::tid"
        rows = connection.cursor(f"SELECT ctid::text, body FROM apcore_a2a.{table}")
        async for row in rows:  # an open cursor does not see later updates
            body = protobuf_bodies.as_json(table, row["body"])
            await connection.execute(update, row["ctid"], body)


async def _create_schema(connection: Any) -> None:
    """Create the schema and its table of migrations, unless they exist."""
    # `CREATE SCHEMA IF NOT EXISTS` needs the right to create schemas even if the schema exists.
    if await connection.fetchval("SELECT to_regnamespace('apcore_a2a')") is None:
        await connection.execute("CREATE SCHEMA apcore_a2a")
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS apcore_a2a.migrations (version INTEGER PRIMARY KEY)"
    )


async def version_of(connection: Any) -> int:
    """Return the schema version; 0 if the database has no tables of the store."""
    if await connection.fetchval("SELECT to_regclass('apcore_a2a.migrations')") is None:
        return 0
    schema_version: int = await connection.fetchval(sql.get_schema_version.text)
    return schema_version


async def is_latest(connection: Any) -> bool:
    """Return whether the schema has the latest version."""
    return await version_of(connection) == len(MIGRATIONS)


async def version(url: str) -> int:
    """Return the schema version of a database; 0 if it has no tables of the store.

    Raises:
        UnavailableError: The database can't be read.
    """
    async with _snapshot(url) as connection:
        return await version_of(connection)


async def check(url: str) -> CheckResult:
    """Return missing tables and indexes, or else the numbers of tasks and dead letters.

    Raises:
        UnavailableError: The database can't be read.
    """
    async with _snapshot(url) as connection:
        if faults := await _missing(connection):
            return faults, (), 0
        state_counts = await connection.fetch(sql.count_states.text)
        return [], state_counts, await connection.fetchval(sql.count_dead_letters.text)


async def _missing(connection: Any) -> list[str]:
    existing = {name for (name,) in await connection.fetch(sql.list_objects.text)}
    tables = [f"table {name} is missing" for name in TABLES if name not in existing]
    return tables + [f"index {name} is missing" for name in INDEXES if name not in existing]


@asynccontextmanager
async def _snapshot(url: str) -> AsyncGenerator[Any]:
    """Connect to a database in a read-only transaction that does not see later changes."""
    try:
        connection = await driver.connect(url, timeout=5)
    except DATABASE_ERRORS as error:
        raise unavailable_error(error) from None
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield connection
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise unavailable_error(error) from None
    finally:
        await connection.close()
