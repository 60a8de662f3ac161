"""Maintenance of a durable store: migrate its schema, check it, prune old tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import MissingError, SchemaError
from .port import Retention
from .urls import open_store, part, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a check.

    Attributes:
        version: the version of the schema.
        faults: what is wrong, one line each. Nothing is counted where there are any.
        tasks: the number of tasks in each state, by its name.
        dead_letters: the number of notifications that were given up.
    """

    version: int
    faults: Sequence[str] = ()
    tasks: Mapping[str, int] = field(default_factory=dict[str, int])
    dead_letters: int = 0


async def check(address: str) -> Report:
    """Check a store's schema and integrity, and count its tasks.

    The store is only read, and agents may keep using it. All tables and indexes must be there.
    An SQLite file is read as a whole, and searched for damage.

    Args:
        address: The store's address, as `open_store` takes it.

    Raises:
        ValueError: The address is not one of a durable store.
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
    schema, place = _durable(address)
    report: Report = await schema.check(place)
    return report


async def migrate(address: str) -> tuple[int, int]:
    """Bring a store's schema up to date, as an agent does at its start; create it if need be.

    Args:
        address: The store's address, as `open_store` takes it.

    Returns:
        The schema version before, 0 for none, and the one now.

    Raises:
        ValueError: The address is not one of a durable store.
        ImportError: A package that the store needs is not installed.
        UnavailableError: The store can't be used, or its schema is newer than this package.
    """
    schema, place = _durable(address)
    try:
        before: int = await schema.version(place)
    except MissingError:
        before = 0
    if before != len(schema.MIGRATIONS):
        store = open_store(address)
        await store.start()
        await store.close()
    return before, len(schema.MIGRATIONS)


async def prune(address: str, retention: Retention) -> int:
    """Delete the tasks that *retention* does not keep; return how many. A file must not be in use.

    Args:
        address: The store's address, as `open_store` takes it.
        retention: What is kept.

    Raises:
        ValueError: The address is not one of a durable store.
        ImportError: A package that the store needs is not installed.
        UnavailableError: The store can't be used, or has another schema version.
    """
    schema, place = _durable(address)
    version = await schema.version(place)
    if version != len(schema.MIGRATIONS):
        raise SchemaError(version, len(schema.MIGRATIONS))
    store = open_store(address)
    store.retention = retention
    await store.start()
    try:
        return await store.prune()
    finally:
        await store.close()


def _durable(address: str) -> tuple[Any, str]:
    """Return the module that checks the store at *address*, and its file or URL."""
    kind, place = place_of(address)
    if kind == "memory":
        raise ValueError("Tasks in memory end with their process; nothing else can see them")
    return part(kind, ".schema"), place
