"""Connections to a PostgreSQL database, and statements whose parameters have names."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import asyncpg

from apcore_a2a_server.store.errors import StoreError, UnavailableError
from apcore_a2a_server.store.rows import composed
from apcore_a2a_server.store.statements import Statements

REFUSALS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)
"""Errors of a database that can't be used, or of an address that can't be read."""
LOST = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""Errors of a database that is unreachable, shutting down, out of disk, or a standby by now."""
CLOSE_TIMEOUT = 3.0  # seconds
LONGEST_TIMEOUT = 10.0  # seconds for a statement without a waiting caller
OPTIONS: dict[str, Any] = {
    "timeout": 5,  # seconds to connect
    "command_timeout": LONGEST_TIMEOUT,
    "server_settings": {"application_name": "apcore-a2a"},
}
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")  # `:name`, and no cast such as `::int`
driver: Any = asyncpg
"""Its types are partly unknown."""


class Statement:
    """An SQL statement whose parameters have names, such as `:task_id`.

    PostgreSQL numbers parameters. The names are replaced once, when the statement is made.

    Attributes:
        template: the statement with its names.
        text: the statement with `$1`, `$2`, …
        names: the names of these parameters, in their order.
    """

    __slots__ = ("names", "template", "text")

    def __init__(self, sql: str) -> None:
        self.template = sql
        numbers: dict[str, int] = {}
        self.text = PARAMETER.sub(
            lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", sql
        )
        self.names = tuple(numbers)

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values of the parameters in their order."""
        return [values[name] for name in self.names]


sql = Statements("apcore_a2a_server.store.postgres", Statement)


@cache
def select(statement: Statement, conditions: tuple[str, ...], order: str = "") -> Statement:
    """Return a statement that lists or counts tasks with its conditions and its order."""
    return Statement(composed(statement.template, conditions, order))


class Queries(ABC):
    """Runs statements with named parameters."""

    async def execute(self, statement: Statement, **values: Any) -> None:
        """Run a statement without looking at its rows."""
        await self.run("execute", statement, values)

    async def fetch(self, statement: Statement, **values: Any) -> list[Any]:
        """Return all rows."""
        rows: list[Any] = await self.run("fetch", statement, values)
        return rows

    async def fetch_row(self, statement: Statement, **values: Any) -> Any:
        """Return the first row, or None."""
        return await self.run("fetchrow", statement, values)

    async def fetch_value(self, statement: Statement, **values: Any) -> Any:
        """Return the first column of the first row, or None."""
        return await self.run("fetchval", statement, values)

    @abstractmethod
    async def run(self, method: str, statement: Statement, values: Mapping[str, Any]) -> Any:
        """Run a statement by a method of asyncpg's connections."""


class Session(Queries):
    """Runs statements on one connection.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run(self, method: str, statement: Statement, values: Mapping[str, Any]) -> Any:
        run = getattr(self.connection, method)
        return await run(statement.text, *statement.arguments(values))


class Database(Queries):
    """Runs statements on any connection of a pool.

    Args:
        url: The database's URL.
        connections: How many connections may be open at a time.
        timeout: Returns how many seconds a statement may take, waiting for a connection included.
    """

    def __init__(self, url: str, connections: int, timeout: Callable[[], float]) -> None:
        self._url = url
        self._connections = connections
        self._timeout = timeout
        self._pool: Any = None

    @property
    def is_open(self) -> bool:
        """Whether there is a pool."""
        return self._pool is not None

    async def open(self) -> None:
        """Make the pool; connections are opened when they are needed."""
        self._pool = await driver.create_pool(
            self._url, min_size=0, max_size=self._connections, reset=_keep, **OPTIONS
        )

    async def close(self) -> None:
        """Close all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(TimeoutError):  # then the pool has cut them off
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await pool.close()

    async def connect(self) -> Any:
        """Return a connection beside the pool."""
        return await driver.connect(self._url, **OPTIONS)

    async def fetch_each(
        self, statement: Statement, rows: Sequence[Mapping[str, Any]]
    ) -> list[Any]:
        """Run a statement for each of *rows* in one transaction; return all rows it gives."""
        arguments = [statement.arguments(row) for row in rows]
        async with self.session() as session:
            found: list[Any] = await session.connection.fetchmany(statement.text, arguments)
            return found

    @asynccontextmanager
    async def session(self, seconds: float = 0) -> AsyncGenerator[Session]:
        """Take a connection for at most *seconds*, or for as long as a statement may take.

        Raises:
            UnavailableError: The database can't be reached, or has not answered in time; whether
                a statement was run is not known.
        """
        if self._pool is None:
            raise StoreError("The store is not open")
        try:
            async with asyncio.timeout(seconds or self._timeout()):
                connection = await self._pool.acquire()
                try:
                    yield Session(connection)
                except (TimeoutError, asyncio.CancelledError):
                    # the driver would ask the database to cancel, and wait for that
                    connection.terminate()
                    raise
                finally:
                    await self._pool.release(connection)
        except LOST as error:
            await self._pool.expire_connections()  # the others are as dead
            raise UnavailableError(f"The database can't be reached: {error}") from error

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Session]:
        """Take a connection for one transaction.

        Raises:
            UnavailableError: As for a session.
        """
        async with self.session() as session, session.connection.transaction():
            yield session

    async def run(self, method: str, statement: Statement, values: Mapping[str, Any]) -> Any:
        async with self.session() as session:
            return await session.run(method, statement, values)


async def _keep(connection: Any) -> None:
    """Give a connection back as it is: no statement here leaves anything behind in it."""


def refusal(error: Exception) -> UnavailableError:
    """Return what to raise instead of one of REFUSALS, without the password."""
    if isinstance(error, UnavailableError):
        return error
    if isinstance(error, ValueError) and not isinstance(error, asyncpg.InterfaceError):
        # it quotes a part of the address, and with a misplaced slash, of the password
        return UnavailableError("The database's address can't be read")
    reason = str(error) or "it does not answer in time"
    return UnavailableError(f"The database can't be used: {reason}")
