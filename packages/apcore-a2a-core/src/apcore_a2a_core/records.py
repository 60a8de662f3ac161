"""What is kept of a task, and what a store of users must be able to do (FR-STR-001)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from a2a import types as a2a

Version: TypeAlias = Literal["1.0", "0.3"]
Payload: TypeAlias = a2a.Task | a2a.TaskStatusUpdateEvent | a2a.TaskArtifactUpdateEvent
"""Content of a task's event: the task itself, a change of its state, or of its artifact."""


@dataclass(slots=True)
class TaskRecord:
    """A task, and what the server has to know of it beside.

    Attributes:
        task: the task as clients see it.
        owner: the id of the principal that it belongs to; empty when nobody is known.
        skill: the id of the skill that it runs.
        version: the number of its latest change.
        resume: the call that a paused task goes on with.
        messages: how many messages it has had; its history may hold the latest only.
        deadline: when a paused call can't be answered any more, in seconds since 1970.
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
        """When the task came into its state, in seconds since 1970."""
        timestamp = self.task.status.timestamp
        return timestamp.seconds + timestamp.nanos / 1e9

    def said(self) -> list[a2a.Message]:
        """The messages of the task that are still known: its history, and what it says now."""
        status = self.task.status
        return [*self.task.history, *([status.message] if status.HasField("message") else [])]

    def said_since(self, known: int) -> list[a2a.Message]:
        """Return the messages of the task beyond its first *known* ones."""
        return self.said()[known - self.messages :] if self.messages > known else []


MAX_BYTES = 1024 * 1024
"""How large the history of a task and of a conversation may become, but for its last message."""


def trim(task: a2a.Task, messages: int) -> None:
    """Drop the oldest of the task's messages, so that it has at most so many, in MAX_BYTES."""
    history = task.history
    del history[:-messages]
    if len(history) > 1:
        del history[: surplus([message.ByteSize() for message in history])]


def surplus(sizes: Sequence[int]) -> int:
    """How many of the oldest have to go, so that the others have MAX_BYTES in all."""
    total, count = sum(sizes), 0
    while total > MAX_BYTES and count < len(sizes) - 1:
        total -= sizes[count]
        count += 1
    return count


def shortened(task: a2a.Task, messages: int | None, *, artifacts: bool = True) -> a2a.Task:
    """The task with its latest *messages* (None for all), and without artifacts if so wished."""
    more = 0 if messages is None else max(len(task.history) - messages, 0)
    if not more and artifacts:
        return task
    short = a2a.Task()
    short.CopyFrom(task)
    del short.history[:more]
    if not artifacts:
        del short.artifacts[:]
    return short


@dataclass(slots=True)
class TaskListResult:
    """A page of records; `next_cursor` is ``None`` on the last."""

    records: list[TaskRecord]
    next_cursor: str | None = None


@runtime_checkable
class TaskStore(Protocol):
    """Keeps tasks and their push configurations (FR-STR-001)."""

    async def save(self, record: TaskRecord) -> None:
        """Keep *record*, in place of an earlier one of the same task."""
        ...

    async def get(self, task_id: str) -> TaskRecord | None:
        """The record of the task, or ``None``."""
        ...

    async def list(self, context_id: str | None, cursor: str | None, limit: int) -> TaskListResult:
        """At most *limit* records after *cursor*, newest created first, of one context or all."""
        ...

    async def delete(self, task_id: str) -> bool:
        """Forget the task; returns whether there was one."""
        ...

    async def save_push_config(self, task_id: str, config: a2a.TaskPushNotificationConfig) -> None:
        """Keep where the task's events are to be sent."""
        ...

    async def get_push_config(self, task_id: str) -> a2a.TaskPushNotificationConfig | None:
        """Where the task's events are to be sent, or ``None``."""
        ...

    async def delete_push_config(self, task_id: str) -> bool:
        """Forget where the task's events are to be sent; returns whether that was known."""
        ...
