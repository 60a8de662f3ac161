"""The schema of an SQLite file, its statements, and checks of it."""

import asyncio
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

from apcore_a2a_core.states import NAMES

from apcore_a2a_server.store.errors import MissingError, SchemaError, UnavailableError
from apcore_a2a_server.store.maintenance import Report
from apcore_a2a_server.store.statements import Statements, read_blocks

BUSY_TIMEOUT = 5.0  # seconds to wait for another program's lock, such as a backup's
PACKAGE = "apcore_a2a_server.store.sqlite"
MIGRATIONS = (*read_blocks(PACKAGE, "schema.sql").values(),)
"""Each takes a file one version further; a file's version is the number of those done."""

sql = Statements(PACKAGE, str)

STEPS = 10_000  # of SQLite's virtual machine between two looks at whether to stop


def migrate(connection: sqlite3.Connection) -> int:
    """Bring the file up to date; return its version.

    Raises:
        SchemaError: It is newer than this package.
        UnavailableError: It is another program's.
    """
    known = version_of(connection)
    if known > len(MIGRATIONS):
        raise SchemaError(known, len(MIGRATIONS))
    if not known and connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        raise UnavailableError("The file is another program's database")
    connection.execute("PRAGMA journal_mode = WAL")
    for number, script in enumerate(MIGRATIONS[known:], known + 1):
        # one transaction each, with the number in it
        connection.executescript(
            f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT"
        )
    return len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the file's version; 0 when it is empty."""
    known: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return known


async def version(place: str) -> int:
    """Return the schema version of a file; 0 for an empty one.

    Raises:
        MissingError: The file does not exist.
        UnavailableError: The file can't be read, or is no database.
    """
    with _opened(Path(place)) as connection:
        return version_of(connection)


async def check(place: str) -> Report:
    """Check a file for damage, and for missing tables and indexes; count its tasks.

    Raises:
        UnavailableError: The file does not exist, can't be read, or has another schema version.
    """
    stopped = Event()
    try:
        return await asyncio.to_thread(_check, Path(place), stopped.is_set)
    finally:
        stopped.set()  # when cancelled, the thread must not read the file to its end


def _check(path: Path, is_stopped: Callable[[], bool]) -> Report:
    with _opened(path) as connection:
        connection.set_progress_handler(is_stopped, STEPS)
        found = version_of(connection)
        if found != len(MIGRATIONS):
            raise SchemaError(found, len(MIGRATIONS))
        if faults := _damage(connection) or _missing(connection):
            return Report(version=found, faults=faults)
        states = connection.execute(sql.count_states)
        tasks = {NAMES.get(state, str(state)): count for state, count in states}
        dead = connection.execute(sql.count_dead_letters).fetchone()
        return Report(version=found, tasks=tasks, dead_letters=dead[0], faults=[])


@contextmanager
def _opened(path: Path) -> Generator[sqlite3.Connection]:
    """Open a file to read it as it is now, without the lock of the process that writes it."""
    if not path.exists():
        raise MissingError(f"There is no file {path}")
    if not path.is_file():
        raise UnavailableError(f"{path} is no file")
    url = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(
            sqlite3.connect(url, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
        ) as connection:
            connection.execute("BEGIN")
            yield connection
    except sqlite3.Error as error:
        raise UnavailableError(f"{path} can't be read: {error}") from error


def _damage(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with its file, at most a hundred lines."""
    try:
        lines = [line for (line,) in connection.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        lines = [str(error)]
    return [f"the file is damaged: {line}" for line in lines if line != "ok"]


def _missing(connection: sqlite3.Connection) -> list[str]:
    """Return the tables and indexes of a new file that this one lacks."""
    with closing(sqlite3.connect(":memory:")) as new:
        migrate(new)
        return [f"{each} is missing" for each in sorted(_objects(new) - _objects(connection))]


def _objects(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute(sql.list_objects)
    return {f"{kind} {name}" for kind, name in rows}
