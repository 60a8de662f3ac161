"""Deliveries over a durable store: fair shares and shutdown."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from apcore_a2a_core.data import TaskPushNotificationConfig
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.push.push import Push
from apcore_a2a_server.store import Webhook
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.sqlite import SqliteStore
from apcore_a2a_server.store.testing import begun, new_record

from .receiver import OK, Delivery, Reply, receiving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def stored_push(folder: Path) -> AsyncGenerator[tuple[SqliteStore, Push]]:
    """Yield a durable store and its `Push`, which is not started."""
    store = SqliteStore(folder / "agent.db")
    await store.start()
    try:
        yield store, Push(LiveTasks(store), PushSettings(dev=True, timeout=60))
    finally:
        await store.close()


async def start_task(store: SqliteStore, name: str, owner: str, url: str) -> None:
    """Start a task with a webhook."""
    config = TaskPushNotificationConfig(id="w", task_id=name, url=url)
    await begun(store, new_record(name, owner), [Webhook(config, "1.0")])


async def test_slow_hosts_of_many_principals_do_not_starve_another_principal(
    tmp_path: Path,
) -> None:
    with receiving() as quick, socket.create_server(("0.0.0.0", 0), backlog=1000) as silent:
        async with stored_push(tmp_path) as (store, push):
            port = silent.getsockname()[1]
            slow = [
                (owner, host, n) for owner in range(10) for host in range(1, 5) for n in range(8)
            ]
            await asyncio.gather(
                *(
                    start_task(
                        store, f"{owner}-{host}-{n}", f"{owner}", f"http://127.0.0.{host}:{port}/"
                    )
                    for owner, host, n in slow
                )
            )
            push.queue.start()
            await start_task(store, "quick", "another owner", quick.url)
            await asyncio.to_thread(quick.wait, 1)
            await push.queue.drain(0)


async def test_a_drained_queue_leaves_no_asyncio_task(tmp_path: Path) -> None:
    def answer(delivery: Delivery) -> Reply:
        return OK if len(receiver) == 1 else Reply(silent=True)

    before = asyncio.all_tasks()
    with receiving(answer) as receiver:
        async with stored_push(tmp_path) as (store, push):
            for number in range(20):
                await start_task(store, f"t{number}", "ada", receiver.url)
            push.queue.start()
            # one that is answered, and eight that wait: the most for one host at a time
            await asyncio.to_thread(receiver.wait, 9)
            await push.queue.drain(0)
            assert asyncio.all_tasks() <= before


async def test_a_queue_that_never_started_can_be_drained(tmp_path: Path) -> None:
    async with stored_push(tmp_path) as (_, push):
        await push.queue.drain(1)
