"""Stale changes of a task are refused; a refused creation leaves nothing behind."""

import pytest
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED, WORKING
from apcore_a2a_server.engine.change import NewState, change, create
from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.store import InMemoryTaskStore, Lease, NewTask, StoreFullError
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.testing.samples import new_record
from msgspec.structs import replace

pytestmark = pytest.mark.anyio
FIRST, SECOND = b"the first question", b"the second question"


async def paused() -> LiveTasks:
    """Return live tasks with the task "t", which waits for the answer to its second question."""
    tasks = LiveTasks(InMemoryTaskStore())
    await create(tasks, replace(new_record("t"), resume=None))
    for question in (FIRST, SECOND):
        await change(
            tasks, "t", NewState(INPUT_REQUIRED, resume=question), expect={WORKING, INPUT_REQUIRED}
        )
    return tasks


async def test_an_answer_to_an_earlier_question_changes_nothing() -> None:
    tasks = await paused()
    with pytest.raises(StaleTaskError):
        await change(tasks, "t", NewState(WORKING), expect={INPUT_REQUIRED}, pause=FIRST)
    record = await change(tasks, "t", NewState(WORKING), expect={INPUT_REQUIRED}, pause=SECOND)
    assert record.task.status.state == WORKING


async def test_a_run_with_another_lease_changes_nothing() -> None:
    tasks = LiveTasks(InMemoryTaskStore())
    lease = await create(tasks, new_record("t"))
    for epoch in (lease.epoch - 1, lease.epoch + 1):
        with pytest.raises(StaleTaskError):
            await change(tasks, "t", NewState(COMPLETED), expect={WORKING}, lease=Lease("t", epoch))
    record = await change(tasks, "t", NewState(COMPLETED), expect={WORKING}, lease=lease)
    assert record.task.status.state == COMPLETED


class FullStore(InMemoryTaskStore):
    """A store that has no room for new tasks."""

    async def create(self, new: NewTask) -> Lease:
        raise StoreFullError


async def test_a_task_that_the_store_refused_does_not_exist() -> None:
    tasks = LiveTasks(FullStore())
    with pytest.raises(StoreFullError):
        await create(tasks, new_record("t"))
    assert await tasks.open("t") is None
    assert tasks.running() == []
