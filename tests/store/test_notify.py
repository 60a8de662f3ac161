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
from .proxies import CuttableLink

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]
driver: Any = asyncpg


async def test_a_connection_that_hangs_is_replaced(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "HEARTBEAT_INTERVAL", 0.2)
    received = asyncio.Queue[tuple[str, int]]()
    connections: list[Any] = []
    with CuttableLink(server.port) as link:
        addresses: Iterator[str] = iter([link.rerouted_url(server.url), server.url])

        async def connect() -> Any:
            connections.append(await driver.connect(next(addresses)))
            return connections[-1]

        async def execute(statement: Statement, **values: Any) -> None:
            await other_connection.execute(statement.text, *statement.arguments(values))

        other_connection = await driver.connect(server.url)
        notifier = ChangeNotifier(connect, execute, lambda *change: received.put_nowait(change))
        await _notify_until_received(notifier, received)
        link.cut()
        await _notify_until_received(notifier, received)
        assert len(connections) == 2
        await notifier.close()
        await other_connection.close()


async def _notify_until_received(
    notifier: ChangeNotifier, received: "asyncio.Queue[tuple[str, int]]"
) -> None:
    async with asyncio.timeout(20):
        while received.empty():
            notifier.notify("t1", 3)
            await asyncio.sleep(0.05)
    while not received.empty():
        assert received.get_nowait() == ("t1", 3)
