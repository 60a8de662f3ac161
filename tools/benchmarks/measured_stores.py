"""The stores that benchmarks measure, and a wrapper that counts calls of a store's methods."""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

MEMORY, SQLITE, POSTGRESQL = NAMES = ("memory", "sqlite", "postgresql")
SCRATCH = "/var/tmp"
"""Folder that survives a reboot (FHS §5.15), so it is on a disk, unlike some /tmp."""
PARENT_ID, OWN_TICKS, ENDED_CHILDREN_TICKS = 1, slice(11, 13), slice(13, 15)
"""Positions of fields in the result of `_stat`."""
WRITES = ("create", "change")
READS = ("get", "events", "query", "conversation", "webhooks")


@dataclass(slots=True)
class StoreCalls:
    """Numbers of writes to a store, and of reads from it."""

    writes: int = 0
    reads: int = 0


class CountingStore:
    """A wrapper that counts calls of a store's methods, but not those by the store itself."""

    def __init__(self, store: object, calls: StoreCalls) -> None:
        vars(self).update(_store=store, _calls=calls)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return partial(self._count, name, value) if name in (*WRITES, *READS) else value

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._store, name, value)

    def _count(self, name: str, method: Callable[..., Awaitable[Any]], *values: Any) -> Any:
        kind = "writes" if name in WRITES else "reads"
        setattr(self._calls, kind, getattr(self._calls, kind) + 1)
        return method(*values)


def open_counting_store(address: str, calls: StoreCalls) -> CountingStore:
    """Open the store at an address, and count its reads and writes in *calls*."""
    from apcore_a2a_server.store import Store, open_store  # not in apcore-a2a 0.8

    Store.register(CountingStore)
    return CountingStore(open_store(address), calls)


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a store.

    Attributes:
        address: The address for `--store`.
        pid: Id of the main process of the database server; None without a server.
    """

    address: str
    pid: int | None = None

    def cpu(self) -> float:
        """Return the CPU seconds of the database server; 0 without a server, NaN without /proc."""
        return 0.0 if self.pid is None else tree_cpu(self.pid)


@contextmanager
def places(names: Sequence[str], say: Callable[[str], None]) -> Iterator[dict[str, Place]]:
    """Create a place for each store in *names*, but not for PostgreSQL if it is not installed."""
    with ExitStack() as stack:
        locations: dict[str, Place] = {}
        for name in names:
            if name == MEMORY:
                locations[name] = Place("memory")
            elif name == SQLITE:
                folder = stack.enter_context(TemporaryDirectory(prefix="bench-", dir=SCRATCH))
                locations[name] = Place(f"sqlite:///{folder}/agent.db")
            elif place := stack.enter_context(_database()):
                locations[name] = place
            else:
                say("PostgreSQL is missing and not measured. Debian: apt install postgresql")
        yield locations


@contextmanager
def _database() -> Iterator[Place | None]:
    from tests.store.postgresql import database, find

    if find("initdb") is None:
        yield None
        return
    with database(SCRATCH) as server:
        yield Place(server.url, server.pid)


def tree_cpu(pid: int) -> float:
    """Return the CPU seconds of a process and all its children; NaN without /proc."""
    stat = _stat(Path(f"/proc/{pid}/stat"))
    if not stat:
        return nan
    return sum(map(int, stat[OWN_TICKS])) / os.sysconf("SC_CLK_TCK") + children_cpu(pid)


def children_cpu(pid: int) -> float:
    """Return the CPU seconds of the children of a process; 0 without /proc.

    Children that have ended are included once the process has waited for them.
    """
    stats = map(_stat, Path("/proc").glob("[0-9]*/stat"))
    ticks = sum(
        sum(map(int, stat[OWN_TICKS])) for stat in stats if stat and int(stat[PARENT_ID]) == pid
    )
    ticks += sum(map(int, _stat(Path(f"/proc/{pid}/stat"))[ENDED_CHILDREN_TICKS]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(path: Path) -> list[str]:
    """Return the fields after the process name in *path* (proc(5)); [] if the process has ended."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []
