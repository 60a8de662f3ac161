"""The schema of a PostgreSQL database: its migrations, and checks of it."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from apcore_a2a_core.states import NAMES

from apcore_a2a_server.store.errors import SchemaError
from apcore_a2a_server.store.maintenance import Report
from apcore_a2a_server.store.statements import read_blocks

from .database import REFUSALS, driver, refusal, sql

MIGRATIONS = (*read_blocks("apcore_a2a_server.store.postgres", "schema.sql").values(),)
"""Each takes a database one version further; its version is the number of those done."""

TABLES = re.findall(r"CREATE TABLE apcore_a2a\.(\w+)", " ".join(MIGRATIONS))
INDEXES = re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+)", " ".join(MIGRATIONS))

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
    known: int = await connection.fetchval(sql.get_schema_version.text)
    return known


async def version(place: str) -> int:
    """Return the schema version of a database; 0 for an empty one.

    Raises:
        UnavailableError: The database can't be read.
    """
    async with _connected(place) as connection:
        return await version_of(connection)


async def check(place: str) -> Report:
    """Check a database for missing tables and indexes, and count its tasks.

    Raises:
        UnavailableError: The database can't be read, or has another schema version.
    """
    async with _connected(place) as connection:
        found = await version_of(connection)
        if found != len(MIGRATIONS):
            raise SchemaError(found, len(MIGRATIONS))
        if faults := await _missing(connection):
            return Report(version=found, faults=faults)
        states = await connection.fetch(sql.count_states.text)
        return Report(
            version=found,
            tasks={NAMES.get(state, str(state)): count for state, count in states},
            dead_letters=await connection.fetchval(sql.count_dead_letters.text),
            faults=[],
        )


async def _missing(connection: Any) -> list[str]:
    there = {name for (name,) in await connection.fetch(sql.list_objects.text)}
    tables = [f"table {name} is missing" for name in TABLES if name not in there]
    return tables + [f"index {name} is missing" for name in INDEXES if name not in there]


@asynccontextmanager
async def _connected(url: str) -> AsyncGenerator[Any]:
    """Connect to a database to read it as it is now."""
    try:
        connection = await driver.connect(url, timeout=5)
    except REFUSALS as error:
        raise refusal(error) from None
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield connection
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise refusal(error) from None
    finally:
        await connection.close()
