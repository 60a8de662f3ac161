"""Maintenance of stores through the Python API."""

import asyncio
import gc
import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from apcore_a2a_server.store import UnavailableError, open_store
from apcore_a2a_server.store.maintenance import CheckResult, check, migrate
from apcore_a2a_server.store.sqlite import schema

from tests.serving import PATIENCE

pytestmark = pytest.mark.anyio

FILL = """
INSERT INTO messages (owner, context_id, task_id, body) SELECT 'ada', 'c', 't', zeroblob(200)
FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 30000) SELECT i FROM n)
"""


async def test_a_cancelled_check_logs_no_error_and_its_reading_can_be_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, cancelled, errors = threading.Event(), threading.Event(), list[UnavailableError]()
    check_file = schema._check

    def check_after_cancellation(path: Path, is_stopped: Callable[[], bool]) -> CheckResult:
        started.set()
        assert cancelled.wait(PATIENCE)
        try:
            return check_file(path, is_stopped)
        except UnavailableError as error:
            errors.append(error)
            raise

    monkeypatch.setattr(schema, "_check", check_after_cancellation)
    address = f"sqlite:///{tmp_path / 'agent.db'}"
    await migrate(address)
    with closing(sqlite3.connect(tmp_path / "agent.db")) as file, file:
        file.execute(FILL)
    checking = asyncio.create_task(check(address))
    assert await asyncio.to_thread(started.wait, PATIENCE)
    checking.cancel()
    with caplog.at_level(logging.ERROR), pytest.raises(asyncio.CancelledError):
        await checking
    cancelled.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    gc.collect()
    assert not caplog.records
    (error,) = errors
    assert "interrupted" in str(error)
    with pytest.raises(UnavailableError, match="interrupted"):
        check_file(tmp_path / "agent.db", lambda: True)


async def test_an_invalid_address_is_not_shown_because_it_may_hold_a_password() -> None:
    with pytest.raises(UnavailableError) as caught:
        await open_store("postgresql://agent:12a/b@127.0.0.1/agents").start()
    assert "12a" not in str(caught.value)
    assert caught.value.__suppress_context__
