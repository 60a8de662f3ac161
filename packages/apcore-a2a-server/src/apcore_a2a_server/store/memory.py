"""Tasks in memory: the task store that needs nothing (FR-STR-002)."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from operator import attrgetter
from typing import Any, TypeAlias

from a2a.types import Message, Task, TaskPushNotificationConfig
from apcore_a2a_core.records import TaskListResult, TaskRecord, surplus
from apcore_a2a_core.states import OPEN, TERMINAL

from .errors import StoreFullError
from .inprocess import InProcessStore
from .port import Page, Query, number_of
from .webhooks import Webhook

MAX_SCAN = 2000
"""How many ended tasks are looked at for one of the same owner, when there must be room."""

_Key: TypeAlias = tuple[str, str]
"""Of a conversation: its owner and its context id."""


@dataclass(slots=True)
class _Context:
    """One conversation: its tasks, oldest first, and its latest messages as bytes."""

    key: _Key
    tasks: list[str] = field(default_factory=list[str])
    messages: tuple[bytes, ...] = ()
    working: int = 0
    """How many of its tasks have not ended."""
    expires: float | None = None

    def is_over(self) -> bool:
        return self.expires is not None and self.expires <= time.monotonic()


@dataclass(slots=True)  # not frozen: one is made at every save, in a quarter of the time
class _Slot:
    """One stored task: its bytes, and what listing asks for without reading them."""

    data: bytes
    rest: tuple[str, str, int, bytes | None, int, float | None]
    context: _Context
    context_id: str
    state: int
    timestamp: float
    created: int
    updated: int

    def record(self) -> TaskRecord:
        return TaskRecord(Task.FromString(self.data), *self.rest)

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL

    def is_over(self) -> bool:
        return self.has_ended and self.context.is_over()


class InMemoryTaskStore(InProcessStore):
    """Keeps tasks in a dict, as bytes, until their conversation is over.

    A conversation is over when all its tasks have ended and their time has passed since the
    last end; then it leaves with all of them. Every method runs to its end without giving way
    to another, so that no lock is needed inside one event loop; what is handed out is copied.

    Args:
        ttl: Seconds that a conversation is kept after its tasks have ended.
        max_capacity: How many tasks are kept. When it is reached, expired tasks go
            first, then the oldest ended ones; tasks that have not ended stay.
        max_history: How many of its latest messages a conversation holds.

    Example:
        ```python
        import asyncio

        from a2a.types import Task
        from apcore_a2a_server.store import InMemoryTaskStore, TaskRecord


        async def main() -> None:
            store = InMemoryTaskStore(ttl=60, max_capacity=100)
            await store.save(TaskRecord(Task(id="t1", context_id="c1")))
            page = await store.list("c1", None, 10)
            print([record.task.id for record in page.records], await store.delete("t1"))
            #> ['t1'] True


        asyncio.run(main())
        ```
    """

    def __init__(
        self, *, ttl: float = 3600, max_capacity: int = 10_000, max_history: int = 100
    ) -> None:
        super().__init__()
        self._ttl = ttl
        self._max_capacity = max_capacity
        self._max_history = max_history
        self._slots: dict[str, _Slot] = {}
        self._contexts: dict[_Key, _Context] = {}
        self._by_update: dict[str, None] = {}
        # ordered, for in a dict the first key is found by passing over all that were deleted
        self._by_end: OrderedDict[str, None] = OrderedDict()
        self._over: OrderedDict[_Key, None] = OrderedDict()
        """The conversations without a working task, in the order in which they expire."""
        self._webhooks: dict[str, Sequence[Webhook]] = {}
        self._clock = count(1)
        self._sweep: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def save(self, record: TaskRecord) -> None:
        """Store *record*, in place of the one with the same task id.

        Raises:
            StoreFullError: It is a new task, and the store is full of running ones.
        """
        task = record.task
        slot = self._slots.get(task.id)
        if slot is None and len(self._slots) >= self._max_capacity:
            self._make_room(record.owner)
        context = slot.context if slot else self._context(record)
        updated = next(self._clock)
        new = self._slots[task.id] = _Slot(
            task.SerializeToString(),
            (
                record.owner,
                record.skill,
                record.version,
                record.resume,
                record.messages,
                record.deadline,
            ),
            context,
            task.context_id,
            task.status.state,
            record.status_at,
            slot.created if slot else updated,
            updated,
        )
        self._listen(context, record, slot.rest[4] if slot else 0)
        self._index(task.id, slot, new)

    async def get(self, task_id: str) -> TaskRecord | None:
        """A copy of the task's record; None when it is unknown or expired."""
        slot = self._slots.get(task_id)
        return None if slot is None or slot.is_over() else slot.record()

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's; one of others is not read."""
        slot = self._slots.get(task_id)
        return await self.get(task_id) if slot is not None and slot.rest[0] == owner else None

    async def list(
        self, context_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> TaskListResult:
        """A page of records, newest created first, of all owners."""
        found = (s for s in self._newest() if context_id in (None, "", s.context_id))
        slots, next_cursor = _page(found, "created", cursor, limit)
        return TaskListResult([slot.record() for slot in slots], next_cursor)

    async def query(self, query: Query) -> Page:
        """A page of what *query* asks for."""
        found: Iterable[_Slot] = (
            slot
            for slot in self._candidates(query)
            if query.takes(slot.rest[0], slot.context_id, slot.state, slot.timestamp)
        )
        if query.order == "updated":
            found = [*found]
        page, next_cursor = _page(found, query.order, query.cursor, query.limit)
        total = len(found) if isinstance(found, list) else 0
        return Page([slot.record() for slot in page], next_cursor, total)

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[Message]:
        """The latest messages of a conversation, in the order in which they came."""
        context = self._contexts.get((owner, context_id))
        if context is None or context.is_over():
            return []
        return [Message.FromString(data) for data in context.messages[-limit:]]

    async def delete(self, task_id: str) -> bool:
        """Forget a task; False when there is none."""
        known = task_id in self._slots
        if known:
            self._drop(task_id)
        return known

    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The task's webhooks, oldest first."""
        return self._webhooks.get(task_id, ())

    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Keep these as the task's webhooks."""
        self._webhooks.pop(task_id, None)
        if webhooks:
            self._webhooks[task_id] = tuple(webhooks)

    async def save_push_config(self, task_id: str, config: TaskPushNotificationConfig) -> None:
        """Keep this as the task's only webhook."""
        await self.save_webhooks(task_id, [Webhook(config)])

    async def get_push_config(self, task_id: str) -> TaskPushNotificationConfig | None:
        """The configuration of the task's oldest webhook, if it has one."""
        return next((webhook.config for webhook in await self.webhooks(task_id)), None)

    async def delete_push_config(self, task_id: str) -> bool:
        """Forget the task's webhooks; False when there are none."""
        known = bool(await self.webhooks(task_id))
        await self.save_webhooks(task_id, ())
        return known

    def __len__(self) -> int:
        return len(self._slots)

    def _context(self, record: TaskRecord) -> _Context:
        """The conversation that a new task belongs to; what is over begins anew."""
        key = (record.owner, record.task.context_id)
        context = self._contexts.get(key)
        if context is not None and context.is_over():
            self._forget(key)
            context = None
        if context is None:
            context = self._contexts[key] = _Context(key)
        context.tasks.append(record.task.id)
        context.working += 1
        return context

    def _listen(self, context: _Context, record: TaskRecord, known: int) -> None:
        """Keep the messages that the task has had since the last time."""
        if latest := record.said_since(known):
            said = [*context.messages, *(message.SerializeToString() for message in latest)]
            del said[: -self._max_history]
            context.messages = tuple(said[surplus([len(data) for data in said]) :])

    def _index(self, task_id: str, old: _Slot | None, new: _Slot) -> None:
        self._by_update.pop(task_id, None)
        self._by_update[task_id] = None
        context = new.context
        if new.has_ended and not (old and old.has_ended):
            self._by_end[task_id] = None
            context.working -= 1
        self._expire_later(context)

    def _expire_later(self, context: _Context) -> None:
        """A conversation is over some time after its last task has ended."""
        self._over.pop(context.key, None)
        context.expires = None
        if not context.working:
            context.expires = time.monotonic() + self._ttl
            self._over[context.key] = None
            if self._sweep is None or self._loop is not asyncio.get_running_loop():
                self._sweep_in(self._ttl)

    def _candidates(self, query: Query) -> Iterable[_Slot]:
        """The slots among which *query* may find something, in its order."""
        if not query.context_id:
            return self._newest(query.order)
        context = self._contexts.get((query.owner, query.context_id))
        if context is None or (not context.working and query.state in OPEN):
            return ()
        slots = [slot for name in context.tasks if not (slot := self._slots[name]).is_over()]
        return sorted(slots, key=attrgetter(query.order), reverse=True)

    def _newest(self, order: str = "created") -> Iterator[_Slot]:
        ids: dict[str, Any] = self._by_update if order == "updated" else self._slots
        slots = (self._slots[task_id] for task_id in reversed(ids))
        return (slot for slot in slots if not slot.is_over())

    def _make_room(self, owner: str) -> None:
        """Drop an ended task: one of the owner's own first, so that nobody pushes others out."""
        looked_at = islice(self._by_end, MAX_SCAN)
        own = (task_id for task_id in looked_at if self._slots[task_id].rest[0] == owner)
        oldest = next(own, None) or next(iter(self._by_end), None)
        if oldest is None:
            raise StoreFullError
        self._drop(oldest)

    def _drop(self, task_id: str) -> None:
        slot = self._take(task_id)
        slot.context.tasks.remove(task_id)
        slot.context.working -= not slot.has_ended
        if not slot.context.tasks:
            self._forget(slot.context.key)
        elif not slot.has_ended:
            self._expire_later(slot.context)

    def _forget(self, key: _Key) -> None:
        self._over.pop(key, None)
        for task_id in self._contexts.pop(key).tasks:
            self._take(task_id)

    def _take(self, task_id: str) -> _Slot:
        indexes: tuple[dict[str, Any], ...] = (self._webhooks, self._by_update, self._by_end)
        for index in indexes:
            index.pop(task_id, None)
        return self._slots.pop(task_id)

    def _sweep_in(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._sweep = self._loop.call_later(seconds, self._on_sweep)

    def _on_sweep(self) -> None:
        """Drop what is over, so that it leaves without traffic too."""
        self._sweep = None
        while self._over and self._contexts[next(iter(self._over))].is_over():
            self._forget(next(iter(self._over)))
        if self._over:
            expires = self._contexts[next(iter(self._over))].expires or 0
            self._sweep_in(max(expires - time.monotonic(), self._ttl / 60))


def _page(
    slots: Iterable[_Slot], order: str, cursor: str | None, limit: int
) -> tuple[list[_Slot], str | None]:
    """The next *limit* of *slots* behind *cursor*, and the cursor behind them."""
    number = attrgetter(order)
    if cursor is not None:
        behind = number_of(cursor)
        slots = (slot for slot in slots if number(slot) < behind)
    page = list(islice(slots, limit + 1))
    more = len(page) > limit
    return page[:limit], str(number(page[limit - 1])) if more else None
