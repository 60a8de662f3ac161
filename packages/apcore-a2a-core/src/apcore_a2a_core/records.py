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
