"""Subscriptions at one replica to tasks that pause and continue at another."""

import pytest
from apcore_a2a_server.store.postgres import PostgresStore

from tests.server.inloop import NEEDS_APPROVAL, ActionModule, echo, gapless, serving

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


async def test_a_subscriber_sees_a_task_continue_after_an_answer_at_another_replica(
    server: Database,
) -> None:
    server.clear()
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with (
        serving(modules, task_store=PostgresStore(server.url)) as first,
        serving(modules, task_store=PostgresStore(server.url)) as second,
    ):
        task_id = (await first.send()).task["id"]
        async with second.subscribe(task_id) as stream:
            frames = [await stream.next()]
            await first.send(parts=[first.part(text="yes")], taskId=task_id)
            frames += await stream.rest()
    expected = ["task input-required", "status working", "artifact", "status completed"]
    assert [str(frame) for frame in frames] == expected
    assert gapless(frames, 3)
