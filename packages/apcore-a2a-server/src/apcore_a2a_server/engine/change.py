"""The one function through which a task changes, and the updates that it applies.

`change` compares what the caller expects with what the task is now, gives every event the task's
next version, and writes record and events in one go.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Protocol

from a2a import types as a2a
from apcore_a2a_core import to_value
from apcore_a2a_core.records import trim
from apcore_a2a_core.states import NAMES, TRANSITIONS, WORKING

from apcore_a2a_server.errors import InvalidStateTransitionError, StaleTaskError
from apcore_a2a_server.store import Lease, Payload, SendKey, StaleError, TaskRecord, Webhook
from apcore_a2a_server.store.live import LiveTasks
from apcore_a2a_server.store.port import fold

from .messages import now

logger = logging.getLogger(__name__)


class Update(Protocol):
    """A change of a task, which becomes one event."""

    def apply(self, record: TaskRecord) -> Payload:
        """Change the record's task, which is the caller's own; the event that tells of it."""
        ...


@dataclass(frozen=True, slots=True)
class NewState:
    """The task goes into `state`, with what there is to say about it, until `deadline` at most."""

    state: a2a.TaskState
    message: a2a.Message | None = None
    received: a2a.Message | None = None
    resume: bytes | None = None
    deadline: float | None = None

    def apply(self, record: TaskRecord) -> a2a.TaskStatusUpdateEvent:
        """Go into the state, if there is a way to it.

        Raises:
            InvalidStateTransitionError: The state machine has none.
        """
        task = record.task
        if self.state not in TRANSITIONS.get(task.status.state, ()):
            logger.error("Task %s: no way from %s to %s", task.id, task.status.state, self.state)
            raise InvalidStateTransitionError
        return set_status(record, self)


@dataclass(frozen=True, slots=True)
class NewParts:
    """The task's artifact gets the parts of `artifact`, or becomes it."""

    artifact: a2a.Artifact
    append: bool = False
    last: bool = False

    def apply(self, record: TaskRecord) -> a2a.TaskArtifactUpdateEvent:
        """Add the parts."""
        chunk = a2a.TaskArtifactUpdateEvent(
            task_id=record.task.id,
            context_id=record.task.context_id,
            artifact=self.artifact,
            append=self.append,
            last_chunk=self.last,
        )
        fold(record.task, chunk)
        return chunk


@dataclass(frozen=True, slots=True)
class Restart:
    """The task starts over; the artifacts it has made so far are dropped."""

    message: a2a.Message
    resume: bytes | None

    def apply(self, record: TaskRecord) -> a2a.TaskStatusUpdateEvent:
        """Begin anew, visibly."""
        del record.task.artifacts[:]
        return set_status(record, NewState(WORKING, self.message, resume=self.resume))


def set_status(record: TaskRecord, update: NewState) -> a2a.TaskStatusUpdateEvent:
    """Put what the task said last into its history, and the new status in its place."""
    task = record.task
    status = a2a.TaskStatus(state=update.state, message=update.message, timestamp=now())
    if "apcore" in task.metadata:
        remember(record)
    if task.status.HasField("message"):
        task.history.append(task.status.message)
    if update.received is not None:
        task.history.append(update.received)
    record.messages += (update.received is not None) + (update.message is not None)
    task.status.CopyFrom(status)
    record.resume, record.deadline = update.resume, update.deadline
    return a2a.TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status)


MAX_STATES = 100
"""How many former states a task remembers."""


def remember(record: TaskRecord) -> None:
    """Put the status that is about to pass into the state history."""
    status, apcore = record.task.status, record.task.metadata.fields["apcore"]
    passed: dict[str, object] = {
        "state": NAMES[status.state],
        "timestamp": status.timestamp.ToJsonString(),
        "principal": record.owner,
    }
    if status.message.parts:
        passed["message"] = status.message.parts[0].text
    history = apcore.struct_value.fields["stateHistory"].list_value
    history.values.append(to_value(passed))
    del history.values[:-MAX_STATES]


ATTEMPTS = 10
"""How often a change is made anew, when other processes have changed the task meanwhile."""


async def create(
    tasks: LiveTasks,
    record: TaskRecord,
    webhook: Webhook | None = None,
    key: SendKey | None = None,
) -> Lease:
    """Store a new task: submitted, and at once working, as its first two events.

    Returns:
        The right to run it.

    Raises:
        StoreFullError: The task store has no room.
        RepeatedError: The send that it comes from has come before.
    """
    submitted = a2a.Task()
    submitted.CopyFrom(record.task)
    record.messages = len(submitted.history)
    working = NewState(WORKING, resume=record.resume).apply(record)
    webhooks = () if webhook is None else (webhook,)
    return await tasks.create(record, [submitted, working], webhooks, key)


async def change(
    tasks: LiveTasks,
    task_id: str,
    *updates: Update,
    expect: Collection[a2a.TaskState],
    pause: bytes | None = None,
    lease: Lease | None = None,
    webhook: Webhook | None = None,
) -> TaskRecord:
    """Apply *updates* to a task, all or none, and return its new record.

    Args:
        tasks: Where the task lives.
        task_id: The task's id.
        updates: What changes, in order; each becomes one event.
        expect: The states the task must be in for this change to make sense.
        pause: The paused call that the change is about, when it is about one.
        lease: The right to run the task, of who makes the change because of that.
        webhook: What is added to the task's webhooks with the change, or not at all.

    Raises:
        StaleTaskError: The task is in another state or pause, or gone; or another replica
            runs it.
        InvalidStateTransitionError: The state machine has no such way.
        InvalidParamsError: The webhook is one too many.
    """
    for _ in range(ATTEMPTS):
        entry = await tasks.open(task_id)
        if entry is None:
            break
        async with entry.lock:
            record = entry.record
            stale = lease not in (entry.lease, None) or pause not in (None, record.resume)
            if stale or record.task.status.state not in expect:
                raise StaleTaskError
            record = _successor(record, updates)
            payloads = [update.apply(record) for update in updates]
            trim(record.task, tasks.max_history)
            try:
                await tasks.write(entry, record, payloads, webhook)
            except StaleError:  # another process has changed it: look again
                continue
            return record
    raise StaleTaskError


def _successor(record: TaskRecord, updates: tuple[Update, ...]) -> TaskRecord:
    """The record the updates are made in: a copy, unless parts are added to one of our own."""
    task = record.task
    if not all(isinstance(update, NewParts) and update.append for update in updates):
        task = a2a.Task()
        task.CopyFrom(record.task)
    return replace(record, task=task, version=record.version + len(updates))
