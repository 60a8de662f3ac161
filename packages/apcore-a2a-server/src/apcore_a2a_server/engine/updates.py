"""What can change about a task."""

import logging
from dataclasses import dataclass
from typing import Protocol

from a2a import types as a2a
from apcore_a2a_core import to_value
from apcore_a2a_core.states import NAMES, TRANSITIONS, WORKING

from apcore_a2a_server.errors import InvalidStateTransitionError
from apcore_a2a_server.store import Payload, TaskRecord, fold

from .messages import now

logger = logging.getLogger(__name__)


class Update(Protocol):
    """What changes about a task; each is one event."""

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
