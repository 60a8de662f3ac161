"""Task records, and the interface of task stores that users bring (FR-STR-001)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from a2a import types as a2a

Version: TypeAlias = Literal["1.0", "0.3"]
Payload: TypeAlias = a2a.Task | a2a.TaskStatusUpdateEvent | a2a.TaskArtifactUpdateEvent
"""Content of a task event: the task itself, a change of its state, or of an artifact."""


@dataclass(slots=True)
class TaskRecord:
    """A task and the server's bookkeeping for it.

    Attributes:
        task: The task as clients see it.
        owner: The id of the principal that it belongs to; empty for anonymous callers.
        skill: The id of the skill that it runs.
        version: The number of its latest event.
        resume: The serialized call that a paused task resumes with.
        messages: The number of messages so far; the history may have only the latest ones.
        deadline: When a paused task stops accepting answers, in seconds since 1970.
    """

    task: a2a.Task
    owner: str = ""
    skill: str = ""
    version: int = 0
    resume: bytes | None = None
    messages: int = 0
    deadline: float | None = None

    @property
    def status_at(self) -> float:
        """Time of the latest change of state, in seconds since 1970."""
        timestamp = self.task.status.timestamp
        return timestamp.seconds + timestamp.nanos / 1e9

    def said(self) -> list[a2a.Message]:
        """Return the stored messages: the history, and the message of the current status."""
        status = self.task.status
        return [*self.task.history, *([status.message] if status.HasField("message") else [])]

    @property
    def first(self) -> int:
        """The number of messages before the history, which has only the latest ones."""
        return self.messages - len(self.said())

    def said_since(self, count: int) -> list[a2a.Message]:
        """Return the stored messages after the first *count* of the task."""
        return self.said()[count - self.messages :] if self.messages > count else []


MAX_BYTES = 1024 * 1024
"""Size limit for the history of a task or conversation, in bytes; its last message is exempt."""


def trim(task: a2a.Task, messages: int) -> None:
    """Drop the oldest messages, so that at most *messages* remain and they fit in MAX_BYTES."""
    history = task.history
    del history[:-messages]
    if len(history) > 1:
        del history[: surplus([message.ByteSize() for message in history])]


def surplus(sizes: Sequence[int]) -> int:
    """Return how many of the oldest messages to drop, so that the rest fit in MAX_BYTES.

    Args:
        sizes: Size of each message in bytes, oldest first.
    """
    total, count = sum(sizes), 0
    while total > MAX_BYTES and count < len(sizes) - 1:
        total -= sizes[count]
        count += 1
    return count


LARGE_MESSAGE = 4096
"""Bytes from which a message is kept once, and the history of a task has a gap in its place.

Smaller ones are cheaper to keep twice than to look up.
"""


def without_large(task: a2a.Task) -> a2a.Task:
    """Return the task with a gap, an empty message, for each large message of its history.

    Without large messages, that is the task itself; otherwise a copy.
    """
    if task.ByteSize() < LARGE_MESSAGE:
        return task
    large = [message.ByteSize() >= LARGE_MESSAGE for message in task.history]
    if not any(large):
        return task
    # not a copy of the whole task, which would copy the messages too
    slim = a2a.Task(id=task.id, context_id=task.context_id, artifacts=task.artifacts)
    slim.status.CopyFrom(task.status)
    if task.HasField("metadata"):
        slim.metadata.CopyFrom(task.metadata)
    empty = a2a.Message()
    slim.history.extend(
        empty if is_large else message
        for message, is_large in zip(task.history, large, strict=True)
    )
    return slim


def gaps(task: a2a.Task) -> list[int]:
    """Return the positions in the history at which a large message was left out."""
    # all other messages have parts: a message without any is refused
    return [index for index, message in enumerate(task.history) if not message.ByteSize()]


def fill(task: a2a.Task, messages: Sequence[a2a.Message | bytes], start: int) -> None:
    """Put large messages back into the history; a gap whose message is gone is removed.

    Args:
        task: The task, which is changed.
        messages: Messages of the task in their order, as objects or as bytes.
        start: The position in the history that the first of *messages* has.
    """
    for index in reversed(gaps(task)):
        if not 0 <= index - start < len(messages):
            del task.history[index]
            continue
        message = messages[index - start]
        if isinstance(message, bytes):
            task.history[index].ParseFromString(message)
        else:
            task.history[index].CopyFrom(message)


def shortened(task: a2a.Task, messages: int | None, *, artifacts: bool = True) -> a2a.Task:
    """Return the task with its latest *messages* (None: all), and optionally without artifacts."""
    surplus_count = 0 if messages is None else max(len(task.history) - messages, 0)
    if not surplus_count and artifacts:
        return task
    short = a2a.Task()
    short.CopyFrom(task)
    del short.history[:surplus_count]
    if not artifacts:
        del short.artifacts[:]
    return short


@dataclass(slots=True)
class TaskListResult:
    """A page of records; `next_cursor` is None on the last page."""

    records: list[TaskRecord]
    next_cursor: str | None = None


@runtime_checkable
class TaskStore(Protocol):
    """A store of tasks and their push configs (FR-STR-001)."""

    async def save(self, record: TaskRecord) -> None:
        """Save *record*, replacing an earlier one of the same task."""
        ...

    async def get(self, task_id: str) -> TaskRecord | None:
        """Return the record of the task, or None if there is none."""
        ...

    async def list(self, context_id: str | None, cursor: str | None, limit: int) -> TaskListResult:
        """Return up to *limit* records after *cursor*, newest tasks first.

        Args:
            context_id: Only tasks of this context; None for all.
            cursor: The `next_cursor` of the previous page; None for the first page.
            limit: The largest number of records to return.
        """
        ...

    async def delete(self, task_id: str) -> bool:
        """Delete the task; return whether it existed."""
        ...

    async def save_push_config(self, task_id: str, config: a2a.TaskPushNotificationConfig) -> None:
        """Save the push config of the task, replacing an earlier one."""
        ...

    async def get_push_config(self, task_id: str) -> a2a.TaskPushNotificationConfig | None:
        """Return the push config of the task, or None if there is none."""
        ...

    async def delete_push_config(self, task_id: str) -> bool:
        """Delete the push config of the task; return whether it existed."""
        ...
