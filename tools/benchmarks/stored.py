"""Where tasks are kept while that is measured, and how often a store is asked for what."""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

MEMORY, SQLITE, POSTGRESQL = NAMES = ("memory", "sqlite", "postgresql")
SCRATCH = "/var/tmp"
"""What lies there outlives a restart (FHS §5.15): it is on a disk, as /tmp need not be."""
WRITES = ("create", "change")
READS = ("get", "get_own", "events", "query", "conversation", "webhooks")


@dataclass(slots=True)
class Asked:
    """How often a store was asked to keep something, and for something that it keeps."""

    writes: int = 0
    reads: int = 0


class Watched:
    """A store that counts what others ask it for; what it asks itself for is its own matter."""

    def __init__(self, store: object, asked: Asked) -> None:
        vars(self).update(_store=store, _asked=asked)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        return partial(self._ask, name, value) if name in (*WRITES, *READS) else value

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._store, name, value)

    def _ask(self, name: str, method: Callable[..., Awaitable[Any]], *values: Any) -> Any:
        kind = "writes" if name in WRITES else "reads"
        setattr(self._asked, kind, getattr(self._asked, kind) + 1)
        return method(*values)


def watched(address: str, asked: Asked) -> Watched:
    """The store at an address, which counts what it is asked for."""
    from apcore_a2a_server.store import Store, open_store  # apcore-a2a 0.8 has none

    Store.register(Watched)
    return Watched(open_store(address), asked)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store keeps its tasks.

    Attributes:
        address: as `--store` takes it.
        pid: the database's process; None when it has none of its own.
    """

    address: str
    pid: int | None = None

    def cpu(self) -> float:
        """CPU seconds that the database has taken; 0 without one, NaN where nobody can tell."""
        return 0.0 if self.pid is None else tree_cpu(self.pid)


@contextmanager
def places(names: Sequence[str], say: Callable[[str], None]) -> Iterator[dict[str, Place]]:
    """Places for new stores of these names, on the disk, as far as they can be had here."""
    with ExitStack() as stack:
        found: dict[str, Place] = {}
        for name in names:
            if name == MEMORY:
                found[name] = Place("memory")
            elif name == SQLITE:
                folder = stack.enter_context(TemporaryDirectory(prefix="bench-", dir=SCRATCH))
                found[name] = Place(f"sqlite:///{folder}/agent.db")
            elif place := stack.enter_context(_database()):
                found[name] = place
            else:
                say("NO POSTGRESQL here, so it is not measured; Debian: apt install postgresql")
        yield found


@contextmanager
def _database() -> Iterator[Place | None]:
    from tests.store.postgresql import database, find

    if find("initdb") is None:
        yield None
        return
    with database(SCRATCH) as server:
        yield Place(server.url, server.pid)


def tree_cpu(pid: int) -> float:
    """CPU seconds of a process and its children, ended ones too; NaN where there is no /proc."""
    ticks = 0
    if not Path(f"/proc/{pid}/stat").exists():
        return nan
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            if int(path.parent.name) == pid:
                ticks += sum(map(int, fields[11:15]))
            elif int(fields[1]) == pid:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
