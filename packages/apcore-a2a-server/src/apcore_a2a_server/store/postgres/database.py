"""Connections to a PostgreSQL database, and statements with named parameters."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import asyncpg

from apcore_a2a_server.store.exceptions import DiskFullError, StoreError, UnavailableError
from apcore_a2a_server.store.rows import with_conditions
from apcore_a2a_server.store.statements import Statements

DATABASE_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)
"""Errors of a database that can't be used, or of an invalid address."""
UNAVAILABLE_ERRORS = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""Errors of a database that is unreachable, stopping or out of resources, or now a standby."""
CLOSE_TIMEOUT = 3.0  # seconds
BACKGROUND_TIMEOUT = 10.0  # seconds for a statement that no client waits for
CONNECTION_OPTIONS: dict[str, Any] = {
    "timeout": 5,  # seconds to connect
    "command_timeout": BACKGROUND_TIMEOUT,
    "server_settings": {"application_name": "apcore-a2a"},
}
REPLACEMENT = "\ufffd"
"""The replacement character of Unicode."""
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")  # `:name`, but no cast such as `::int`
driver: Any = asyncpg
"""The driver as Any: its types are partly unknown."""


class Statement:
    """An SQL statement with named parameters, such as `:task_id`.

    PostgreSQL itself has numbered parameters; the names are replaced once, at construction.

    Attributes:
        template: the statement with named parameters.
        text: the statement with `$1`, `$2`, …
        names: the names of the parameters in the order of their numbers.
    """

    __slots__ = ("names", "template", "text")

    def __init__(self, template: str) -> None:
        self.template = template
        numbers: dict[str, int] = {}
        self.text = PARAMETER.sub(
            lambda match: f"${numbers.setdefault(match[1], len(numbers) + 1)}", template
        )
        self.names = tuple(numbers)

    def arguments(self, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the values of the parameters in the order of their numbers.

        Text in PostgreSQL can't contain NUL characters, so they are replaced.
        """
        values = [parameters[name] for name in self.names]
        return [
            value.replace("\0", REPLACEMENT) if value.__class__ is str and "\0" in value else value
            for value in values
        ]


sql = Statements("apcore_a2a_server.store.postgres", Statement)


@cache
def fill_conditions(
    statement: Statement, conditions: tuple[str, ...], order: str = ""
) -> Statement:
    """Fill conditions and an order into *statement*, which lists or counts rows."""
    return Statement(with_conditions(statement.template, conditions, order))


class StatementRunner(ABC):
    """An object that runs statements with named parameters."""

    @abstractmethod
    async def fetch(self, statement: Statement, **parameters: Any) -> list[Any]:
        """Return all rows."""

    async def execute(self, statement: Statement, **parameters: Any) -> None:
        """Run a statement and ignore its rows."""
        await self.fetch(statement, **parameters)

    async def fetch_row(self, statement: Statement, **parameters: Any) -> Any:
        """Return the first row, or None."""
        rows = await self.fetch(statement, **parameters)
        return rows[0] if rows else None

    async def fetch_value(self, statement: Statement, **parameters: Any) -> Any:
        """Return the first column of the first row, or None."""
        row = await self.fetch_row(statement, **parameters)
        return None if row is None else row[0]


class Session(StatementRunner):
    """A connection that runs statements.

    Args:
        connection: The driver's connection.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def fetch(self, statement: Statement, **parameters: Any) -> list[Any]:
        """Return all rows."""
        arguments = statement.arguments(parameters)
        rows: list[Any] = await self.connection.fetch(statement.text, *arguments)
        return rows


class Database(StatementRunner):
    """A pool of connections; a statement runs on any of them.

    Args:
        url: The database's URL.
        connections: Maximum number of connections.
        timeout: Returns how many seconds a statement may take, including its wait for a connection.
    """

    def __init__(self, url: str, connections: int, timeout: Callable[[], float]) -> None:
        self._url = url
        self._connections = connections
        self._timeout = timeout
        self._pool: Any = None

    async def open(self) -> None:
        """Create the pool; connections are opened when they are needed."""
        sizes = {"min_size": 0, "max_size": self._connections}
        self._pool = await driver.create_pool(
            self._url, **sizes, reset=_no_reset, **CONNECTION_OPTIONS
        )

    async def close(self) -> None:
        """Close all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(TimeoutError):  # on a timeout the pool terminates its connections
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await pool.close()

    async def connect(self, **options: Any) -> Any:
        """Return a new connection outside the pool; *options* override `CONNECTION_OPTIONS`."""
        return await driver.connect(self._url, **{**CONNECTION_OPTIONS, **options})

    async def fetch_batch(
        self, statement: Statement, batch: Sequence[Mapping[str, Any]]
    ) -> list[Any]:
        """Run a statement for several sets of parameters in one transaction; return all rows."""
        arguments = [statement.arguments(parameters) for parameters in batch]
        async with self.session() as session:
            rows: list[Any] = await session.connection.fetchmany(statement.text, arguments)
            return rows

    @asynccontextmanager
    async def session(self, seconds: float = 0) -> AsyncGenerator[Session]:
        """Take a connection for at most *seconds*; by default, for as long as a statement may take.

        Raises:
            StoreError: The store is not open.
            DiskFullError: The database has no space left on its disk.
            UnavailableError: The database can't be reached, or has not replied in time; the
                statement may or may not have run.
        """
        pool = self._pool  # `close` sets `_pool` to None before it waits for running sessions
        if pool is None:
            raise StoreError("The store is not open: call its `start` first")
        try:
            async with asyncio.timeout(seconds or self._timeout()):
                connection = await pool.acquire()
                try:
                    yield Session(connection)
                except (TimeoutError, asyncio.CancelledError):
                    # Close the connection at once. Otherwise the driver would ask the database,
                    # over another connection, to cancel the statement, and wait for that.
                    connection.terminate()
                    raise
                finally:
                    await pool.release(connection)
        except UNAVAILABLE_ERRORS as error:
            await pool.expire_connections()  # the other connections may be lost as well
            if isinstance(error, asyncpg.DiskFullError):
                raise DiskFullError(f"The database's disk is full: {error}") from error
            raise UnavailableError(f"The database can't be reached: {_reason(error)}") from error

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Session]:
        """Take a connection for one transaction.

        Raises:
            StoreError: The same errors as in `session`.
        """
        async with self.session() as session, session.connection.transaction():
            yield session

    async def fetch(self, statement: Statement, **parameters: Any) -> list[Any]:
        """Return all rows."""
        async with self.session() as session:
            return await session.fetch(statement, **parameters)


async def _no_reset(connection: Any) -> None:
    """Skip the reset of a returned connection: no statement changes the connection's state."""


def unavailable_error(error: Exception) -> UnavailableError:
    """Return the error to raise instead of one of `DATABASE_ERRORS`.

    Its text never contains the password in the database's address.
    """
    if isinstance(error, UnavailableError):
        return error
    if isinstance(error, ValueError) and not isinstance(error, asyncpg.InterfaceError):
        # the driver's text quotes part of the address and, if a slash is misplaced, the password
        return UnavailableError("The database's address is not a valid postgresql:// URL")
    return UnavailableError(f"The database can't be used: {_reason(error)}")


def _reason(error: Exception) -> str:
    """Return the text of an error; an error without text is a timeout."""
    return str(error) or "no reply in time"
