"""A database that executes statements while its responses are lost."""

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from apcore_a2a_core.states import COMPLETED, WORKING
from apcore_a2a_server.store import Retention, UnavailableError
from apcore_a2a_server.store.postgres import PostgresStore
from apcore_a2a_server.store.postgres.database import sql
from apcore_a2a_server.store.testing.samples import begun, state_change, versions
from apcore_a2a_server.store.testing.webhook_checks import hook, settle_all

from .postgresql import Database
from .proxies import CuttableLink
from .replicas import LEASE, check_log, replica

pytestmark = pytest.mark.process

MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"seconds": 0}}]}
SEND = {
    "message": {**MESSAGE, "metadata": {"idempotencyKey": "k"}},
    "metadata": {"skillId": "again"},
    "configuration": {"returnImmediately": True},
}


def test_a_task_whose_creation_was_not_confirmed_still_runs(
    tmp_path: Path, server: Database
) -> None:
    server.clear()
    with (
        CuttableLink(server.port) as link,
        replica(tmp_path, link.rerouted_url(server.url), LEASE) as agent,
    ):
        agent.wait_for_end(agent.start("again", seconds=0))  # connects to the database
        link.cut(responses_only=True)
        refused = agent.client.post("/", json=agent.request("SendMessage", **SEND))
        assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE
        link.heal()
        task_id = agent.ask("SendMessage", **SEND)["result"]["task"]["id"]
        assert agent.wait_for_end(task_id) == ["completed"]
        assert agent.count_starts(task_id) == 1
        check_log(agent.events(task_id))


def test_a_replica_without_database_responses_still_shuts_down(
    tmp_path: Path, server: Database
) -> None:
    server.clear()
    url = server.url
    with (
        CuttableLink(server.port) as link,
        replica(tmp_path, link.rerouted_url(url), lease=15) as agent,
    ):
        agent.start("again", seconds=60)
        agent.start("once", seconds=60)
        link.cut()
        assert agent.process.end(signal.SIGTERM) == 0
        assert "Traceback" not in agent.process.log


@asynccontextmanager
async def opened(server: Database, **options: Any) -> AsyncGenerator[PostgresStore]:
    """Open an empty store."""
    store = PostgresStore(server.url)
    await store.start(**options)
    try:
        await store.clear()
        yield store
    finally:
        await store.close()


@pytest.mark.anyio
async def test_a_webhook_saved_during_a_change_whose_response_is_lost_is_notified(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server) as store:
        write = store._write

        async def write_and_lose(change: Any) -> None:
            await write(change)
            monkeypatch.undo()
            # the change did not see this webhook, as if it had been saved at the same time
            await store.save_webhooks("t1", [hook()])
            raise UnavailableError

        record, lease = await begun(store)
        monkeypatch.setattr(store, "_write", write_and_lose)
        change = state_change(record, COMPLETED, lease)
        await store.change(change)
        assert await settle_all(store) == [("w1", 3)]


@pytest.mark.anyio
async def test_a_webhook_that_a_change_has_missed_is_notified_after_an_outage(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server) as store:
        write, add_missed = store._write, store.add_missed_notifications
        failures = iter([UnavailableError])

        async def write_and_miss(change: Any) -> Any:
            row = await write(change)
            if row is not None:  # a webhook that the change did not see
                await store.save_webhooks("t1", [hook()])
                row = {**row, "missed": True}
            return row

        async def be_unreachable_once(*args: Any) -> None:
            for error in failures:
                raise error
            await add_missed(*args)

        record, lease = await begun(store)
        monkeypatch.setattr(store, "_write", write_and_miss)
        monkeypatch.setattr(store, "add_missed_notifications", be_unreachable_once)
        await store.change(state_change(record, COMPLETED, lease))
        assert await settle_all(store) == [("w1", 3)]


@pytest.mark.anyio
async def test_a_change_whose_log_could_not_be_trimmed_is_stored(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, retention=Retention(max_events=1)) as store:
        execute = store._database.execute

        async def fail_to_trim(statement: Any, **parameters: Any) -> None:
            if statement is sql.trim:
                raise UnavailableError
            await execute(statement, **parameters)

        record, lease = await begun(store)
        monkeypatch.setattr(store._database, "execute", fail_to_trim)
        change = state_change(record, WORKING, lease)
        assert await store.change(change) == lease
        assert await versions(store, "t1") == [1, 2, 3]
        monkeypatch.undo()
        await store.change(state_change(change.record, WORKING, lease))
        assert await versions(store, "t1", after=3) == [4]
        assert await store.events("t1", 0) is None
