"""Tasks in memory: the task store that needs nothing (FR-STR-002)."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from operator import attrgetter
from typing import Any

from a2a.types import Task, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError

from .errors import StoreFullError
from .journal import Page, Query, Shelf
from .records import TaskListResult, TaskRecord
from .states import TERMINAL


@dataclass(frozen=True, slots=True)
class _Slot:
    """One stored task: its bytes, and what listing asks for without reading them."""

    data: bytes
    rest: tuple[str, str, int, bytes | None]
    context_id: str
    state: int
    timestamp: float
    created: int
    updated: int
    expires: float | None

    def record(self) -> TaskRecord:
        return TaskRecord(Task.FromString(self.data), *self.rest)


class InMemoryTaskStore(Shelf):
    """Keeps tasks in a dict, as bytes, until they have ended and their time is over.

    Every method runs to its end without giving way to another, so that no lock is
    needed inside one event loop; records handed out are copies.

    Args:
        ttl: Seconds that a task is kept after it has ended.
        max_capacity: How many tasks are kept. When it is reached, expired tasks go
            first, then the oldest ended ones; tasks that have not ended stay.

    Example:
        ```python
        import asyncio

        from a2a.types import Task
        from apcore_a2a_store import InMemoryTaskStore, TaskRecord


        async def main() -> None:
            store = InMemoryTaskStore(ttl=60, max_capacity=100)
            await store.save(TaskRecord(Task(id="t1", context_id="c1")))
            page = await store.list("c1", None, 10)
            print([record.task.id for record in page.records], await store.delete("t1"))
            #> ['t1'] True


        asyncio.run(main())
        ```
    """

    def __init__(self, *, ttl: float = 3600, max_capacity: int = 10_000) -> None:
        self._ttl = ttl
        self._max_capacity = max_capacity
        self._slots: dict[str, _Slot] = {}
        self._contexts: dict[str, dict[str, None]] = {}
        self._by_update: dict[str, None] = {}
        self._by_end: dict[str, None] = {}
        self._push: dict[str, TaskPushNotificationConfig] = {}
        self._clock = count(1)
        self._sweep: asyncio.TimerHandle | None = None

    async def save(self, record: TaskRecord) -> None:
        """Store *record*, in place of the one with the same task id.

        Raises:
            StoreFullError: It is a new task, and the store is full of running ones.
        """
        task, status = record.task, record.task.status
        slot = self._slots.get(task.id)
        if slot is None and len(self._slots) >= self._max_capacity:
            self._make_room()
        updated = next(self._clock)
        self._slots[task.id] = _Slot(
            task.SerializeToString(),
            (record.owner, record.skill, record.version, record.resume),
            task.context_id,
            status.state,
            status.timestamp.seconds + status.timestamp.nanos / 1e9,
            slot.created if slot else updated,
            updated,
            time.monotonic() + self._ttl if status.state in TERMINAL else None,
        )
        self._index(task)

    async def get(self, task_id: str) -> TaskRecord | None:
        """A copy of the task's record; None when it is unknown or expired."""
        slot = self._slots.get(task_id)
        return None if slot is None or _expired(slot) else slot.record()

    async def list(
        self, context_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> TaskListResult:
        """A page of records, newest created first, of all owners."""
        slots, next_cursor = _page(self._newest(context_id or ""), "created", cursor, limit)
        return TaskListResult([slot.record() for slot in slots], next_cursor)

    async def query(self, query: Query) -> Page:
        """A page of what *query* asks for."""
        found: Iterable[_Slot] = (
            slot
            for slot in self._newest(query.context_id, query.order)
            if query.takes(slot.rest[0], slot.context_id, slot.state, slot.timestamp)
        )
        if query.order == "updated":
            found = [*found]
        page, next_cursor = _page(found, query.order, query.cursor, query.limit)
        total = len(found) if isinstance(found, list) else 0
        return Page([slot.record() for slot in page], next_cursor, total)

    async def delete(self, task_id: str) -> bool:
        """Forget a task; False when there is none."""
        known = task_id in self._slots
        if known:
            self._drop(task_id)
        return known

    async def save_push_config(self, task_id: str, config: TaskPushNotificationConfig) -> None:
        """Keep the task's webhook configuration."""
        self._push[task_id] = config

    async def get_push_config(self, task_id: str) -> TaskPushNotificationConfig | None:
        """The task's webhook configuration, if it has one."""
        return self._push.get(task_id)

    async def delete_push_config(self, task_id: str) -> bool:
        """Forget the task's webhook configuration; False when there is none."""
        return self._push.pop(task_id, None) is not None

    def __len__(self) -> int:
        return len(self._slots)

    def _index(self, task: Task) -> None:
        self._contexts.setdefault(task.context_id, {})[task.id] = None
        self._by_update.pop(task.id, None)
        self._by_update[task.id] = None
        if self._slots[task.id].expires is not None:
            self._by_end[task.id] = None
            if self._sweep is None:
                self._sweep_in(self._ttl)

    def _newest(self, context_id: str, order: str = "created") -> Iterator[_Slot]:
        ids: dict[str, Any] = self._by_update if order == "updated" else self._slots
        if context_id and order == "created":
            ids = self._contexts.get(context_id, {})
        slots = (self._slots[task_id] for task_id in reversed(ids))
        return (slot for slot in slots if not _expired(slot))

    def _make_room(self) -> None:
        oldest = next(iter(self._by_end), None)
        if oldest is None:
            raise StoreFullError
        self._drop(oldest)

    def _drop(self, task_id: str) -> None:
        slot = self._slots.pop(task_id)
        indexes: tuple[dict[str, Any], ...] = (self._push, self._by_update, self._by_end)
        for index in indexes:
            index.pop(task_id, None)
        context = self._contexts[slot.context_id]
        del context[task_id]
        if not context:
            del self._contexts[slot.context_id]

    def _sweep_in(self, seconds: float) -> None:
        self._sweep = asyncio.get_running_loop().call_later(seconds, self._on_sweep)

    def _on_sweep(self) -> None:
        """Drop what has expired, so that it leaves without traffic too."""
        self._sweep = None
        while self._by_end and _expired(self._slots[next(iter(self._by_end))]):
            self._drop(next(iter(self._by_end)))
        if self._by_end:
            next_end = self._slots[next(iter(self._by_end))].expires or 0
            self._sweep_in(max(next_end - time.monotonic(), self._ttl / 60))


def _expired(slot: _Slot) -> bool:
    return slot.expires is not None and slot.expires <= time.monotonic()


def _page(
    slots: Iterable[_Slot], order: str, cursor: str | None, limit: int
) -> tuple[list[_Slot], str | None]:
    """The next *limit* of *slots* behind *cursor*, and the cursor behind them."""
    number = attrgetter(order)
    if cursor is not None:
        behind = _number(cursor)
        slots = (slot for slot in slots if number(slot) < behind)
    page = list(islice(slots, limit + 1))
    more = len(page) > limit
    return page[:limit], str(number(page[limit - 1])) if more else None


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20):
        raise InvalidParamsError("Invalid page cursor")
    return int(cursor)
