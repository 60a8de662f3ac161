"""Readers of a task's events: each reader is a position in the event log, not a queue.

A reader never delays the task's run. If the events after its position were deleted, it gets a
snapshot of the task. A reader can resume from the last version that it saw.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

from apcore_a2a_core.data import TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import PAUSED, SETTLED, TERMINAL, WORKING
from msgspec.structs import replace

from .live import LiveTasks, Waiter
from .port import Event

EventBatches: TypeAlias = AsyncGenerator[Sequence[Event]]
"""A stream of events; each item is a batch of consecutive events.

An empty batch is a keep-alive: it follows a time without events.
"""


async def follow(
    tasks: LiveTasks,
    task_id: str,
    after: int,
    *,
    first: Event | None = None,
    until: frozenset[TaskState] = SETTLED,
    on_pause: Callable[[], None] | None = None,
    idle: float = 15,
) -> EventBatches:
    """Yield the events of a task after version *after*, until its state is one of *until*.

    Args:
        tasks: The live tasks of this process.
        task_id: The task's id.
        after: The last version that the reader has.
        first: An event to begin with: a snapshot of the task at version *after*.
        until: The states in which the stream ends: `SETTLED`, or `TERMINAL` to go on after a pause.
            The stream also ends if the task is deleted.
        on_pause: Called whenever the reader of a paused task begins to wait for more events.
        idle: Seconds without an event after which a keep-alive is yielded.
    """
    if first is not None:
        yield (first,)
        first = None
    with Waiter(tasks.waiters, task_id, after, idle) as waiter:
        while True:
            events = await tasks.events(task_id, waiter.after)
            if events is None:
                record = await tasks.get(task_id)
                events = [snapshot(record)] if record and record.version > waiter.after else []
            if events:
                waiter.after = events[-1].version
                yield events
                if _is_end(events[-1]):
                    return
            # If the task runs here, its next event will wake this reader. Otherwise read to the end
            # of the log, and only then check whether the task has ended or paused.
            live = tasks.current(task_id)
            if live is not None and live.record.version > waiter.after:
                continue
            if live is None or live.record.task.status.state in SETTLED:
                if events:
                    continue
                state = await _state_at(tasks, task_id, waiter.after)
                if state is None or state in until:
                    return
                if on_pause is not None and state in PAUSED:
                    on_pause()
            del events  # they may be large, and the wait long
            if not await waiter.wait():
                yield ()


def _is_end(event: Event) -> bool:
    """Return whether an event is the last one of its task."""
    payload = event.payload
    if isinstance(payload, TaskArtifactUpdateEvent):
        return False
    return payload.status.state in TERMINAL


async def _state_at(tasks: LiveTasks, task_id: str, after: int) -> TaskState | None:
    """Return the state of a task, for a reader whose last version is *after*.

    Returns:
        The state; `WORKING` if the task has later events, so that the reader reads on; None if the
        task was deleted, or if it is not live and the store is not durable.
    """
    live = tasks.current(task_id)
    record = live.record if live is not None else None
    if record is None and tasks.store.is_durable:
        record = await tasks.store.get(task_id)
    if record is None:
        return None
    return record.task.status.state if record.version <= after else WORKING


async def last_status(record: TaskRecord) -> EventBatches:
    """Yield the last status of a task that has ended (FR-MSG-006.4)."""
    task = record.task
    status = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
    yield [Event(record.version, status)]


def snapshot(record: TaskRecord) -> Event:
    """Return an event with the whole task as it is now."""
    # a run adds chunks to the lists of parts, so the snapshot has copies of these lists
    artifacts = [replace(artifact, parts=[*artifact.parts]) for artifact in record.task.artifacts]
    return Event(record.version, replace(record.task, artifacts=artifacts))
