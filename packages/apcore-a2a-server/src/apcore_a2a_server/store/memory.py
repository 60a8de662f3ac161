"""Tasks in memory: the default task store (FR-STR-002)."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from itertools import count, islice
from operator import attrgetter
from secrets import token_bytes
from typing import Any, TypeAlias

from apcore_a2a_core.data import Message, Task, TaskPushNotificationConfig, TaskState
from apcore_a2a_core.records import (
    LARGE_MESSAGE,
    TaskListResult,
    TaskRecord,
    gaps,
    surplus,
    without_large,
)
from apcore_a2a_core.states import OPEN, TERMINAL
from apcore_a2a_core.values import dump_json, read_json

from .exceptions import StoreFullError
from .inprocess import InProcessStore
from .page_tokens import KEY_SIZE, PageTokens
from .queries import Order, Page, Query, parse_cursor
from .webhooks import Webhook

MAX_SCAN = 2000
"""Ended tasks that are searched for one of the same owner when the store is full."""

_other_fields = attrgetter("owner", "skill", "version", "resume", "messages", "deadline")
"""Returns the fields of a record after its task, in their order."""

_ContextKey: TypeAlias = tuple[str, str]
"""The owner and the context id of a conversation."""


@dataclass(slots=True)
class _Context:
    """A conversation: its tasks, oldest first, and its latest messages."""

    key: _ContextKey
    tasks: list[str] = field(default_factory=list[str])
    messages: tuple[tuple[str, bytes], ...] = ()
    """Each with the id of its task."""
    open_tasks: int = 0
    """The number of its tasks that have not ended."""
    expires: float | None = None

    @property
    def bodies(self) -> list[bytes]:
        """Its messages as bytes."""
        return [body for _, body in self.messages]

    @property
    def size(self) -> int:
        """The number of bytes of its small messages; large ones are counted once for all."""
        return sum(len(body) for body in self.bodies if len(body) < LARGE_MESSAGE)

    def has_expired(self) -> bool:
        return self.expires is not None and self.expires <= time.monotonic()


@dataclass(slots=True)  # not frozen: one is made at every save, in a quarter of the time
class _Slot:
    """A stored task: its bytes, and values for queries that need not read them.

    Attributes:
        data: the task, with gaps for the large messages of its history.
        large: these messages; its conversation has the same objects.
    """

    data: bytes
    large: tuple[bytes, ...]
    other_fields: tuple[str, str, int, bytes | None, int, float | None]
    context: _Context
    context_id: str
    state: TaskState
    timestamp: float
    created: int
    updated: int

    def record(self) -> TaskRecord:
        task = read_json(Task, self.data)
        for index, body in zip(gaps(task) if self.large else (), self.large, strict=True):
            task.history[index] = read_json(Message, body)
        return TaskRecord(task, *self.other_fields)

    @property
    def size(self) -> int:
        """The number of bytes that it takes, without large messages: these are counted once."""
        return len(self.data) + len(self.other_fields[3] or b"")

    @property
    def owner(self) -> str:
        return self.other_fields[0]

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL

    def has_expired(self) -> bool:
        return self.has_ended and self.context.has_expired()


class _LargeMessages:
    """Counts large messages, each of which a task and its conversation may share.

    Attributes:
        bytes: the number of bytes of all messages that are in use.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._uses: Counter[int] = Counter()

    def replace(self, old: Iterable[bytes], new: Iterable[bytes]) -> None:
        """Count the messages that a task or a conversation has now instead of others."""
        for body in new:
            if len(body) >= LARGE_MESSAGE:
                self.bytes += 0 if self._uses[id(body)] else len(body)
                self._uses[id(body)] += 1
        for body in old:
            if len(body) >= LARGE_MESSAGE:
                self._uses[id(body)] -= 1
                if not self._uses[id(body)]:
                    del self._uses[id(body)]
                    self.bytes -= len(body)


class InMemoryTaskStore(InProcessStore):
    """A store that keeps tasks in a dict, as bytes, until their conversation expires.

    A conversation expires `ttl` seconds after the last of its tasks has ended; all of its tasks
    are then deleted. No method of this class awaits between its first and last access, so one
    event loop needs no lock. Records are copied on the way out.

    Args:
        ttl: Seconds that a conversation is kept after its tasks have ended.
        max_capacity: How many tasks are kept. When it is reached, expired tasks are deleted
            first, then the oldest ended ones; tasks that have not ended stay.
        max_history: How many of its latest messages a conversation keeps.

    Example:
        ```python
        import asyncio

        from apcore_a2a_core.data import Task
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

    counts_tasks = True

    def __init__(
        self, *, ttl: float = 3600, max_capacity: int = 10_000, max_history: int = 100
    ) -> None:
        super().__init__()
        self._page_tokens = PageTokens(token_bytes(KEY_SIZE))
        self._ttl = ttl
        self._max_capacity = max_capacity
        self._max_history = max_history
        self._slots: dict[str, _Slot] = {}
        self._contexts: dict[_ContextKey, _Context] = {}
        self._by_update: dict[str, None] = {}
        # An OrderedDict finds its first key at once; a dict passes over all deleted ones.
        self._by_end: OrderedDict[str, None] = OrderedDict()
        self._expiring: OrderedDict[_ContextKey, None] = OrderedDict()
        """Conversations whose tasks have all ended, in the order in which they expire."""
        self._webhooks: dict[str, Sequence[Webhook]] = {}
        self._bytes = 0
        self._large = _LargeMessages()
        self._clock = count(1)
        self._sweep: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def save(self, record: TaskRecord) -> None:
        """Store *record*; it replaces the one with the same task id.

        Raises:
            StoreFullError: It is a new task, and the store is full of tasks that have not ended.
        """
        task = record.task
        old_slot = self._slots.get(task.id)
        if old_slot is None and len(self._slots) >= self._max_capacity:
            self._make_room(record.owner)
        context = old_slot.context if old_slot else self._join_context(record)
        updated = next(self._clock)
        self._add_messages(context, record, old_slot.other_fields[4] if old_slot else 0)
        slim_task = without_large(task)
        new_slot = self._slots[task.id] = _Slot(
            dump_json(slim_task),
            () if slim_task is task else _large_messages(task, context, old_slot),
            _other_fields(record),
            context,
            task.context_id,
            task.status.state,
            record.status_at,
            old_slot.created if old_slot else updated,
            updated,
        )
        self._bytes += new_slot.size - (old_slot.size if old_slot else 0)
        self._large.replace(old_slot.large if old_slot else (), new_slot.large)
        self._index(task.id, old_slot, new_slot)

    async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
        """Return a copy of the record; None if it is unknown, expired, or not the owner's."""
        slot = self._slots.get(task_id)
        if slot is None or slot.has_expired() or owner not in (None, slot.owner):
            return None
        return slot.record()

    async def list(
        self, context_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> TaskListResult:
        """Return a page of records of all owners, newest created first."""
        position = None if cursor is None else parse_cursor(cursor)
        candidates = (slot for slot in self._newest() if context_id in (None, "", slot.context_id))
        slots, next_position = _page(candidates, "created", position, limit)
        next_cursor = None if next_position is None else str(next_position)
        return TaskListResult([slot.record() for slot in slots], next_cursor)

    async def query(self, query: Query) -> Page:
        """Return a page of the tasks that match *query*."""
        matching: Iterable[_Slot] = (
            slot
            for slot in self._candidates(query)
            if query.matches(slot.owner, slot.context_id, slot.state, slot.timestamp)
        )
        if query.order == "updated":
            matching = [*matching]
        position = self._page_tokens.open(query)
        slots, next_position = _page(matching, query.order, position, query.limit)
        next_cursor = (
            None if next_position is None else self._page_tokens.seal(query, next_position)
        )
        total = len(matching) if isinstance(matching, list) else 0
        return Page([slot.record() for slot in slots], next_cursor, total)

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[Message]:
        """Return the latest messages of a conversation, oldest first."""
        context = self._contexts.get((owner, context_id))
        if context is None or context.has_expired():
            return []
        return [read_json(Message, body) for body in context.bodies[-limit:]]

    async def delete(self, task_id: str) -> bool:
        """Delete a task; return False if there is none."""
        exists = task_id in self._slots
        if exists:
            self._drop(task_id)
        return exists

    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the task's webhooks, oldest first."""
        return self._webhooks.get(task_id, ())

    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Replace the task's webhooks."""
        self._webhooks.pop(task_id, None)
        if webhooks:
            self._webhooks[task_id] = tuple(webhooks)

    async def save_push_config(self, task_id: str, config: TaskPushNotificationConfig) -> None:
        """Replace all webhooks of the task by one."""
        await self.save_webhooks(task_id, [Webhook(config)])

    async def get_push_config(self, task_id: str) -> TaskPushNotificationConfig | None:
        """Return the push config of the task's oldest webhook; None if there is none."""
        return next((webhook.config for webhook in await self.webhooks(task_id)), None)

    async def delete_push_config(self, task_id: str) -> bool:
        """Delete the task's webhooks; return False if there are none."""
        exists = bool(await self.webhooks(task_id))
        await self.save_webhooks(task_id, ())
        return exists

    @property
    def kept_bytes(self) -> int:
        """The bytes of all tasks, events, conversations and notifications."""
        return super().kept_bytes + self._bytes + self._large.bytes

    def evict(self, size: int, owner: str, kept_ids: Container[str]) -> None:
        """Delete ended tasks until *size* bytes are free, if possible those of *owner*."""
        most = self.kept_bytes - size
        ended_ids = [task_id for task_id in self._by_end if task_id not in kept_ids]
        own_ids = [task_id for task_id in ended_ids if self._slots[task_id].owner == owner]
        for task_id in dict.fromkeys([*own_ids, *ended_ids]):
            if self.kept_bytes <= most:
                return
            self._evict(task_id)
            self.drop_log(task_id)

    def __len__(self) -> int:
        return len(self._slots)

    def _join_context(self, record: TaskRecord) -> _Context:
        """Return the conversation of a new task; an expired one starts again."""
        key = (record.owner, record.task.context_id)
        context = self._contexts.get(key)
        if context is not None and context.has_expired():
            self._drop_context(key)
            context = None
        if context is None:
            context = self._contexts[key] = _Context(key)
        context.tasks.append(record.task.id)
        context.open_tasks += 1
        return context

    def _add_messages(self, context: _Context, record: TaskRecord, known_count: int) -> None:
        """Add the task's new messages to its conversation; *known_count* of them are not new."""
        if new_messages := record.said_since(known_count):
            task_id = record.task.id
            bodies = [(task_id, dump_json(message)) for message in new_messages]
            latest = [*context.messages, *bodies][-self._max_history :]
            latest = latest[surplus([len(body) for _, body in latest]) :]
            self._set_messages(context, tuple(latest))

    def _set_messages(self, context: _Context, messages: tuple[tuple[str, bytes], ...]) -> None:
        old_bodies = context.bodies
        self._bytes -= context.size
        context.messages = messages
        self._bytes += context.size
        self._large.replace(old_bodies, context.bodies)

    def _index(self, task_id: str, old_slot: _Slot | None, new_slot: _Slot) -> None:
        self._by_update.pop(task_id, None)
        self._by_update[task_id] = None
        context = new_slot.context
        if new_slot.has_ended and not (old_slot and old_slot.has_ended):
            self._by_end[task_id] = None
            context.open_tasks -= 1
        self._set_expiry(context)

    def _set_expiry(self, context: _Context) -> None:
        """Start the time to live of a conversation anew, if all of its tasks have ended."""
        self._expiring.pop(context.key, None)
        context.expires = None
        if not context.open_tasks:
            context.expires = time.monotonic() + self._ttl
            self._expiring[context.key] = None
            if self._sweep is None or self._loop is not asyncio.get_running_loop():
                self._sweep_in(self._ttl)

    def _candidates(self, query: Query) -> Iterable[_Slot]:
        """Return the slots that may match *query*, in its order."""
        if not query.context_id:
            return self._newest(query.order)
        # A conversation has few tasks: sorting them costs less than scanning all tasks.
        context = self._contexts.get((query.owner, query.context_id))
        if context is None or (not context.open_tasks and query.state in OPEN):
            return ()
        slots = [self._slots[task_id] for task_id in context.tasks]
        unexpired = (slot for slot in slots if not slot.has_expired())
        return sorted(unexpired, key=attrgetter(query.order), reverse=True)

    def _newest(self, order: str = "created") -> Iterator[_Slot]:
        task_ids: dict[str, Any] = self._by_update if order == "updated" else self._slots
        slots = (self._slots[task_id] for task_id in reversed(task_ids))
        return (slot for slot in slots if not slot.has_expired())

    def _make_room(self, owner: str) -> None:
        """Delete an ended task, if possible of *owner*: owners should not evict each other's."""
        ended_ids = islice(self._by_end, MAX_SCAN)
        own_ids = (task_id for task_id in ended_ids if self._slots[task_id].owner == owner)
        oldest = next(own_ids, None) or next(iter(self._by_end), None)
        if oldest is None:
            raise StoreFullError
        self._evict(oldest)

    def _evict(self, task_id: str) -> None:
        """Delete an ended task, and its messages from a conversation that tasks keep open."""
        context = self._slots[task_id].context
        if context.open_tasks:
            others = tuple(message for message in context.messages if message[0] != task_id)
            self._set_messages(context, others)
        self._drop(task_id)

    def _drop(self, task_id: str) -> None:
        slot = self._pop(task_id)
        slot.context.tasks.remove(task_id)
        slot.context.open_tasks -= not slot.has_ended
        if not slot.context.tasks:
            self._drop_context(slot.context.key)
        elif not slot.has_ended:
            self._set_expiry(slot.context)

    def _drop_context(self, key: _ContextKey) -> None:
        self._expiring.pop(key, None)
        context = self._contexts.pop(key)
        self._set_messages(context, ())
        for task_id in context.tasks:
            self._pop(task_id)

    def _pop(self, task_id: str) -> _Slot:
        indexes: tuple[dict[str, Any], ...] = (self._webhooks, self._by_update, self._by_end)
        for index in indexes:
            index.pop(task_id, None)
        slot = self._slots.pop(task_id)
        self._bytes -= slot.size
        self._large.replace(slot.large, ())
        return slot

    def _sweep_in(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        # in a context of its own: the run that saves a task has its inputs in the current one
        self._sweep = self._loop.call_later(seconds, self._on_sweep, context=Context())

    def _on_sweep(self) -> None:
        """Delete expired conversations, so that memory is freed without any requests too."""
        self._sweep = None
        while self._expiring and self._contexts[next(iter(self._expiring))].has_expired():
            self._drop_context(next(iter(self._expiring)))
        if self._expiring:
            expires = self._contexts[next(iter(self._expiring))].expires or 0
            self._sweep_in(max(expires - time.monotonic(), self._ttl / 60))


def _large_messages(task: Task, context: _Context, old_slot: _Slot | None) -> tuple[bytes, ...]:
    """Return the large messages of a history; those that are kept already are not kept again."""
    kept = [*(old_slot.large if old_slot else ()), *context.bodies]
    bodies = [body for body in map(dump_json, task.history) if len(body) >= LARGE_MESSAGE]
    return tuple(next((same for same in kept if same == body), body) for body in bodies)


def _page(
    slots: Iterable[_Slot], order: Order, position: int | None, limit: int
) -> tuple[list[_Slot], int | None]:
    """Return the next *limit* of *slots* after *position*, and the position of the page behind."""
    number_of = attrgetter(order)
    if position is not None:
        slots = (slot for slot in slots if number_of(slot) < position)
    page = list(islice(slots, limit + 1))
    return page[:limit], number_of(page[limit - 1]) if len(page) > limit else None
