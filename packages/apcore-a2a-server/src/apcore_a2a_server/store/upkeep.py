"""What operators do with a store: bring it up to date, check it, drop what is old."""

from collections.abc import Callable
from typing import Any

from .errors import MissingError, SchemaError
from .locations import open_store, part, place_of
from .port import Retention
from .reports import Report

Tell = Callable[[str], None]


async def check(address: str, tell: Tell = lambda step: None) -> Report:
    """See whether a store is as it must be. It is only read; agents may go on beside.

    Each task's events must be there from its first to its last, with one end at most, in the
    last; ended tasks have no lease, and nothing is kept of tasks that are not there. Of a file
    the whole is read for damage. Of a database's running tasks none has long been
    without a lease; that can't be said of a file, whose agent takes over at its next start.

    Args:
        address: A store's, as `open_store` takes it.
        tell: Is told of each step, which may take long; perhaps in another thread.

    Raises:
        ValueError: It is no address of a store that is kept.
        ImportError: What it takes is not installed.
        UnavailableError: The store is not there, can't be read, or is of another version.

    Example:
        ```python
        import asyncio
        from pathlib import Path
        from tempfile import mkdtemp

        from apcore_a2a_server.store.upkeep import check, migrate

        address = f"sqlite:///{Path(mkdtemp())}/agent.db"
        asyncio.run(migrate(address))
        report = asyncio.run(check(address))
        print(report.tasks, report.events, report.faults)
        #> {} 0 []
        ```
    """
    checks, place = _kept(address)
    found: Report = await checks.check(place, tell)
    return found


async def migrate(address: str) -> tuple[int, int]:
    """Bring a store's tables up to date, as an agent does at its start; make them if need be.

    Args:
        address: A store's, as `open_store` takes it.

    Returns:
        The version that they had, 0 for none, and the one that they have.

    Raises:
        ValueError: It is no address of a store that is kept.
        ImportError: What it takes is not installed.
        UnavailableError: The store can't be used, or its tables are newer than this package.
    """
    checks, place = _kept(address)
    try:
        before: int = await checks.version(place)
    except MissingError:
        before = 0
    if before != checks.KNOWN:
        store = open_store(address)
        await store.start()
        await store.close()
    return before, checks.KNOWN


async def prune(address: str, retention: Retention) -> int:
    """Drop what *retention* lets go of; how many tasks that were. A file must not be in use.

    Args:
        address: A store's, as `open_store` takes it.
        retention: How much is kept.

    Raises:
        ValueError: It is no address of a store that is kept.
        ImportError: What it takes is not installed.
        UnavailableError: The store can't be used, or its tables have another version.
    """
    checks, place = _kept(address)
    found = await checks.version(place)
    if found != checks.KNOWN:
        raise SchemaError(found, checks.KNOWN)
    store = open_store(address)
    store.retention = retention
    await store.start()
    try:
        return await store.prune()
    finally:
        await store.close()


def _kept(address: str) -> tuple[Any, str]:
    """What checks the store at an address, and its place."""
    kind, place = place_of(address)
    if kind == "memory":
        raise ValueError("Tasks in memory end with their process; nothing else can see them")
    return part(kind, ".check"), place
