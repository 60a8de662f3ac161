"""A blocking send gets a task that has settled, or an error that asks the client to retry."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from apcore import ModuleAnnotations
from apcore_a2a_server.store.sqlite import SqliteStore

from .inloop import ActionModule, contents, serving, wait_until
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs

pytestmark = pytest.mark.anyio
REPEATABLE = ModuleAnnotations(idempotent=True)


@pytest.mark.parametrize("dialect", ["0.3", "1.0", "REST"])
async def test_a_blocking_send_waits_for_its_task_after_the_lease_is_lost(
    dialect: str, tmp_path: Path
) -> None:
    runs = 0

    async def work(inputs: Inputs, context: Any) -> Inputs:
        nonlocal runs
        runs += 1
        if runs == 1:
            await asyncio.Event().wait()
        return {"runs": runs}

    store = SqliteStore(tmp_path / "agent.db", lease_seconds=0.3)
    modules = {"work": ActionModule(work, annotations=REPEATABLE)}
    async with serving(modules, dialect, task_store=store) as peer:
        send = asyncio.create_task(peer.send())
        await wait_until(lambda: runs == 1)
        tasks = peer.agent.setup.tasks
        (lease,) = tasks.leases()
        tasks.forget(lease.task_id)
        peer.agent.engine.on_lease_lost(lease)
        answer = await send
        assert answer.state == "completed"
        assert contents(answer.task) == [{"runs": 2}]


@pytest.mark.parametrize("dialect", ["0.3", "1.0", "REST"])
async def test_a_blocking_send_is_refused_when_its_task_is_handed_over(
    dialect: str, tmp_path: Path
) -> None:
    started = asyncio.Event()

    async def work(inputs: Inputs, context: Any) -> Inputs:
        started.set()
        await asyncio.Event().wait()
        return {}

    store = SqliteStore(tmp_path / "agent.db")
    modules = {"work": ActionModule(work, annotations=REPEATABLE)}
    async with serving(modules, dialect, task_store=store) as peer:
        send = asyncio.create_task(peer.client.send(peer.request("send", peer.wire.params("work"))))
        await started.wait()
        await peer.agent.drain(0.01)
        response = await send
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
