"""Readers of a task's events: each is a position in the log and a wait, not a queue.

A reader never holds up the run. One that is too late for the log gets a snapshot of the task; any
reader can resume from the last id it saw.
"""

from collections.abc import AsyncGenerator

from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from .live import LiveTasks
from .port import Event


async def follow(
    tasks: LiveTasks, task_id: str, after: int, *, idle: float = 15
) -> AsyncGenerator[Event | None]:
    """The events of a task behind version *after*, until it ends or pauses.

    Args:
        tasks: What this process knows of the tasks.
        task_id: The task's id.
        after: The last version that the reader has.
        idle: Seconds without an event after which None says that all is well.
    """
    while True:
        events = await tasks.events(task_id, after)
        if events is None:
            record = await tasks.get(task_id)
            events = [snapshot(record)] if record and record.version > after else []
        for event in events:
            yield event
            after = event.version
            if _ends(event):
                return
        if not _is_running_here(tasks, task_id, after):
            if events:
                continue
            if await _is_settled(tasks, task_id, after):
                return
        if not await _wait(tasks, task_id, after, idle):
            yield None


def _is_running_here(tasks: LiveTasks, task_id: str, after: int) -> bool:
    """Whether this process knows that the next event behind *after* is still to come."""
    live = tasks.current(task_id)
    if live is None or live.record.version > after:
        return False
    return live.record.task.status.state not in SETTLED


async def _is_settled(tasks: LiveTasks, task_id: str, after: int) -> bool:
    """Whether the task has ended or paused, and no event behind *after* will come by itself."""
    live = tasks.current(task_id)
    if live is None and tasks.store.is_durable:
        record = await tasks.store.get(task_id)
        return record is None or (record.version <= after and record.task.status.state in SETTLED)
    return live is None or live.record.task.status.state in SETTLED


async def _wait(tasks: LiveTasks, task_id: str, after: int, seconds: float) -> bool:
    """Wait until the task is beyond version *after*; return False after *seconds*."""
    live = tasks.current(task_id)
    if live is not None and live.record.version > after:
        return True
    if live is None and not tasks.store.is_durable:
        return True
    return await tasks.waiters.wait(task_id, after, seconds)


def _ends(event: Event) -> bool:
    """Whether nothing can come behind it."""
    payload = event.payload
    return not isinstance(payload, a2a.TaskArtifactUpdateEvent) and payload.status.state in TERMINAL


async def attach(
    tasks: LiveTasks, record: TaskRecord, *, idle: float = 15
) -> AsyncGenerator[Event | None]:
    """The task as it is, and what comes after it (A2A 1.0 §3.1.6)."""
    first = snapshot(record)
    yield first
    async for event in follow(tasks, record.task.id, first.version, idle=idle):
        yield event


async def ending(record: TaskRecord) -> AsyncGenerator[Event | None]:
    """The last status of a task that has ended (FR-MSG-006.4)."""
    task = record.task
    status = a2a.TaskStatusUpdateEvent(
        task_id=task.id, context_id=task.context_id, status=task.status
    )
    yield Event(record.version, status)


def snapshot(record: TaskRecord) -> Event:
    """The task as it is now, as an event of its own."""
    task = a2a.Task()
    task.CopyFrom(record.task)
    return Event(record.version, task)
