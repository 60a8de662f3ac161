"""Word of changes comes again after its connection has been lost, however that is lost."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from apcore_a2a_server.store.postgres import hints
from apcore_a2a_server.store.postgres.hints import Hints

from .postgresql import Database
from .proxies import Wire

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]
driver: Any = asyncpg


async def test_a_connection_that_says_nothing_any_more_is_made_anew(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "BEAT", 0.2)
    heard = asyncio.Queue[tuple[str, int]]()
    made: list[Any] = []
    with Wire(server.port) as wire:
        addresses: Iterator[str] = iter([wire.leading_to(server.url), server.url])

        async def connect() -> Any:
            made.append(await driver.connect(next(addresses)))
            return made[-1]

        other = await driver.connect(server.url)
        told = Hints(connect, other.execute, lambda *hint: heard.put_nowait(hint))
        await _say_until_heard(told, heard)
        wire.cut()
        await _say_until_heard(told, heard)
        assert len(made) == 2
        await told.close()
        await other.close()


async def _say_until_heard(told: Hints, heard: "asyncio.Queue[tuple[str, int]]") -> None:
    async with asyncio.timeout(20):
        while heard.empty():
            told.tell("t1", 3)
            await asyncio.sleep(0.05)
    while not heard.empty():
        assert heard.get_nowait() == ("t1", 3)
