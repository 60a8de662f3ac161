"""A thread with a connection to an SQLite file, and what it is asked to do."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from apcore_a2a_server.store.errors import UnavailableError

logger = logging.getLogger("apcore_a2a.store")

Work: TypeAlias = Callable[[sqlite3.Connection], Any]
Result = TypeVar("Result")

BATCH = 200
"""How many pieces of work share a commit at most."""
REASONS = {
    sqlite3.SQLITE_FULL: "disk is full",
    sqlite3.SQLITE_IOERR: "disk I/O error",
    sqlite3.SQLITE_READONLY: "the file is read-only",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_CANTOPEN: "the file can't be opened",
    sqlite3.SQLITE_BUSY: "another program has locked it",
    sqlite3.SQLITE_LOCKED: "another program has locked it",
}
"""What keeps a file from being used, by the code of SQLite (https://sqlite.org/rescode.html)."""


class _Job:
    """A piece of work, and who waits for what comes of it."""

    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Work, future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():  # who has waited for it waits no more
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Worker(threading.Thread):
    """Does one piece of work after the other; those that have come meanwhile share a commit.

    Each is done whole or not at all, and is told of when it is on the disk.

    Args:
        connection: The connection; from now on it is this thread's.
        path: The file.
        writes: Whether work changes the file.

    Attributes:
        fails: Whether the file could not be used when that was last tried.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, *, writes: bool) -> None:
        super().__init__(name="apcore-a2a-sqlite", daemon=True)
        self.fails = False
        self._connection = connection
        self._path = path
        self._writes = writes
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()

    async def do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """What *work* returns, or raises.

        Raises:
            UnavailableError: The file can't be used now; nothing of *work* is in it.
        """
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def close(self) -> None:
        """End when all that was asked for has been done."""
        self._jobs.put(None)
        await asyncio.to_thread(self.join)

    def run(self) -> None:
        """The thread."""
        with closing(self._connection):
            while jobs := self._next():
                self._attempt(jobs)
                with suppress(RuntimeError):  # the loop has ended, and with it who waited
                    self._loop.call_soon_threadsafe(_settle, jobs)

    def _attempt(self, jobs: list[_Job]) -> None:
        """Do all together; when one fails halfway, each by itself."""
        try:
            whole = self._do(jobs)
        except sqlite3.Error as error:
            self._fail(jobs, error)
            return
        self._succeed()
        if not whole and len(jobs) > 1:
            for job in jobs:
                self._attempt([job])

    def _next(self) -> list[_Job]:
        """What is to be done next; nothing at the end."""
        first = self._jobs.get()
        jobs = [] if first is None else [first]
        while jobs and len(jobs) < BATCH and not self._jobs.empty():
            more = self._jobs.get()
            if more is None:
                self._jobs.put(None)
                break
            jobs.append(more)
        return jobs

    def _do(self, jobs: list[_Job]) -> bool:
        """Do all; False when one has failed halfway, so that nothing is done.

        Raises:
            sqlite3.Error: The file can't be used.
        """
        if not self._writes:
            for job in jobs:
                _do(self._connection, job)
            return True
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            if self.fails:  # a transaction that writes nothing would not fail
                _touch(self._connection)
            # no savepoints: SQLite would keep a journal for each
            whole = all(_do(self._connection, job) for job in jobs)
            self._connection.execute("COMMIT" if whole else "ROLLBACK")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise
        return whole

    def _fail(self, jobs: list[_Job], error: sqlite3.Error) -> None:
        """Nothing of *jobs* is there, for the same reason; the operator is told of it once."""
        reason = _reason(error)
        failure = error if reason is None else UnavailableError(f"{self._path}: {reason}")
        for job in jobs:
            job.error = failure
        if not self.fails:
            self.fails = True
            verb = "written" if self._writes else "read"
            logger.error("%s can't be %s: %s", self._path, verb, reason or error)

    def _succeed(self) -> None:
        if self.fails:
            self.fails = False
            logger.warning("%s can be used again", self._path)


def _touch(connection: sqlite3.Connection) -> None:
    """Write what is there already."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version}")


def _do(connection: sqlite3.Connection, job: _Job) -> bool:
    """Do a piece of work; False when it has failed halfway, so that something is to be undone."""
    before, job.error = connection.total_changes, None
    try:
        job.result = job.work(connection)
    except BaseException as error:  # it is for who has asked, unless it stands against all
        if _reason(error) is not None:
            raise
        job.error = error
    return job.error is None or connection.total_changes == before


def _reason(error: BaseException) -> str | None:
    """Why the file can't be used, when it is that."""
    known = isinstance(error, sqlite3.OperationalError)
    return REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF) if known else None


def _settle(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        job.settle()
