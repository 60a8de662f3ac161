"""The schema and the statements of an SQLite file, and checks of the file."""

import asyncio
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

from apcore_a2a_server.store.exceptions import MissingError, SchemaError, UnavailableError
from apcore_a2a_server.store.maintenance import CheckResult
from apcore_a2a_server.store.statements import Statements, read_blocks

BUSY_TIMEOUT = 5.0  # seconds to wait for another program's lock, such as a backup's
PACKAGE = "apcore_a2a_server.store.sqlite"
MIGRATIONS = (*read_blocks(PACKAGE, "schema.sql").values(),)
"""Scripts that each raise the schema version by one, starting at 0."""

sql = Statements(PACKAGE, str)

READ_ONLY_FOLDER_CODES = (sqlite3.SQLITE_READONLY_DIRECTORY, sqlite3.SQLITE_CANTOPEN)
"""Result codes when SQLite can't create files beside the file that is to be read."""
ADVICE = {
    sqlite3.SQLITE_READONLY_ROLLBACK: (
        "a process was killed while it changed the file; "
        "run this as a user who may write the file and its folder"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "no access to the file, or to its -wal file in a folder that can only be read; "
        "run this as a user who may write in the folder, or on a copy of both files"
    ),
}
"""Advice for result codes whose messages do not help users."""
STOP_CHECK_INTERVAL = 10_000  # instructions of SQLite's virtual machine


def migrate(connection: sqlite3.Connection) -> int:
    """Migrate the file to the latest schema version; return that version.

    Raises:
        SchemaError: The schema is newer than this package.
        UnavailableError: The file belongs to another program.
    """
    current_version = version_of(connection)
    if current_version > len(MIGRATIONS):
        raise SchemaError(current_version, len(MIGRATIONS))
    if not current_version and connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        raise UnavailableError("The file is another program's database")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.create_function("as_json", 2, _as_json)
    for number, script in enumerate(MIGRATIONS[current_version:], current_version + 1):
        # a transaction per version; it sets the version number too
        connection.executescript(
            f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT"
        )
    return len(MIGRATIONS)


def _as_json(table: str, body: bytes) -> bytes:
    """Return a body from before schema version 4 as JSON."""
    # needs protobuf, unlike the rest of the store
    from apcore_a2a_server.store.protobuf_bodies import as_json

    return as_json(table, body)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 if the file is empty."""
    schema_version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return schema_version


async def version(path: str) -> int:
    """Return the schema version of a file; 0 for an empty one.

    Raises:
        MissingError: The file does not exist.
        UnavailableError: The file can't be read, or is not a database.
    """
    with _snapshot(Path(path)) as connection:
        return version_of(connection)


async def check(path: str) -> CheckResult:
    """Check a file for damage, missing tables and missing indexes.

    If it is sound, count its tasks and dead letters.

    Raises:
        UnavailableError: The file does not exist, or can't be read.
    """
    stopped = Event()
    try:
        return await asyncio.to_thread(_check, Path(path), stopped.is_set)
    finally:
        stopped.set()  # after a cancellation, the thread must not read the file to its end


def _check(path: Path, is_stopped: Callable[[], bool]) -> CheckResult:
    with _snapshot(path) as connection:
        connection.set_progress_handler(is_stopped, STOP_CHECK_INTERVAL)
        if faults := _damage(connection) or _missing(connection):
            return faults, (), 0
        state_counts = connection.execute(sql.count_states).fetchall()
        return [], state_counts, connection.execute(sql.count_dead_letters).fetchone()[0]


@contextmanager
def _snapshot(path: Path) -> Generator[sqlite3.Connection]:
    """Open a file in a transaction that does not see later changes.

    The `ProcessLock` is not taken: an agent that uses the file holds the lock.
    """
    if not path.exists():
        raise MissingError(f"There is no file {path}")
    if not path.is_file():
        raise UnavailableError(f"{path} is not a file")
    try:
        with closing(_open_to_read(path)) as connection:
            yield connection
    except sqlite3.Error as error:
        advice = ADVICE.get(getattr(error, "sqlite_errorcode", 0), str(error))
        raise UnavailableError(f"{path} can't be read: {advice}") from error


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open a file in a transaction, read-only unless SQLite must first roll back a change.

    Raises:
        sqlite3.Error: The file can't be read.
    """
    try:
        return _begin_to_read(path, "mode=ro")
    except sqlite3.OperationalError as error:
        code = error.sqlite_errorcode
        # A process was killed in a transaction, which SQLite must roll back first.
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            return _begin_to_read(path, "mode=rw")
        # In a folder that can only be read, SQLite can't create the index of the write-ahead log.
        # Without a log there is nothing to index, and no process is writing the file.
        if code in READ_ONLY_FOLDER_CODES and not _has_log(path):
            return _begin_to_read(path, "immutable=1")
        raise


def _begin_to_read(path: Path, query: str) -> sqlite3.Connection:
    url = f"{path.absolute().as_uri()}?{query}"
    connection = sqlite3.connect(url, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        connection.execute("BEGIN")
        version_of(connection)  # opens the file
    except BaseException:  # close a connection that no caller will get
        connection.close()
        raise
    return connection


def _has_log(path: Path) -> bool:
    log = Path(f"{path.resolve()}-wal")
    return log.exists() and log.stat().st_size > 0


def _damage(connection: sqlite3.Connection) -> list[str]:
    """Return the damage that SQLite finds in the file, at most a hundred lines."""
    try:
        lines = [line for (line,) in connection.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        lines = [str(error)]
    return [f"the file is damaged: {line}" for line in lines if line != "ok"]


def _missing(connection: sqlite3.Connection) -> list[str]:
    """Return the tables and indexes that a new file has and this one lacks."""
    with closing(sqlite3.connect(":memory:")) as new_database:
        migrate(new_database)
        missing = _objects(new_database) - _objects(connection)
        return [f"{name} is missing" for name in sorted(missing)]


def _objects(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute(sql.list_objects)
    return {f"{kind} {name}" for kind, name in rows}
