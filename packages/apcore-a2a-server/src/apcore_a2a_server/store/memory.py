"""Tasks in memory: the default task store (FR-STR-002)."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Sequence
from contextvars import Context
from heapq import merge
from itertools import chain, count, islice, repeat
from math import inf
from operator import attrgetter
from secrets import token_bytes
from typing import TypeAlias

from apcore_a2a_core.data import Message, Task, TaskPushNotificationConfig
from apcore_a2a_core.records import (
    LARGE_MESSAGE,
    MAX_HISTORY_BYTES,
    TaskListResult,
    TaskRecord,
    surplus,
    without_large,
)
from apcore_a2a_core.states import TERMINAL
from apcore_a2a_core.values import dump_json, read_json
from msgspec import Struct, field

from .exceptions import StoreFullError
from .inprocess import InProcessStore
from .page_tokens import KEY_SIZE, PageTokens
from .queries import Page, Query, parse_cursor
from .task_index import (
    MAX_POSITION,
    ContextKey,
    Encoded,
    MessageBytes,
    StoredTask,
    TaskIndex,
    large_messages,
)
from .webhooks import Webhook

_Message: TypeAlias = tuple[str, bytes]
"""The id of a task, and one of its messages."""


class _Conversation(Struct, gc=False):
    """A conversation: its tasks, and its latest messages."""

    key: ContextKey
    tasks: TaskIndex = field(default_factory=TaskIndex)
    messages: tuple[_Message, ...] = ()
    message_bytes: int = 0
    """The number of bytes of its messages."""
    open_count: int = 0
    """The number of its tasks that have not ended."""
    expires: float | None = None

    @property
    def bodies(self) -> list[bytes]:
        """The messages as bytes."""
        return [body for _, body in self.messages]

    def has_expired(self) -> bool:
        return self.expires is not None and self.expires <= time.monotonic()


class InMemoryTaskStore(InProcessStore):
    """A store that keeps tasks in a dict, as bytes, until their conversation expires.

    A conversation expires `ttl` seconds after the last of its tasks has ended; all of its tasks
    are then deleted. No method of this class awaits between its accesses to tasks, so no lock is
    needed in one event loop. Returned records are copies.

    Args:
        ttl: Seconds that a conversation is kept after its tasks have ended.
        max_capacity: Maximum number of tasks. If a new task would exceed it, expired tasks are
            deleted, or else the oldest ended task, if possible of the same owner. Open tasks stay.
        max_history: Number of latest messages that a conversation keeps.

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
        self._tasks: dict[str, StoredTask] = {}
        self._contexts: dict[ContextKey, _Conversation] = {}
        self._owners: dict[str, TaskIndex] = {}
        # An OrderedDict finds its first key at once; a dict passes over all deleted ones.
        self._by_end: OrderedDict[str, None] = OrderedDict()
        """The ids of the tasks that have ended, in the order of their ends."""
        self._ended_bytes: Counter[str] = Counter()
        """The bytes of each owner's tasks that have ended."""
        self._expiring: OrderedDict[ContextKey, None] = OrderedDict()
        """Conversations whose tasks have all ended, in the order in which they expire."""
        self._webhooks: dict[str, Sequence[Webhook]] = {}
        self._bytes = 0
        self._messages = MessageBytes()
        self._encoded: dict[str, Sequence[Encoded]] = {}
        """The large messages of each task that has not ended, as objects and as bytes."""
        self._change_numbers = count(1)
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def save(self, record: TaskRecord) -> None:
        """Store *record*; it replaces the one with the same task id.

        Raises:
            StoreFullError: The task is new, and the store is full of tasks that have not ended.
        """
        task = record.task
        old_task = self._tasks.get(task.id)
        if old_task is not None and old_task.key != (record.owner, task.context_id):
            self._drop(task.id)
            old_task = None
        if old_task is None and len(self._tasks) >= self._max_capacity:
            self._make_room(record.owner)
        context = self._contexts[old_task.key] if old_task else self._join_context(record)
        updated = next(self._change_numbers)
        new_messages = self._add_messages(context, record, old_task.messages if old_task else 0)
        data, large = self._encode(task, new_messages, old_task, context)
        stored = StoredTask(
            task.id,
            context.key,
            data,
            tuple([body for _, body in large]) if large else (),
            record.skill,
            record.version,
            record.resume,
            record.messages,
            record.deadline,
            task.status.state,
            record.status_at,
            old_task.created if old_task else updated,
            updated,
        )
        if large and not stored.has_ended:
            self._encoded[task.id] = large
        else:
            self._encoded.pop(task.id, None)
        if old_task is not None:
            self._remove(old_task, context)
        self._add(stored, context)
        self._set_expiry(context)

    async def get(self, task_id: str, owner: str | None = None) -> TaskRecord | None:
        """Return a copy of the record; None if it is unknown, expired, or not the owner's."""
        stored = self._tasks.get(task_id)
        if stored is None or owner not in (None, stored.owner):
            return None
        return None if self._contexts[stored.key].has_expired() else stored.record()

    async def list(
        self, context_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> TaskListResult:
        """Return a page of records of all owners, the most recently created first."""
        position = MAX_POSITION if cursor is None else parse_cursor(cursor)
        self._drop_expired()
        matching_tasks = (
            stored
            for stored in map(self._tasks.__getitem__, reversed(self._tasks))
            if context_id in (None, "", stored.key[1]) and stored.created < position
        )
        stored_tasks = [*islice(matching_tasks, limit + 1)]
        next_cursor = str(stored_tasks[limit - 1].created) if len(stored_tasks) > limit else None
        return TaskListResult([stored.record() for stored in stored_tasks[:limit]], next_cursor)

    async def query(self, query: Query) -> Page:
        """Return a page of the tasks that match *query*."""
        position = self._page_tokens.open(query)
        self._drop_expired()
        get_number, total = attrgetter(query.order), 0
        sorted_parts: list[Iterable[StoredTask]] = []
        for index in self._indexes(query):
            index_tasks, index_total = index.find(
                query, MAX_POSITION if position is None else position
            )
            sorted_parts.append(index_tasks)
            total += index_total
        matching_tasks = merge(*sorted_parts, key=get_number, reverse=True)
        stored_tasks = [*islice(matching_tasks, query.limit + 1)]
        next_cursor = None
        if len(stored_tasks) > query.limit:
            last_number = get_number(stored_tasks[query.limit - 1])
            next_cursor = self._page_tokens.seal(query, last_number)
        return Page([stored.record() for stored in stored_tasks[: query.limit]], next_cursor, total)

    def _indexes(self, query: Query) -> Iterable[TaskIndex]:
        """Return the indexes of the tasks that a query's owner and context select."""
        owner, context_id, prefix = query.owner, query.context_id, query.owner_prefix
        if not context_id:
            if owner is not None:
                return [self._owners[owner]] if owner in self._owners else ()
            return [index for name, index in self._owners.items() if name.startswith(prefix)]
        if owner is not None:
            context = self._contexts.get((owner, context_id))
            return () if context is None else [context.tasks]
        contexts = self._contexts.items()
        return [
            context.tasks
            for key, context in contexts
            if key[1] == context_id and key[0].startswith(prefix)
        ]

    async def conversation(self, owner: str, context_id: str, limit: int) -> Sequence[Message]:
        """Return the latest messages of a conversation, oldest first."""
        context = self._contexts.get((owner, context_id))
        if context is None or context.has_expired():
            return []
        return [read_json(Message, body) for body in context.bodies[-limit:]]

    async def ended_task_ids(self, owner: str) -> Sequence[str]:
        """Return the ids of an owner's tasks that have ended."""
        index = self._owners.get(owner)
        return [] if index is None else [stored.id for stored in index.ended_tasks()]

    async def owners(self, prefix: str) -> Sequence[str]:
        """Return the task owners whose names begin with a prefix."""
        return [owner for owner in self._owners if owner.startswith(prefix)]

    async def delete(self, task_id: str) -> bool:
        """Delete a task; return False if there is none."""
        exists = task_id in self._tasks
        if exists:
            self._drop(task_id)
        return exists

    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the task's webhooks, oldest first."""
        return self._webhooks.get(task_id, ())

    def tasks_with_webhooks(self) -> Sequence[str]:
        """Return the ids of the tasks that have webhooks, the newest first."""
        return [task_id for task_id in reversed(self._tasks) if task_id in self._webhooks]

    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Replace the task's webhooks."""
        self._webhooks.pop(task_id, None)
        if webhooks:
            self._webhooks[task_id] = tuple(webhooks)

    async def count_failed_webhooks(self) -> int:
        """Return how many webhooks of all tasks have failed."""
        webhooks = chain.from_iterable(self._webhooks.values())
        return sum(bool(webhook.failure) for webhook in webhooks)

    async def save_push_config(self, task_id: str, config: TaskPushNotificationConfig) -> None:
        """Replace all webhooks of the task with one."""
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
        """About how many bytes tasks, conversations and the data of the base class take."""
        return super().kept_bytes + self._bytes + self._messages.bytes

    def evict(
        self, size: int, owner: str, kept_ids: Container[str], share: int | None = None
    ) -> None:
        """Delete ended tasks until *size* bytes are freed.

        Tasks of owners above *share* go first, then those of *owner*, then all others.
        """
        target, limit = self.kept_bytes - size, inf if share is None else share
        bytes_of = self._ended_bytes
        # searched once: there may be many owners, but few can exceed a share
        owners_above_share = sorted(
            (name for name in bytes_of if bytes_of[name] > limit), key=bytes_of.__getitem__
        )
        while self.kept_bytes > target:
            above_share = [name for name in reversed(owners_above_share) if bytes_of[name] > limit]
            task_id = self._oldest_ended((*above_share, owner), kept_ids)
            if task_id is None:
                return
            self._evict(task_id)
            self.drop_log(task_id)

    def __len__(self) -> int:
        return len(self._tasks)

    def _join_context(self, record: TaskRecord) -> _Conversation:
        """Return the conversation that a new task joins; begin an expired conversation anew."""
        key = (record.owner, record.task.context_id)
        context = self._contexts.get(key)
        if context is not None and context.has_expired():
            self._drop_context(key)
            context = None
        if context is None:
            context = self._contexts[key] = _Conversation(key)
        return context

    def _encode(
        self,
        task: Task,
        new_messages: Sequence[Encoded],
        old_task: StoredTask | None,
        context: _Conversation,
    ) -> tuple[bytes, Sequence[Encoded]]:
        """Return a task's bytes without its large messages, and those messages with their bytes."""
        known_messages = [*self._encoded.get(task.id, ()), *new_messages]
        for _, body in known_messages:
            if len(body) >= LARGE_MESSAGE:
                break
        else:
            data = dump_json(task)
            if len(data) < LARGE_MESSAGE or without_large(task) is task:
                return data, ()
        kept_bodies = [*(old_task.large if old_task else ()), *context.bodies]
        large = large_messages(task, known_messages, kept_bodies)
        return dump_json(without_large(task)), large

    def _add_messages(
        self, context: _Conversation, record: TaskRecord, known_count: int
    ) -> Sequence[Encoded]:
        """Add the task's new messages to its conversation, and return them with their bytes.

        Args:
            context: The conversation.
            record: The task.
            known_count: Number of messages of the task that are not new.
        """
        new_messages = record.messages_after(known_count)
        if not new_messages:
            return ()
        added = [*map(dump_json, new_messages)]
        self._count_messages(context, (), added)
        messages = (*context.messages, *zip(repeat(record.task.id), added))
        if len(messages) > self._max_history or context.message_bytes > MAX_HISTORY_BYTES:
            messages = self._without_oldest(context, messages)
        context.messages = messages
        return [*zip(new_messages, added, strict=True)]

    def _without_oldest(
        self, context: _Conversation, messages: tuple[_Message, ...]
    ) -> tuple[_Message, ...]:
        """Drop the oldest messages beyond the limits of a conversation, and return the rest."""
        bodies = [body for _, body in messages]
        dropped_count = max(len(messages) - self._max_history, 0)
        dropped_count += surplus([len(body) for body in bodies[dropped_count:]])
        self._count_messages(context, bodies[:dropped_count], ())
        return messages[dropped_count:]

    def _set_messages(self, context: _Conversation, messages: tuple[_Message, ...]) -> None:
        bodies = context.bodies
        context.messages = messages
        self._count_messages(context, bodies, context.bodies)

    def _count_messages(
        self, context: _Conversation, dropped: Sequence[bytes], added: Sequence[bytes]
    ) -> None:
        """Update the byte counts for *dropped* and *added* messages of a conversation."""
        context.message_bytes += sum(map(len, added)) - sum(map(len, dropped))
        self._messages.replace(dropped, added)

    def _add(self, stored: StoredTask, context: _Conversation) -> None:
        """Count a task, and put it into the indexes."""
        owner, size = stored.key[0], len(stored.data) + len(stored.resume or b"")
        self._tasks[stored.id] = stored
        index = self._owners.get(owner)
        if index is None:
            index = self._owners[owner] = TaskIndex()
        index.add(stored)
        context.tasks.add(stored)
        if stored.state in TERMINAL:
            self._by_end[stored.id] = None
            self._ended_bytes[owner] += size + sum(map(len, stored.large))
        else:
            context.open_count += 1
        self._bytes += size
        if stored.large:
            self._messages.replace((), stored.large)

    def _remove(self, stored: StoredTask, context: _Conversation) -> None:
        """Undo `_add`, except in `_tasks`: the task keeps its place in the order of creation."""
        owner, size = stored.key[0], len(stored.data) + len(stored.resume or b"")
        if self._owners[owner].remove(stored):
            del self._owners[owner]
        context.tasks.remove(stored)
        if stored.state in TERMINAL:
            del self._by_end[stored.id]
            self._ended_bytes[owner] -= size + sum(map(len, stored.large))
            if not self._ended_bytes[owner]:
                del self._ended_bytes[owner]
        else:
            context.open_count -= 1
        self._bytes -= size
        if stored.large:
            self._messages.replace(stored.large, ())

    def _set_expiry(self, context: _Conversation) -> None:
        """Let a conversation expire `ttl` seconds from now, unless it has open tasks."""
        if context.expires is not None:
            del self._expiring[context.key]
            context.expires = None
        if not context.open_count:
            context.expires = time.monotonic() + self._ttl
            self._expiring[context.key] = None
            if self._sweep_timer is None or self._loop is None or not self._loop.is_running():
                self._sweep_in(self._ttl)

    def _make_room(self, owner: str) -> None:
        """Delete the expired tasks, or if there are none, an ended task.

        The task is one of *owner* if possible: owners should not evict the tasks of others.
        """
        self._drop_expired()
        if len(self._tasks) < self._max_capacity:
            return
        index = self._owners.get(owner)
        own_task = None if index is None else index.oldest_ended
        if own_task is None and not self._by_end:
            raise StoreFullError
        self._evict(own_task.id if own_task else next(iter(self._by_end)))

    def _oldest_ended(self, owners: Sequence[str], kept_ids: Container[str]) -> str | None:
        """Return the id of the oldest ended task not in *kept_ids*, preferably one of *owners*."""
        indexes = (self._owners[owner] for owner in owners if owner in self._owners)
        ended_tasks = chain.from_iterable(index.ended_tasks() for index in indexes)
        ended_ids = chain((stored.id for stored in ended_tasks), self._by_end)
        return next((task_id for task_id in ended_ids if task_id not in kept_ids), None)

    def _evict(self, task_id: str) -> None:
        """Delete an ended task, and its messages too if its conversation has open tasks."""
        context = self._contexts[self._tasks[task_id].key]
        if context.open_count:
            remaining = tuple(message for message in context.messages if message[0] != task_id)
            self._set_messages(context, remaining)
        self._drop(task_id)

    def _drop(self, task_id: str) -> None:
        """Delete a task, and its conversation if that has no other task."""
        context = self._contexts[self._tasks[task_id].key]
        self._pop(task_id, context)
        if not context.tasks:
            self._drop_context(context.key)
        elif context.expires is None:
            self._set_expiry(context)

    def _drop_context(self, key: ContextKey) -> None:
        self._expiring.pop(key, None)
        context = self._contexts.pop(key)
        self._count_messages(context, context.bodies, ())
        for stored in [*context.tasks] if context.tasks else ():
            self._pop(stored.id, context)

    def _pop(self, task_id: str, context: _Conversation) -> None:
        self._webhooks.pop(task_id, None)
        self._encoded.pop(task_id, None)
        self._remove(self._tasks.pop(task_id), context)

    def _drop_expired(self) -> None:
        while self._expiring and self._contexts[next(iter(self._expiring))].has_expired():
            self._drop_context(next(iter(self._expiring)))

    def _sweep_in(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        # in an empty `Context`: a copy of the current one would keep a run's inputs in memory
        self._sweep_timer = self._loop.call_later(seconds, self._on_sweep, context=Context())

    def _on_sweep(self) -> None:
        """Delete expired conversations, so that memory is freed even without requests."""
        self._sweep_timer = None
        self._drop_expired()
        if self._expiring:
            expires = self._contexts[next(iter(self._expiring))].expires or 0
            self._sweep_in(max(expires - time.monotonic(), self._ttl / 60))
