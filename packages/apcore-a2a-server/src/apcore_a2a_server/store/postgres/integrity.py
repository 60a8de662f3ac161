"""Checks of a PostgreSQL database, which agents may be using."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from apcore_a2a_core.states import NAMES

from apcore_a2a_server.store.errors import SchemaError
from apcore_a2a_server.store.maintenance import Report

from .database import REFUSALS, refusal
from .schema import INDEXES, MIGRATIONS, TABLES, version_of

KNOWN = len(MIGRATIONS)
OBJECTS = """
SELECT c.relname FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.relnamespace = to_regnamespace('apcore_a2a') AND i.indisvalid IS NOT FALSE
"""
"""All tables, and the indexes that can be used."""
driver: Any = asyncpg
"""Its types are partly unknown."""


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
        if found != KNOWN:
            raise SchemaError(found, KNOWN)
        if faults := await _missing(connection):
            return Report(version=found, faults=faults)
        states = await connection.fetch("SELECT state, count(*) FROM apcore_a2a.tasks GROUP BY 1")
        dead = "SELECT count(*) FROM apcore_a2a.outbox WHERE due IS NULL"
        return Report(
            version=found,
            tasks={NAMES.get(state, str(state)): count for state, count in sorted(states)},
            dead_letters=await connection.fetchval(dead),
            faults=[],
        )


async def _missing(connection: Any) -> list[str]:
    there = {name for (name,) in await connection.fetch(OBJECTS)}
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
