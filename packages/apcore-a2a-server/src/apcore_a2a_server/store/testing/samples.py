"""Building blocks of the checks: tasks, changes, and assertions."""

from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import TypeAlias

from apcore_a2a_core.data import (
    Artifact,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    Timestamp,
)
from apcore_a2a_core.records import Payload, TaskRecord
from apcore_a2a_core.states import SUBMITTED, WORKING
from msgspec.structs import replace

from apcore_a2a_server.store.port import Change, Event, Lease, NewTask, SendKey, Store
from apcore_a2a_server.store.webhooks import Webhook

Check: TypeAlias = Callable[[Store], Awaitable[None]]

CHECKS: list[Check] = []
"""All checks, in the order of their definition."""

LEASE = 0.2
"""A short lease or delay, in seconds, for checks that wait until it is over."""


def new_record(task_id: str = "t1", owner: str = "ada", context_id: str = "c1") -> TaskRecord:
    """Return the record of a new task with one message."""
    message = Message(message_id=f"m-{task_id}", task_id=task_id, context_id=context_id)
    message.parts.append(Part(text=f"\x00 to {task_id}"))
    task = Task(id=task_id, context_id=context_id, history=[message])
    task.status.state = SUBMITTED
    return TaskRecord(task, owner, "skill", messages=1)


async def begun(
    store: Store,
    record: TaskRecord | None = None,
    webhooks: Sequence[Webhook] = (),
    key: SendKey | None = None,
) -> tuple[TaskRecord, Lease]:
    """Create a task in the state working, with two events; return its record and its lease."""
    record = record or new_record()
    submitted, working = deepcopy(record.task), _set_state(record, WORKING)
    record.version = 2
    events = [Event(1, submitted), Event(2, working)]
    return record, await store.create(NewTask(record, events, webhooks, key))


def state_change(
    record: TaskRecord,
    state: TaskState,
    lease: Lease | None = None,
    *,
    run: bool = False,
    restart: bool = False,
) -> Change:
    """Return a change of a task's state; *run* and *restart* mean the same as in `Change`."""
    next_record = _next_record(record)
    payload = _set_state(next_record, state)
    events = [Event(next_record.version, payload)]
    return Change(next_record, record.version, events, lease, run, restart=restart)


def chunk_change(record: TaskRecord, text: str, lease: Lease | None = None) -> Change:
    """Return a change that adds a chunk to the task's artifact."""
    next_record, is_first = _next_record(record), not record.task.artifacts
    artifact = Artifact(artifact_id="a", parts=[Part(text=text)])
    if is_first:
        next_record.task.artifacts.append(artifact)
    else:
        next_record.task.artifacts[0].parts.extend(artifact.parts)
    payload = TaskArtifactUpdateEvent(
        task_id=next_record.task.id,
        context_id=next_record.task.context_id,
        artifact=artifact,
        append=not is_first,
    )
    return Change(next_record, record.version, [Event(next_record.version, payload)], lease)


def _next_record(record: TaskRecord) -> TaskRecord:
    """Return a copy of a record with the next version, without `resume` and `deadline`."""
    task, version = deepcopy(record.task), record.version + 1
    return replace(record, task=task, version=version, resume=None, deadline=None)


def _set_state(record: TaskRecord, state: TaskState) -> Payload:
    """Set the state of a task; return the payload of the event that reports it."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    status = TaskStatus(state=state, timestamp=Timestamp(time.replace("+00:00", "Z")))
    record.task.status = status
    task = record.task
    return TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status)


def check(function: Check) -> Check:
    """Add a function to the checks."""
    CHECKS.append(function)
    return function


async def versions(store: Store, task_id: str, after: int = 0, limit: int = 1000) -> list[int]:
    """Return the versions of a task's events after version *after*."""
    events = await store.events(task_id, after, limit)
    assert events is not None, "some of the events were deleted"
    return [event.version for event in events]


async def raises(error_type: type[Exception], call: Awaitable[object]) -> None:
    """Assert that *call* raises an error of this type."""
    try:
        await call
    except error_type:
        return
    raise AssertionError(f"{error_type.__name__} was not raised")


async def stored_record(store: Store, task_id: str = "t1") -> TaskRecord:
    """Return the record of a task that must exist."""
    record = await store.get(task_id)
    assert record is not None, f"{task_id} is gone"
    return record
