"""A thread with a connection to an SQLite file, and its jobs."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from apcore_a2a_server.store.errors import UnavailableError

logger = logging.getLogger("apcore_a2a.store")

Work: TypeAlias = Callable[[sqlite3.Connection], Any]
Result = TypeVar("Result")

LARGEST_BATCH = 200  # jobs that share a commit
REASONS = {
    sqlite3.SQLITE_FULL: "disk is full",
    sqlite3.SQLITE_IOERR: "disk I/O error",
    sqlite3.SQLITE_READONLY: "the file is read-only",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_CANTOPEN: "the file can't be opened",
    sqlite3.SQLITE_BUSY: "another program has locked it",
    sqlite3.SQLITE_LOCKED: "another program has locked it",
}
"""Why a file can't be used, by SQLite's result code (https://sqlite.org/rescode.html)."""


@dataclass(slots=True)
class _Job:
    """A function to call with the connection, and the future of its result."""

    work: Work
    future: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = None


class Worker(threading.Thread):
    """Does jobs one after the other; those that wait at the same time share a commit.

    Each is done whole or not at all, and its caller gets the result when it is on the disk.

    Args:
        connection: The connection; only this thread uses it from now on.
        path: The file.
        writes: Whether jobs change the file.

    Attributes:
        fails: Whether the file could not be used at the last attempt.
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
        """Return what *work* returns, or raise what it raises.

        Raises:
            UnavailableError: The file can't be used now; *work* has changed nothing.
        """
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def close(self) -> None:
        """End the thread when all jobs are done."""
        self._jobs.put(None)
        await asyncio.to_thread(self.join)

    def run(self) -> None:
        """Do jobs until the thread is closed."""
        with closing(self._connection):
            while jobs := self._next():
                self._attempt(jobs)
                with suppress(RuntimeError):  # the loop has ended, and the callers with it
                    self._loop.call_soon_threadsafe(_settle, jobs)

    def _attempt(self, jobs: list[_Job]) -> None:
        """Do all jobs in one transaction; when one fails halfway, each in its own."""
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
        """Return the jobs that wait; none at the end."""
        first = self._jobs.get()
        jobs = [] if first is None else [first]
        while jobs and len(jobs) < LARGEST_BATCH and not self._jobs.empty():
            more = self._jobs.get()
            if more is None:
                self._jobs.put(None)
                break
            jobs.append(more)
        return jobs

    def _do(self, jobs: list[_Job]) -> bool:
        """Do all jobs; return False when one has failed halfway, so that none is done.

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
        """Fail all jobs for the same reason, and log an outage once."""
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
    """Write something that changes nothing."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version}")


def _do(connection: sqlite3.Connection, job: _Job) -> bool:
    """Do a job; return False when it has failed halfway, so that it must be undone."""
    before, job.error = connection.total_changes, None
    try:
        job.result = job.work(connection)
    except BaseException as error:  # its caller gets it, unless the file is unusable for all
        if _reason(error) is not None:
            raise
        job.error = error
    return job.error is None or connection.total_changes == before


def _reason(error: BaseException) -> str | None:
    """Return why the file can't be used; None for any other error."""
    known = isinstance(error, sqlite3.OperationalError)
    return REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF) if known else None


def _settle(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # the caller was cancelled
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
