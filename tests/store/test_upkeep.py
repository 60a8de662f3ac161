"""What operators do with stores, as programs do it."""

import asyncio
import gc
import logging
import threading
from pathlib import Path

import pytest
from apcore_a2a_server.store import UnavailableError, open_store
from apcore_a2a_server.store.upkeep import check, migrate

pytestmark = pytest.mark.anyio


async def test_a_check_that_is_stopped_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    address, steps = f"sqlite:///{tmp_path / 'agent.db'}", list[str]()

    def tell(step: str) -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait()
        steps.append(step)
        raise RuntimeError

    await migrate(address)
    work = asyncio.create_task(check(address, tell))
    await started.wait()
    work.cancel()
    loop.call_soon(loop.call_soon, go_on.set)
    with caplog.at_level(logging.ERROR), pytest.raises(asyncio.CancelledError):
        await work
    assert len(steps) == 1
    gc.collect()
    await asyncio.sleep(0)
    assert not caplog.records


async def test_an_address_that_can_t_be_read_is_not_shown_for_it_has_a_password() -> None:
    with pytest.raises(UnavailableError) as caught:
        await open_store("postgresql://agent:12a/b@127.0.0.1/agents").start()
    assert "12a" not in str(caught.value)
    assert caught.value.__suppress_context__
