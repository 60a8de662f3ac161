"""Change notifications arrive again after their connection was lost."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from apcore_a2a_server.store.postgres import notify
from apcore_a2a_server.store.postgres.database import Statement
from apcore_a2a_server.store.postgres.notify import ChangeNotifier

from .postgresql import Database
from .proxies import Wire

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]
driver: Any = asyncpg


async def test_a_connection_that_hangs_is_replaced(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "HEARTBEAT_INTERVAL", 0.2)
    received = asyncio.Queue[tuple[str, int]]()
    made: list[Any] = []
    with Wire(server.port) as wire:
        addresses: Iterator[str] = iter([wire.rerouted(server.url), server.url])

        async def connect() -> Any:
            made.append(await driver.connect(next(addresses)))
            return made[-1]

        async def execute(statement: Statement, **values: Any) -> None:
            await other.execute(statement.text, *statement.arguments(values))

        other = await driver.connect(server.url)
        notifier = ChangeNotifier(connect, execute, lambda *change: received.put_nowait(change))
        await _notify_until_received(notifier, received)
        wire.cut()
        await _notify_until_received(notifier, received)
        assert len(made) == 2
        await notifier.close()
        await other.close()


async def _notify_until_received(
    notifier: ChangeNotifier, received: "asyncio.Queue[tuple[str, int]]"
) -> None:
    async with asyncio.timeout(20):
        while received.empty():
            notifier.notify("t1", 3)
            await asyncio.sleep(0.05)
    while not received.empty():
        assert received.get_nowait() == ("t1", 3)
