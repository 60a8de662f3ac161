"""A thread that owns a connection to an SQLite file, and runs jobs with it."""

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

from apcore_a2a_server.store.exceptions import DiskFullError, UnavailableError

logger = logging.getLogger("apcore_a2a.store")

JobFunction: TypeAlias = Callable[[sqlite3.Connection], Any]
JobResult = TypeVar("JobResult")

MAX_BATCH = 200  # jobs that share a commit
OUTAGE_REASONS = {
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

    function: JobFunction
    future: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = None


class Worker(threading.Thread):
    """A thread that runs jobs in order; jobs that are queued at the same time share a transaction.

    Each job is done completely or not at all. Its caller gets the result after the commit.

    Args:
        connection: The connection; only this thread uses it from now on.
        path: The file.
        writes: Whether jobs may change the file.

    Attributes:
        is_failing: Whether the last transaction failed because the file could not be used.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, *, writes: bool) -> None:
        super().__init__(name="apcore-a2a-sqlite", daemon=True)
        self.is_failing = False
        self._connection = connection
        self._path = path
        self._writes = writes
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()

    async def call(self, function: Callable[[sqlite3.Connection], JobResult]) -> JobResult:
        """Call *function* in the thread; return its result, or raise its error.

        Raises:
            UnavailableError: The file can't be used now; *function* has changed nothing.
        """
        future: asyncio.Future[JobResult] = self._loop.create_future()
        self._jobs.put(_Job(function, future))
        return await future

    async def close(self) -> None:
        """End the thread when all jobs are done."""
        self._jobs.put(None)
        await asyncio.to_thread(self.join)

    def run(self) -> None:
        """Run jobs until `close` is called."""
        with closing(self._connection):
            while jobs := self._next_batch():
                self._run_batch(jobs)
                with suppress(RuntimeError):  # the loop is closed, so no caller waits
                    self._loop.call_soon_threadsafe(_resolve, jobs)

    def _run_batch(self, jobs: list[_Job]) -> None:
        """Run all jobs in one transaction, or if a job fails halfway, each in a separate one."""
        try:
            is_committed = self._run_transaction(jobs)
        except sqlite3.Error as error:
            self._fail(jobs, error)
            return
        if self.is_failing:
            self.is_failing = False
            extra = {"event": "store_file_available"}
            logger.warning("%s can be used again", self._path, extra=extra)
        if not is_committed and len(jobs) > 1:
            for job in jobs:
                self._run_batch([job])

    def _next_batch(self) -> list[_Job]:
        """Wait for jobs and return them; return none once the worker is closed."""
        first_job = self._jobs.get()
        jobs = [] if first_job is None else [first_job]
        while jobs and len(jobs) < MAX_BATCH and not self._jobs.empty():
            next_job = self._jobs.get()
            if next_job is None:  # end after this batch
                self._jobs.put(None)
                break
            jobs.append(next_job)
        return jobs

    def _run_transaction(self, jobs: list[_Job]) -> bool:
        """Run jobs in a transaction; return False if one failed halfway and all were rolled back.

        Raises:
            sqlite3.Error: The file can't be used.
        """
        try:
            # Jobs that only read need a transaction too, so that a job sees one state of the file.
            self._connection.execute("BEGIN IMMEDIATE" if self._writes else "BEGIN")
            # Only a write shows that an outage is over: a transaction without changes succeeds
            # on a full disk too.
            if self.is_failing and self._writes:
                _touch(self._connection)
            # No savepoint for each job: SQLite would need another journal for every batch. Few jobs
            # fail after they have changed something; if one does, its batch is run again.
            is_clean = all(_run_job(self._connection, job) for job in jobs)
            self._connection.execute("COMMIT" if is_clean else "ROLLBACK")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise
        return is_clean

    def _fail(self, jobs: list[_Job], error: sqlite3.Error) -> None:
        """Fail all jobs for the same reason, and log an outage once."""
        reason = _outage_reason(error)
        job_error: sqlite3.Error | UnavailableError = error
        if reason is not None:
            is_full = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
            job_error = (DiskFullError if is_full else UnavailableError)(f"{self._path}: {reason}")
        for job in jobs:
            job.error = job_error
        if not self.is_failing:
            self.is_failing = True
            values = self._path, "written" if self._writes else "read", reason or error
            extra = {"event": "store_file_unavailable"}
            logger.error("%s can't be %s: %s", *values, extra=extra)


def _touch(connection: sqlite3.Connection) -> None:
    """Write to the file without changing its contents."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version}")


def _run_job(connection: sqlite3.Connection, job: _Job) -> bool:
    """Run a job; return False if it failed after it had changed something."""
    changes_before, job.error = connection.total_changes, None
    try:
        job.result = job.function(connection)
    except BaseException as error:  # the caller gets it; an outage fails all jobs
        if _outage_reason(error) is not None:
            raise
        job.error = error
    return job.error is None or connection.total_changes == changes_before


def _outage_reason(error: BaseException) -> str | None:
    """Return why the file can't be used; None for any other error."""
    if not isinstance(error, sqlite3.OperationalError):
        return None
    return OUTAGE_REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)


def _resolve(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # the caller was cancelled
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
