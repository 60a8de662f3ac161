"""Transactions in a SQLite file: jobs that share a commit, and jobs that read."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from apcore_a2a_server.store.sqlite.worker import Worker

pytestmark = pytest.mark.anyio


def add(*numbers: int) -> Callable[[sqlite3.Connection], int]:
    """Return a job that inserts *numbers* one after the other."""

    def job(connection: sqlite3.Connection) -> int:
        for number in numbers:
            connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        return len(numbers)

    return job


def refuse(connection: sqlite3.Connection) -> None:
    raise LookupError


async def test_a_job_that_fails_halfway_is_rolled_back_without_affecting_the_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "numbers.db"
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    worker = Worker(connection, path, writes=True)
    jobs = [add(1, 2), add(3, 2), refuse, add(4), add(5, 5)]
    queued = [asyncio.ensure_future(worker.call(job)) for job in jobs]
    await asyncio.sleep(0)  # all are queued before the thread starts
    worker.start()
    outcomes = await asyncio.gather(*queued, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        int,
        sqlite3.IntegrityError,
        LookupError,
        int,
        sqlite3.IntegrityError,
    ]
    await worker.close()
    with sqlite3.connect(path) as reader:
        assert reader.execute("SELECT number FROM numbers").fetchall() == [(1,), (2,), (4,)]
    reader.close()


async def test_all_statements_of_a_job_that_reads_see_the_same_state(tmp_path: Path) -> None:
    path, reading, written = tmp_path / "numbers.db", threading.Event(), threading.Event()

    def open_worker(*, writes: bool) -> Worker:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY)")
        worker = Worker(connection, path, writes=writes)
        worker.start()
        return worker

    def read_twice(connection: sqlite3.Connection) -> list[int]:
        counts = list(connection.execute("SELECT count(*) FROM numbers").fetchone())
        reading.set()
        written.wait()
        return counts + list(connection.execute("SELECT count(*) FROM numbers").fetchone())

    writer, reader = open_worker(writes=True), open_worker(writes=False)
    counting = asyncio.ensure_future(reader.call(read_twice))
    await asyncio.to_thread(reading.wait)
    await writer.call(add(1))
    written.set()
    assert await counting == [0, 0]
    assert await reader.call(read_twice) == [1, 1]
    await writer.close()
    await reader.close()
