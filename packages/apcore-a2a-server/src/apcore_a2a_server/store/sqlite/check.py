"""Looks whether an SQLite file is as it must be, beside the process that has it."""

import asyncio
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from apcore_a2a_server.store.errors import MissingError, SchemaError, UnavailableError
from apcore_a2a_server.store.reports import STATUSES, Ends, Fault, Report, queries, report

from .schema import MIGRATIONS, version_of

KNOWN = len(MIGRATIONS)
BUSY = 5.0
"""Seconds in which another program may let go of the file."""
INTERRUPT = 0.1
"""Seconds after which a check is interrupted again, when it goes on."""


async def version(place: str) -> int:
    """The version of a file's tables; 0 when there are none.

    Raises:
        MissingError: There is no such file.
        UnavailableError: It can't be read, or is no database.
    """
    with _reading(Path(place)) as connection:
        return version_of(connection)


async def check(place: str, tell: Callable[[str], None]) -> Report:
    """What is in a file, and what is wrong with it; reads only.

    Args:
        place: The file.
        tell: Is told of each step, in another thread.

    Raises:
        UnavailableError: It is not there, can't be read, or has tables of another version.
    """
    with _reading(Path(place)) as connection:
        work = asyncio.ensure_future(asyncio.to_thread(_look, connection, Path(place), tell))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():  # the thread has the connection
                connection.interrupt()
                await asyncio.wait({work}, timeout=INTERRUPT)
            await asyncio.gather(work, return_exceptions=True)
            raise


@contextmanager
def _reading(path: Path) -> Generator[sqlite3.Connection]:
    """The file as it is at one moment, without the lock of who writes it."""
    if not path.exists():
        raise MissingError(f"There is no file {path}")
    if not path.is_file():
        raise UnavailableError(f"{path} is no file")
    url = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(
            sqlite3.connect(
                url, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False
            )
        ) as connection:
            connection.execute("BEGIN")
            yield connection
    except sqlite3.Error as error:
        raise UnavailableError(f"{path} can't be read: {error}") from error


def _look(connection: sqlite3.Connection, path: Path, tell: Callable[[str], None]) -> Report:
    found = version_of(connection)
    if found != KNOWN:
        raise SchemaError(found, KNOWN)
    beside = path.with_name(f"{path.name}-wal")
    size = sum(file.stat().st_size for file in (path, beside) if file.exists())
    tell("integrity")
    if damage := _damage(connection):
        fault = Fault("the file is damaged; what is in it was not looked at", len(damage), damage)
        return Report(version=found, size=size, faults=[fault])
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    answers: dict[str, list[tuple[Any, ...]]] = {}
    for name, sql in queries(tables, {}).items():
        tell(name)
        answers[name] = connection.execute(sql).fetchall()
    tell("ends")
    ends = Ends()
    for row in connection.execute(STATUSES.format(task="x'00'", chunk="x'02'")):
        ends.add(*row)
    return report(found, size, answers, ends)


def _damage(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """What SQLite finds wrong with its file, a hundred things at most."""
    try:
        told = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        told = [str(error)]
    return [("", text) for text in told if text != "ok"]
