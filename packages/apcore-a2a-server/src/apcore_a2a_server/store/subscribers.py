"""Readers of a task's events: each is a place in the log and a wait, not a queue.

A reader never holds up the run. One that is too late for the log gets a snapshot of the
task; any can go on from the last id it saw.
"""

from collections.abc import AsyncGenerator

from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import TERMINAL

from .events import Event
from .journal import Journal


async def follow(
    journal: Journal, task_id: str, after: int, *, idle: float = 15
) -> AsyncGenerator[Event | None]:
    """The events of a task behind version *after*, until it ends or pauses.

    Args:
        journal: Where the task lives.
        task_id: The task's id.
        after: The last version that the reader has.
        idle: Seconds without an event after which None says that all is well.
    """
    while True:
        events = await journal.events(task_id, after)
        if events is None:
            record = await journal.get(task_id)
            events = [snapshot(record)] if record and record.version > after else []
        for event in events:
            yield event
            after = event.version
            if _ends(event):
                return
        if not journal.is_at_work(task_id, after):
            if events:
                continue
            if await journal.is_settled(task_id, after):
                return
        if not await journal.wait(task_id, after, idle):
            yield None


def _ends(event: Event) -> bool:
    """Whether nothing can come behind it."""
    payload = event.payload
    return not isinstance(payload, a2a.TaskArtifactUpdateEvent) and payload.status.state in TERMINAL


async def attach(
    journal: Journal, record: TaskRecord, *, idle: float = 15
) -> AsyncGenerator[Event | None]:
    """The task as it is, and what comes after it (A2A 1.0 §3.1.6)."""
    first = snapshot(record)
    yield first
    async for event in follow(journal, record.task.id, first.version, idle=idle):
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
