"""The file of an SQLite store: one process at a time, and connections to it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from apcore_a2a_server.store.errors import UnavailableError

from .schema import BUSY_TIMEOUT, migrate, sql


class InUseError(UnavailableError):
    """Another process has the file."""


def lock(path: Path) -> Callable[[], None]:
    """Keep other processes from *path* until the returned function is called, or this one ends.

    Raises:
        InUseError: Another process has the lock.
        UnavailableError: The folder does not exist.
    """
    if not path.absolute().parent.is_dir():
        raise UnavailableError(f"There is no folder {path.absolute().parent}")
    file_lock = FileLock(f"{path}.lock", timeout=0, is_singleton=False)
    try:
        file_lock.acquire()
    except Timeout:
        raise InUseError(
            f"{path} is in use by another process. A file is for one process; "
            "several share a PostgreSQL database"
        ) from None
    return file_lock.release


def connect(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Open a file and bring its schema up to date; return connections to write and to read."""
    writer = _connect(path)
    try:
        migrate(writer)
        writer.execute(sql.expire_all)
        return writer, _connect(path)
    except BaseException:  # whatever it is, nobody has the connection then
        writer.close()
        raise


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.row_factory = sqlite3.Row
    return connection
