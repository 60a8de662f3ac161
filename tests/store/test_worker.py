"""Writes that share a commit in a SQLite file: a failing one is rolled back alone."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from apcore_a2a_server.store.sqlite.worker import Worker

pytestmark = pytest.mark.anyio


def add(*numbers: int) -> Callable[[sqlite3.Connection], int]:
    """Return work that inserts *numbers* one after the other."""

    def work(connection: sqlite3.Connection) -> int:
        for number in numbers:
            connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        return len(numbers)

    return work


def refuse(connection: sqlite3.Connection) -> None:
    raise LookupError


async def test_work_that_fails_halfway_is_rolled_back_without_affecting_the_rest(
    tmp_path: Path,
) -> None:
    path = tmp_path / "numbers.db"
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    worker = Worker(connection, path, writes=True)
    works = [add(1, 2), add(3, 2), refuse, add(4), add(5, 5)]
    queued = [asyncio.ensure_future(worker.call(work)) for work in works]
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
