"""The one function through which a task changes.

It holds the change against the state machine (FR-TSK-001), gives every event the
task's next version, and writes record and events to the journal in one go.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from a2a import types as a2a
from apcore_a2a_core import to_value
from apcore_a2a_store import Journal, Payload, TaskRecord, Webhook, trim
from apcore_a2a_store.states import NAMES, TRANSITIONS, WORKING

from .errors import InvalidStateTransitionError, StaleTaskError
from .shared.ids import new_id, now

logger = logging.getLogger(__name__)

MAX_STATES = 100
"""How many former states a task remembers."""


@dataclass(frozen=True, slots=True)
class NewState:
    """The task goes into `state`, with what there is to say about it."""

    state: a2a.TaskState
    message: a2a.Message | None = None
    received: a2a.Message | None = None
    resume: bytes | None = None


@dataclass(frozen=True, slots=True)
class NewParts:
    """The task's artifact gets the parts of `artifact`, or becomes it."""

    artifact: a2a.Artifact
    append: bool = False
    last: bool = False


Update = NewState | NewParts


def say(about: a2a.Message, *parts: str | a2a.Part) -> a2a.Message:
    """A message of the agent in the task of another message."""
    return a2a.Message(
        message_id=new_id(),
        task_id=about.task_id,
        context_id=about.context_id,
        role=a2a.Role.ROLE_AGENT,
        parts=[a2a.Part(text=part) if isinstance(part, str) else part for part in parts],
    )


async def create(journal: Journal, record: TaskRecord, webhooks: Sequence[Webhook]) -> None:
    """Store a new task: submitted, and at once working, as its first two events.

    Raises:
        StoreFullError: The task store has no room.
    """
    submitted = a2a.Task()
    submitted.CopyFrom(record.task)
    record.messages = len(submitted.history)
    working = _set_state(record, NewState(WORKING))
    await journal.create(record, [submitted, working], webhooks)


async def change(
    journal: Journal,
    task_id: str,
    *updates: Update,
    expect: Collection[a2a.TaskState],
    pause: bytes | None = None,
) -> TaskRecord:
    """Apply *updates* to a task, all or none, and return its new record.

    Args:
        journal: Where the task lives.
        task_id: The task's id.
        updates: What changes, in order; each becomes one event.
        expect: The states the task must be in for this change to make sense.
        pause: The paused call that the change is about, when it is about one.

    Raises:
        StaleTaskError: The task is in another state or pause (somebody was faster), or gone.
        InvalidStateTransitionError: The state machine has no such way.
    """
    entry = await journal.open(task_id)
    if entry is None:
        raise StaleTaskError
    async with entry.lock:
        record = entry.record
        if record.task.status.state not in expect or pause not in (None, record.resume):
            raise StaleTaskError
        record = _successor(record, updates)
        payloads: list[Payload] = [_apply(record, update) for update in updates]
        trim(record.task, journal.max_history)
        await journal.write(entry, record, payloads)
    return record


def _successor(record: TaskRecord, updates: tuple[Update, ...]) -> TaskRecord:
    """The record the updates are made in: a copy, unless parts are added to one of our own."""
    task = record.task
    if not all(isinstance(update, NewParts) and update.append for update in updates):
        task = a2a.Task()
        task.CopyFrom(record.task)
    return replace(record, task=task, version=record.version + len(updates))


def _apply(record: TaskRecord, update: Update) -> Payload:
    if isinstance(update, NewParts):
        return _add_parts(record.task, update)
    return _set_state(record, update)


def _set_state(record: TaskRecord, update: NewState) -> a2a.TaskStatusUpdateEvent:
    task = record.task
    if update.state not in TRANSITIONS.get(task.status.state, ()):
        logger.error("Task %s: no way from %s to %s", task.id, task.status.state, update.state)
        raise InvalidStateTransitionError
    status = a2a.TaskStatus(state=update.state, message=update.message, timestamp=now())
    if "apcore" in task.metadata:
        _remember(record)
    if task.status.HasField("message"):
        task.history.append(task.status.message)
    if update.received is not None:
        task.history.append(update.received)
    record.messages += (update.received is not None) + (update.message is not None)
    task.status.CopyFrom(status)
    record.resume = update.resume
    return a2a.TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status)


def _remember(record: TaskRecord) -> None:
    """Put the status that is about to pass into the state history (FR-TSK-002)."""
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


def _add_parts(task: a2a.Task, update: NewParts) -> a2a.TaskArtifactUpdateEvent:
    if update.append:
        task.artifacts[0].parts.extend(update.artifact.parts)
    else:
        del task.artifacts[:]
        task.artifacts.append(update.artifact)
    return a2a.TaskArtifactUpdateEvent(
        task_id=task.id,
        context_id=task.context_id,
        artifact=update.artifact,
        append=update.append,
        last_chunk=update.last,
    )
