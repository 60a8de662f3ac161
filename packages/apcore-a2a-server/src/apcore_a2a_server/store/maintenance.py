"""Maintenance of a durable store: migrate its schema, check it, prune old tasks."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from apcore_a2a_core.states import NAMES

from .exceptions import MissingError, SchemaError
from .port import Retention, Store
from .rows import STATES
from .urls import import_backend, open_store, parse_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a check.

    Attributes:
        version: the version of the schema.
        faults: the problems, one line each; if there are any, nothing is counted.
        tasks: the number of tasks by the name of their state.
        dead_letters: the number of notifications that were given up.
    """

    version: int
    faults: Sequence[str] = ()
    tasks: Mapping[str, int] = field(default_factory=dict[str, int])
    dead_letters: int = 0


CheckResult: TypeAlias = tuple[Sequence[str], Sequence[tuple[int, int]], int]
"""The faults of a store, the number of tasks by state, and the number of dead letters."""


async def check(address: str) -> Report:
    """Check a store's schema and integrity, and count its tasks.

    The store is only read, and agents may keep using it. A missing table or index is a fault. An
    SQLite file is read as a whole to find damage.

    Args:
        address: The store's address, as `open_store` takes it.

    Raises:
        ValueError: The address is not that of a durable store.
        ImportError: A package that the store needs is not installed.
        UnavailableError: The store does not exist, can't be read, or has another schema version.

    Example:
        ```python
        import asyncio
        from pathlib import Path
        from tempfile import mkdtemp

        from apcore_a2a_server.store.maintenance import check, migrate

        address = f"sqlite:///{Path(mkdtemp())}/agent.db"
        asyncio.run(migrate(address))
        report = asyncio.run(check(address))
        print(report.tasks, report.faults)
        #> {} []
        ```
    """
    schema, location = _schema_of(address)
    version = await _check_version(schema, location)
    faults, state_counts, dead_letters = await schema.check(location)
    tasks = {NAMES[STATES[number]]: count for number, count in state_counts}
    return Report(version=version, faults=faults, tasks=tasks, dead_letters=dead_letters)


async def migrate(address: str) -> tuple[int, int]:
    """Migrate a store's schema to the latest version, as an agent does when it starts.

    An SQLite file that does not exist is created.

    Args:
        address: The store's address, as `open_store` takes it.

    Returns:
        The earlier schema version, 0 for none, and the current one.

    Raises:
        ValueError: The address is not that of a durable store.
        ImportError: A package that the store needs is not installed.
        UnavailableError: The store can't be used, or its schema is newer than this package.
    """
    schema, location = _schema_of(address)
    try:
        old_version: int = await schema.version(location)
    except MissingError:
        old_version = 0
    if old_version != len(schema.MIGRATIONS):
        store = open_store(address)
        await store.start()
        await store.close()
    return old_version, len(schema.MIGRATIONS)


async def prune(address: str, retention: Retention) -> int:
    """Delete ended tasks that *retention* does not keep; return their number.

    Agents that use an SQLite file must be stopped first.

    Args:
        address: The store's address, as `open_store` takes it.
        retention: How many ended tasks to keep, and for how long.

    Raises:
        ValueError: The address is not that of a durable store.
        ImportError: A package that the store needs is not installed.
        UnavailableError: The store can't be used, or has another schema version.
    """
    async with open_durable(address, retention) as store:
        return await store.prune()


@asynccontextmanager
async def open_durable(address: str, retention: Retention | None = None) -> AsyncGenerator[Store]:
    """Open a durable store whose schema is up to date, and close it after the block.

    Args:
        address: The store's address, as `open_store` takes it.
        retention: How many ended tasks to keep, and for how long.

    Raises:
        ValueError: The address is not that of a durable store.
        ImportError: A package that the store needs is not installed.
        UnavailableError: The store can't be used, or has another schema version.
    """
    schema, location = _schema_of(address)
    await _check_version(schema, location)
    store = open_store(address)
    await store.start(retention=retention)
    try:
        yield store
    finally:
        await store.close()


async def _check_version(schema: Any, location: str) -> int:
    """Check that a store has the schema version of this package, and return it.

    Raises:
        SchemaError: The store has another version.
    """
    version: int = await schema.version(location)
    if version != len(schema.MIGRATIONS):
        raise SchemaError(version, len(schema.MIGRATIONS))
    return version


def _schema_of(address: str) -> tuple[Any, str]:
    """Return the schema module of the store at *address*, and the store's file or URL."""
    backend, location = parse_address(address)
    if backend == "memory":
        raise ValueError("Tasks in memory can't be maintained: give the address of a durable store")
    return import_backend(backend, ".schema"), location
