"""What can change about a task."""

import logging
from dataclasses import dataclass
from typing import Protocol

from a2a import types as a2a
from apcore_a2a_store import Payload, TaskRecord, fold
from apcore_a2a_store.states import TRANSITIONS

from apcore_a2a_server.errors import InvalidStateTransitionError

from .history import remember
from .ids import now

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
