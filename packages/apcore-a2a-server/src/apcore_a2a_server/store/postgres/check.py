"""Looks whether what is in a PostgreSQL database is as it must be, beside the agents."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from apcore_a2a_server.store.errors import SchemaError
from apcore_a2a_server.store.reports import STATUSES, Ends, Report, queries, report

from .refusals import REFUSALS, refusal
from .schema import MIGRATIONS, version_of

KNOWN = len(MIGRATIONS)
LAPSED = 60
"""Seconds after its end in which a lease should have been taken over by an agent."""
TOGETHER = 1000
"""How many events are fetched at a time."""
RULES = {
    "nobody has taken over running tasks": f"""
        SELECT id, 'its lease ended ' || extract(epoch FROM clock_timestamp() - expires)::bigint
            || ' s ago', count(*) OVER ()
        FROM tasks WHERE expires < clock_timestamp() - make_interval(secs => {LAPSED})""",
}
TABLES = """
    SELECT c.relname, pg_total_relation_size(c.oid)::bigint AS size
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'apcore_a2a' AND c.relkind = 'r'"""
driver: Any = asyncpg
"""Its types are partly unknown."""


async def version(place: str) -> int:
    """The version of a database's tables; 0 when there are none.

    Raises:
        UnavailableError: The database can't be read.
    """
    async with _reading(place) as connection:
        return await version_of(connection)


async def check(place: str, tell: Callable[[str], None]) -> Report:
    """What is in a database, and what is wrong with it; reads only.

    Args:
        place: Its URL.
        tell: Is told of each step.

    Raises:
        UnavailableError: It can't be read, or has tables of another version.
    """
    async with _reading(place) as connection:
        found = await version_of(connection)
        if found != KNOWN:
            raise SchemaError(found, KNOWN)
        tables = dict(await connection.fetch(TABLES))
        answers: dict[str, Any] = {}
        for name, sql in queries(tables, RULES).items():
            tell(name)
            answers[name] = await connection.fetch(sql)
        tell("ends")
        ends = Ends()
        statuses = STATUSES.format(task="'\\x00'::bytea", chunk="'\\x02'::bytea")
        async for row in connection.cursor(statuses, prefetch=TOGETHER):
            ends.add(*row)
        return report(found, sum(tables.values()), answers, ends)


@asynccontextmanager
async def _reading(url: str) -> AsyncGenerator[Any]:
    """The database as it is at one moment."""
    try:
        connection = await driver.connect(url, timeout=5)
    except REFUSALS as error:
        raise refusal(error) from None
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SET LOCAL search_path TO apcore_a2a")
            yield connection
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise refusal(error) from None
    finally:
        await connection.close()
