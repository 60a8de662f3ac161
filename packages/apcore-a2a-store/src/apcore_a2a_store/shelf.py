"""What the journal needs of a task store, and how it asks for tasks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from a2a import types as a2a
from a2a.utils.errors import PushNotificationNotSupportedError

from .records import TaskRecord
from .webhooks import Webhook

Order: TypeAlias = Literal["created", "updated"]


@dataclass(frozen=True, slots=True)
class Query:
    """What to list: newest first by creation, or by the last change of state."""

    owner: str
    context_id: str = ""
    state: int | None = None
    after: float | None = None
    order: Order = "created"
    cursor: str | None = None
    limit: int = 50

    def takes(self, owner: str, context_id: str, state: int, seconds: float) -> bool:
        """Whether a task is asked for, by what its store knows of it."""
        return (
            owner == self.owner
            and self.context_id in ("", context_id)
            and self.state in (None, state)
            and seconds >= (self.after or 0)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """A page of records. `total`, of all pages, is counted in the order "updated" alone."""

    records: list[TaskRecord]
    next_cursor: str | None
    total: int = 0


class Shelf(ABC):
    """What the journal keeps its records in: a task store that answers queries.

    Stores that list in their own way derive from it; others are read page by page.

    Attributes:
        keeps_webhooks: Whether it has a place for webhooks.
    """

    keeps_webhooks: ClassVar[bool] = False

    @abstractmethod
    async def save(self, record: TaskRecord) -> None:
        """Keep *record*, in place of the one with the same task id."""

    @abstractmethod
    async def get(self, task_id: str) -> TaskRecord | None:
        """A copy of the task's record, or None."""

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's.

        A store that can tell owners without reading the whole task does better than this one:
        the time that an answer takes shall not tell that somebody else has such a task.
        """
        record = await self.get(task_id)
        return record if record is not None and record.owner == owner else None

    @abstractmethod
    async def query(self, query: Query) -> Page:
        """A page of what *query* asks for."""

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[a2a.Message]:
        """The latest messages of the owner's conversation in a context, in their order.

        This one puts together those of its latest *limit* tasks, task by task. A store
        that knows in which order messages came does better.
        """
        page = await self.query(Query(owner, context_id, limit=limit))
        said = [message for record in page.records[::-1] for message in record.said()]
        return said[-limit:]

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        raise PushNotificationNotSupportedError

    async def save_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Keep these as the webhooks of a task, for as long as the task is kept."""
        raise PushNotificationNotSupportedError
