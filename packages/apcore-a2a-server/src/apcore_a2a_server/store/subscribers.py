"""Readers of a task's events: each is a position in the event log, not a queue.

A reader never delays the run. If the events after its position were deleted, it gets a snapshot of
the task; a reader can resume from the last id that it saw.
"""

from collections.abc import AsyncGenerator, Callable

from apcore_a2a_core.data import TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import PAUSED, SETTLED, TERMINAL, WORKING
from msgspec.structs import replace

from .live import LiveTasks
from .port import Event


async def follow(
    tasks: LiveTasks,
    task_id: str,
    after: int,
    *,
    until: frozenset[TaskState] = SETTLED,
    on_pause: Callable[[], None] | None = None,
    idle: float = 15,
) -> AsyncGenerator[Event | None]:
    """Yield the events of a task after version *after*, until the task is in a state of *until*.

    Args:
        tasks: The live tasks of this process.
        task_id: The task's id.
        after: The last version that the reader has.
        until: The states in which the stream ends: `SETTLED`, or `TERMINAL` to read on at a pause.
        on_pause: Called when the reader has all events of a paused task, perhaps repeatedly.
        idle: Seconds without an event after which None is yielded, as a sign of life.
    """
    while True:
        events = await tasks.events(task_id, after)
        if events is None:
            record = await tasks.get(task_id)
            events = [snapshot(record)] if record and record.version > after else []
        for event in events:
            yield event
            after = event.version
            if isinstance(event.payload, TaskArtifactUpdateEvent):
                continue
            if event.payload.status.state in TERMINAL:  # no event can follow
                return
        # If the task runs here, its next event will wake this reader. Otherwise read to the end of
        # the log, and only then look whether the task has ended or paused.
        if not _is_running_here(tasks, task_id, after):
            if events:
                continue
            state = await _state_at(tasks, task_id, after)
            if state is None or state in until:
                return
            if on_pause is not None and state in PAUSED:
                on_pause()
        if not await _wait(tasks, task_id, after, idle):
            yield None


def _is_running_here(tasks: LiveTasks, task_id: str, after: int) -> bool:
    """Return whether this process runs the task and has no event after *after* yet."""
    live = tasks.current(task_id)
    if live is None or live.record.version > after:
        return False
    return live.record.task.status.state not in SETTLED


async def _state_at(tasks: LiveTasks, task_id: str, after: int) -> TaskState | None:
    """Return the state of a task whose last event is *after*.

    Returns:
        The state; `WORKING` if the task has later events; None if the task has been deleted.
    """
    live = tasks.current(task_id)
    record = live.record if live is not None else None
    if record is None and tasks.store.is_durable:
        record = await tasks.store.get(task_id)
    if record is None:
        return None
    return record.task.status.state if record.version <= after else WORKING


async def _wait(tasks: LiveTasks, task_id: str, after: int, seconds: float) -> bool:
    """Wait until the task may be beyond version *after*; return False after *seconds*."""
    live = tasks.current(task_id)
    if live is not None and live.record.version > after:
        return True
    if live is None and not tasks.store.is_durable:
        return True
    return await tasks.waiters.wait(task_id, after, seconds)


async def attach(
    record: TaskRecord, events: AsyncGenerator[Event | None]
) -> AsyncGenerator[Event | None]:
    """Yield a snapshot of the task, and then the *events* after it (A2A 1.0 §3.1.6)."""
    yield snapshot(record)
    async for event in events:
        yield event


async def ending(record: TaskRecord) -> AsyncGenerator[Event | None]:
    """Yield the last status of a task that has ended (FR-MSG-006.4)."""
    task = record.task
    status = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
    yield Event(record.version, status)


def snapshot(record: TaskRecord) -> Event:
    """Return an event with the whole task as it is now."""
    # with lists of its own for the parts, to which a run adds chunks
    artifacts = [replace(each, parts=[*each.parts]) for each in record.task.artifacts]
    return Event(record.version, replace(record.task, artifacts=artifacts))
