"""Task records, and the interface of task stores that users bring (FR-STR-001)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from a2a.types import Task as SdkTask
from msgspec import UNSET, Struct
from msgspec.structs import replace

from .data import (
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatusUpdateEvent,
)
from .sdk import from_sdk, to_sdk
from .values import is_large, read_json, size_of, text_size

Version: TypeAlias = Literal["1.0", "0.3"]
"""Version of the A2A protocol."""
Payload: TypeAlias = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""Content of a task event: the task itself, a change of its state, or a change of an artifact."""


class TaskRecord(Struct, gc=False):
    """A task and the server's bookkeeping for it.

    Attributes:
        task: The task as clients see it.
        owner: The principal that the task belongs to, with the tenant if there is one. Empty if
            there is neither.
        skill: The id of the skill that the task runs.
        version: The number of the latest event.
        resume: The call or pause, serialized, from which the task can continue.
        messages: The number of messages so far; the history may have only the latest ones.
        deadline: When a paused task stops accepting answers, in seconds since 1970.
    """

    task: Task
    owner: str = ""
    skill: str = ""
    version: int = 0
    resume: bytes | None = None
    messages: int = 0
    deadline: float | None = None

    @classmethod
    def of(cls, task: SdkTask, **members: Any) -> "TaskRecord":
        """Return a record of a task of the SDK.

        Args:
            task: The task.
            **members: Other attributes of the record.

        Raises:
            ValueError: The task has an unknown state or role, or a number that is not finite.
        """
        return cls(from_sdk(task), **members)

    def as_a2a(self) -> SdkTask:
        """Return the task in the type of the SDK.

        >>> TaskRecord(Task(id="t1")).as_a2a().id
        't1'
        """
        task: SdkTask = to_sdk(self.task)
        return task

    @property
    def status_at(self) -> float:
        """Time of the latest change of state, in seconds since 1970."""
        return seconds_of(self.task.status.timestamp)

    def stored_messages(self) -> list[Message]:
        """Return the stored messages: the history, and the message of the current status."""
        message = self.task.status.message
        return [*self.task.history, *([] if message is None else [message])]

    @property
    def first(self) -> int:
        """Position of the first stored message in the task; negative if `messages` is not set."""
        return self.messages - len(self.stored_messages())

    def messages_after(self, count: int) -> list[Message]:
        """Return the stored messages that come after the first *count* messages of the task."""
        return self.stored_messages()[count - self.messages :] if self.messages > count else []


def seconds_of(timestamp: str) -> float:
    """Return a timestamp as seconds since 1970; 0 for an empty one.

    >>> seconds_of("1970-01-02T00:00:00.500Z")
    86400.5
    """
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0


MAX_HISTORY_BYTES = 1024 * 1024
"""Size limit for the history of a task or conversation, in bytes; its last message always stays."""


def trim(task: Task, max_messages: int) -> None:
    """Drop the oldest messages: keep at most *max_messages*, within MAX_HISTORY_BYTES."""
    latest = task.history[-max_messages:]
    if len(latest) > 1:
        del latest[: surplus([size_of(message) for message in latest])]
    task.history = latest


def surplus(sizes: Sequence[int]) -> int:
    """Return how many of the oldest messages to drop, so that the rest fit in MAX_HISTORY_BYTES.

    Args:
        sizes: Size of each message in bytes, oldest first.
    """
    total, count = sum(sizes), 0
    while total > MAX_HISTORY_BYTES and count < len(sizes) - 1:
        total -= sizes[count]
        count += 1
    return count


LARGE_MESSAGE = 4096
"""Minimum size in bytes of a message that its task and its conversation share in the store.

In the history of the task, a gap replaces the message. Smaller messages are cheaper to store twice
than to look up.
"""

GAP = Message()
"""Placeholder for a large message in the stored form of a history."""


def is_large_message(message: Message) -> bool:
    """Return whether a message takes at least LARGE_MESSAGE bytes as JSON."""
    # check the content first, because converting a long message to JSON takes long
    return _is_long(message) or size_of(message) >= LARGE_MESSAGE


def _is_long(message: Message) -> bool:
    """Return whether the content of any part has at least LARGE_MESSAGE characters."""
    for part in message.parts:  # noqa: SIM110  # `any` would make a generator for each message
        if content_size(part, LARGE_MESSAGE) >= LARGE_MESSAGE:
            return True
    return False


def content_size(part: Part, limit: float = inf) -> int:
    """Return the number of characters in the text, base64 or data (see `text_size`) of a part."""
    if part.data is UNSET:
        return len(part.text or part.raw or "")
    return text_size(part.data, limit)


def estimated_size(task: Task) -> int:
    """Return the size of a task as JSON, in bytes; the size of long messages is estimated."""
    for message in task.history:
        if _is_long(message):
            break
    else:
        return size_of(task)
    long_messages = [message for message in task.history if _is_long(message)]
    short_messages = [message for message in task.history if not _is_long(message)]
    sizes = (_contents_size(_contents(message)) for message in long_messages)
    return size_of(replace(task, history=short_messages)) + sum(sizes)


def _contents_size(contents: list[Any]) -> int:
    """Return the exact size if there are many values, else only the number of characters."""
    return size_of(contents) if is_large(contents) else text_size(contents)


def _contents(message: Message) -> list[Any]:
    """Return the texts, files and data of a message."""
    return [
        content
        for part in message.parts
        for content in (part.text, part.raw, part.data)
        if content is not UNSET
    ]


def without_large(task: Task) -> Task:
    """Return the task with a gap, an empty message, in place of each large message of its history.

    A task without large messages is returned as it is, not copied.
    """
    are_large = [is_large_message(message) for message in task.history]
    if not any(are_large):
        return task
    history = zip(task.history, are_large, strict=True)
    return replace(task, history=[GAP if large else message for message, large in history])


def gaps(task: Task) -> list[int]:
    """Return the positions in the history at which a large message was left out."""
    # messages without parts are refused, so only gaps have none
    return [index for index, message in enumerate(task.history) if message == GAP]


def fill(task: Task, messages: Sequence[Message | bytes], start: int) -> None:
    """Put large messages back into the history; a gap whose message is gone is removed.

    Args:
        task: The task, which gets a new history.
        messages: Messages of the task in their order, as objects or as bytes.
        start: The position of the first of *messages* in the history.
    """
    history: list[Message] = []
    for index, message in enumerate(task.history):
        if message != GAP:
            history.append(message)
        elif 0 <= index - start < len(messages):
            stored = messages[index - start]
            history.append(read_json(Message, stored) if isinstance(stored, bytes) else stored)
    task.history = history


def shortened(task: Task, max_messages: int | None, *, artifacts: bool = True) -> Task:
    """Return a task with its latest *max_messages* (None: all), optionally without artifacts."""
    surplus_count = 0 if max_messages is None else max(len(task.history) - max_messages, 0)
    if not surplus_count and artifacts:
        return task
    return replace(
        task,
        history=task.history[surplus_count:],
        artifacts=task.artifacts if artifacts else [],
    )


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

    async def save_push_config(self, task_id: str, config: TaskPushNotificationConfig) -> None:
        """Save the push config of the task, replacing an earlier one."""
        ...

    async def get_push_config(self, task_id: str) -> TaskPushNotificationConfig | None:
        """Return the push config of the task, or None if there is none."""
        ...

    async def delete_push_config(self, task_id: str) -> bool:
        """Delete the push config of the task; return whether it existed."""
        ...
