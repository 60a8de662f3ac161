"""Building blocks of the checks: tasks, changes as a server makes them, and assertions."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from a2a import types as a2a
from apcore_a2a_core.records import Payload, TaskRecord
from apcore_a2a_core.states import SUBMITTED, WORKING

from apcore_a2a_server.store.port import Change, Event, Lease, NewTask, SendKey, Store
from apcore_a2a_server.store.webhooks import Webhook

Check: TypeAlias = Callable[[Store], Awaitable[None]]

CHECKS: list[Check] = []
"""All of them."""

LEASE = 0.2
"""Seconds that leases last in these checks."""


def new_record(task_id: str = "t1", owner: str = "ada", context_id: str = "c1") -> TaskRecord:
    """A task as it is before it is stored, with one message."""
    message = a2a.Message(message_id=f"m-{task_id}", task_id=task_id, context_id=context_id)
    message.parts.append(a2a.Part(text=f"\x00 to {task_id}"))
    task = a2a.Task(id=task_id, context_id=context_id, history=[message])
    task.status.state = SUBMITTED
    return TaskRecord(task, owner, "skill", messages=1)


async def begun(
    store: Store,
    record: TaskRecord | None = None,
    webhooks: Sequence[Webhook] = (),
    key: SendKey | None = None,
) -> tuple[TaskRecord, Lease]:
    """A task that works: two events, and the lease of who runs it."""
    record = record or new_record()
    submitted, working = _copy(record.task), _status(record, WORKING)
    record.version = 2
    events = [Event(1, submitted), Event(2, working)]
    return record, await store.create(NewTask(record, events, webhooks, key))


def went_on(
    record: TaskRecord, state: a2a.TaskState, lease: Lease | None = None, *, run: bool = False
) -> Change:
    """A change of a task's state."""
    after = _successor(record)
    payload = _status(after, state)
    return Change(after, record.version, [Event(after.version, payload)], lease, run)


def said_more(record: TaskRecord, text: str, lease: Lease | None = None) -> Change:
    """One more chunk of the task's artifact."""
    after, first = _successor(record), not record.task.artifacts
    artifact = a2a.Artifact(artifact_id="a", parts=[a2a.Part(text=text)])
    if first:
        after.task.artifacts.append(artifact)
    else:
        after.task.artifacts[0].parts.extend(artifact.parts)
    payload = a2a.TaskArtifactUpdateEvent(
        task_id=after.task.id,
        context_id=after.task.context_id,
        artifact=artifact,
        append=not first,
    )
    return Change(after, record.version, [Event(after.version, payload)], lease)


def _successor(record: TaskRecord) -> TaskRecord:
    task, version = _copy(record.task), record.version + 1
    return TaskRecord(task, record.owner, record.skill, version, None, record.messages)


def _copy(task: a2a.Task) -> a2a.Task:
    copy = a2a.Task()
    copy.CopyFrom(task)
    return copy


def _status(record: TaskRecord, state: a2a.TaskState) -> Payload:
    status = a2a.TaskStatus(state=state)
    status.timestamp.GetCurrentTime()
    record.task.status.CopyFrom(status)
    task = record.task
    return a2a.TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status)


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


async def versions(store: Store, task_id: str, after: int = 0, limit: int = 1000) -> list[int]:
    events = await store.events(task_id, after, limit)
    assert events is not None, "the log does not reach back so far"
    return [event.version for event in events]


async def raises(error: type[Exception], call: Awaitable[object]) -> None:
    try:
        await call
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


async def kept(store: Store, task_id: str = "t1") -> TaskRecord:
    record = await store.get(task_id)
    assert record is not None, f"{task_id} is gone"
    return record
