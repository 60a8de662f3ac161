"""Subscriptions at one replica to tasks that pause and continue at another."""

import pytest
from apcore_a2a_server.store.postgres import PostgresStore

from tests.server.inloop import NEEDS_APPROVAL, ActionModule, gapless, give_back, serving

from .postgresql import Database

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


async def test_a_subscriber_of_a_paused_task_sees_the_answer_at_another_replica(
    server: Database,
) -> None:
    server.clear()
    modules = {"work": ActionModule(give_back, annotations=NEEDS_APPROVAL)}
    async with (
        serving(modules, task_store=PostgresStore(server.url)) as one,
        serving(modules, task_store=PostgresStore(server.url)) as two,
    ):
        task_id = (await one.send()).task["id"]
        async with two.subscribe(task_id) as stream:
            frames = [await stream.next()]
            await one.send(parts=[one.part(text="yes")], taskId=task_id)
            frames += await stream.rest()
    ends = ["task input-required", "status working", "artifact", "status completed"]
    assert [str(frame) for frame in frames] == ends
    assert gapless(frames, 3)
