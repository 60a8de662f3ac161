"""A thread with a connection to an SQLite file, and what it is asked to do."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

Work: TypeAlias = Callable[[sqlite3.Connection], Any]
Result = TypeVar("Result")

BATCH = 200
"""How many pieces of work share a commit at most."""


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
        connect: Opens the connection, in the thread.
        writes: Whether work changes the file.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, writes: bool) -> None:
        super().__init__(name="apcore-a2a-sqlite", daemon=True)
        self._connect = connect
        self._writes = writes
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()

    async def do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """What *work* returns, or raises."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def close(self) -> None:
        """End when all that was asked for has been done."""
        self._jobs.put(None)
        await asyncio.to_thread(self.join)

    def run(self) -> None:
        """The thread."""
        connection = self._connect()
        try:
            while jobs := self._next():
                if self._writes:
                    _together(connection, jobs)
                else:
                    _one_by_one(connection, jobs)
                with suppress(RuntimeError):  # the loop has ended, and with it who waited
                    self._loop.call_soon_threadsafe(_settle, jobs)
        finally:
            connection.close()

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


def _together(connection: sqlite3.Connection, jobs: list[_Job]) -> None:
    """Do all in one transaction; what fails leaves the others alone."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            connection.execute("SAVEPOINT job")
            _do(connection, job)
            connection.execute("ROLLBACK TO job" if job.error else "RELEASE job")
        connection.execute("COMMIT")
    except sqlite3.Error as error:  # the disk is full, or broken: nothing of it is there
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        for job in jobs:
            job.error = job.error or error


def _one_by_one(connection: sqlite3.Connection, jobs: Iterable[_Job]) -> None:
    for job in jobs:
        _do(connection, job)


def _do(connection: sqlite3.Connection, job: _Job) -> None:
    try:
        job.result = job.work(connection)
    except BaseException as error:  # it is for who has asked
        job.error = error


def _settle(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        job.settle()
