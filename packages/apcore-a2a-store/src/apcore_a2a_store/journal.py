"""The journal of tasks: what the change function writes and subscribers read.

Each task has a log of events with versions 1, 2, 3 … without gaps. While a task can still
change, its record and log are held here, and the task store gets the record at every change
of state. The log of a task that has ended is kept as bytes, for readers that come back late.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakValueDictionary

from a2a import types as a2a
from a2a.utils.errors import TaskNotFoundError

from .records import TaskRecord
from .shelf import Page, Query, Shelf
from .states import SETTLED, TERMINAL
from .webhooks import Outbox, Payload, Transition, Webhook

logger = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[TaskRecord | None, TaskRecord], None]
"""Is told of a task before and after a change of its state; before its first there is None."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a task; `version` is also its SSE id."""

    version: int
    payload: Payload


@dataclass(slots=True)
class Entry:
    """A task that may still change: the truth about it, and who waits for more."""

    record: TaskRecord
    events: list[Event] = field(default_factory=list[Event])
    webhooks: Sequence[Webhook] = ()
    waiters: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


_Log: TypeAlias = tuple[float, int, tuple[bytes, ...]]
"""Of a task that has ended: when it may leave, its first version, its events.

There are many; tuples of atoms are what the garbage collector need not go through.
"""


class Journal:
    """Event logs over a task store, for one process.

    Args:
        shelf: Where records are kept.
        max_logs: How many logs of ended tasks are kept; who asks for others gets a snapshot.
        log_ttl: Seconds after which the log of an ended task may leave.
        max_events: How many of its latest events a log holds at least; when it has twice as
            many it is cut down to them, and who asks for older ones gets a snapshot.
        max_history: How many of its latest messages a task and a conversation hold.

    Attributes:
        listeners: Who is told of every change of a task's state.
        outbox: What tells webhooks; None when there are none.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        max_logs: int = 10_000,
        log_ttl: float = 3600,
        max_events: int = 1000,
        max_history: int = 100,
    ) -> None:
        self.max_history = max_history
        self.listeners: list[Listener] = []
        self.outbox: Outbox | None = None
        self._shelf = shelf
        self._max_logs = max_logs
        self._log_ttl = log_ttl
        self._max_events = max_events
        self._live: dict[str, Entry] = {}
        self._ended: OrderedDict[str, _Log] = OrderedDict()
        self._editing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def keeps_webhooks(self) -> bool:
        """Whether the store has a place for webhooks."""
        return self._shelf.keeps_webhooks

    async def create(
        self, record: TaskRecord, payloads: list[Payload], webhooks: Sequence[Webhook] = ()
    ) -> None:
        """Store a new task with its first events, and its webhooks.

        Raises:
            StoreFullError: The store has no room and nothing it may drop.
        """
        record.version = len(payloads)
        events = [Event(number, payload) for number, payload in enumerate(payloads, 1)]
        entry = self._live[record.task.id] = Entry(record, events, webhooks)
        async with entry.lock:  # the store may show the task before it tells us that it has it
            try:
                if webhooks:
                    await self._shelf.save_webhooks(record.task.id, webhooks)
                await self._shelf.save(record)
            except Exception:  # a user's store may raise anything: then there is no task
                del self._live[record.task.id]
                if webhooks:
                    await self._shelf.save_webhooks(record.task.id, ())
                raise
        self._tell(None, record)
        self._post(entry, events)

    async def open(self, task_id: str) -> Entry | None:
        """The entry of a task that has not ended, made from the store if need be."""
        if task_id not in self._live:
            record = await self._shelf.get(task_id)
            if record is None or record.task.status.state in TERMINAL:
                return None
            async with self._edits(task_id):
                webhooks = await self._shelf.webhooks(task_id) if self.outbox else ()
                if task_id in self._ended:  # meanwhile: what was read is old
                    return None
                self._live.setdefault(task_id, Entry(record, webhooks=webhooks))
        return self._live[task_id]

    async def write(self, entry: Entry, record: TaskRecord, payloads: list[Payload]) -> None:
        """Make *record* the truth, with the events that lead to it; its caller has the lock.

        Events of a running task's artifact go to the log alone, until its state changes.
        """
        before, ended = entry.record, record.task.status.state in TERMINAL
        if any(isinstance(payload, a2a.TaskStatusUpdateEvent) for payload in payloads):
            try:
                await self._shelf.save(record)
            except (Exception, BaseExceptionGroup):  # stores raise anything; readers must hear
                if not ended:
                    raise
                logger.exception("The task store did not save the end of task %s", record.task.id)
                ended = False
        first = record.version - len(payloads) + 1
        events = [Event(number, payload) for number, payload in enumerate(payloads, first)]
        entry.events += events
        if len(entry.events) > 2 * self._max_events:
            del entry.events[: -self._max_events]
        entry.record = record
        if ended:
            self._end(entry)
        for waiter in entry.waiters:
            _wake(waiter)
        if before.task.status.state != record.task.status.state:
            self._tell(before, record)
        self._post(entry, events)

    async def get(self, task_id: str) -> TaskRecord | None:
        """The record as it is now; whoever gets it must not change its task."""
        entry = self._live.get(task_id)
        return entry.record if entry is not None else await self._shelf.get(task_id)

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's."""
        entry = self._live.get(task_id)
        if entry is None:
            return await self._shelf.get_own(task_id, owner)
        return entry.record if entry.record.owner == owner else None

    async def page(self, query: Query) -> Page:
        """A page of the records that *query* asks for."""
        return await self._shelf.query(query)

    async def conversation(self, owner: str, context_id: str) -> Sequence[a2a.Message]:
        """The latest messages of the owner's conversation in a context, in their order."""
        return await self._shelf.conversation(owner, context_id, self.max_history)

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        entry = self._live.get(task_id)
        return entry.webhooks if entry is not None else await self._shelf.webhooks(task_id)

    async def edit_webhooks(
        self,
        task_id: str,
        edit: Callable[[Sequence[Webhook]], Sequence[Webhook]],
        *,
        must_save: bool = True,
    ) -> None:
        """Replace the webhooks of a task by what *edit* makes of them.

        Args:
            task_id: The task's id.
            edit: From the webhooks as they are to those that shall be.
            must_save: Whether nothing changes when the store does not save it.

        Raises:
            TaskNotFoundError: The task has left.
        """
        async with self._edits(task_id):
            webhooks = edit(await self.webhooks(task_id))
            if await self.get(task_id) is None:
                raise TaskNotFoundError
            try:
                await self._shelf.save_webhooks(task_id, webhooks)
            except Exception as error:  # a user's store may raise anything
                if must_save:
                    raise
                told = "The webhooks of task %s were not saved: %s"
                logger.warning(told, task_id, type(error).__name__)
            if task_id in self._live:
                self._live[task_id].webhooks = webhooks
            if self.outbox is not None:
                self.outbox.update(task_id, webhooks)

    def _edits(self, task_id: str) -> asyncio.Lock:
        """What one edit of a task's webhooks waits for the other by."""
        return self._editing.setdefault(task_id, asyncio.Lock())

    def has_webhooks(self, task_id: str) -> bool:
        """Whether somebody is told of a task that has not ended."""
        entry = self._live.get(task_id)
        return entry is not None and any(not webhook.failure for webhook in entry.webhooks)

    def events(self, task_id: str, after: int) -> list[Event] | None:
        """The events behind version *after*; None when the log does not reach back so far."""
        entry = self._live.get(task_id)
        if entry is None:
            return self._replay(task_id, after)
        first = entry.events[0].version if entry.events else entry.record.version + 1
        return entry.events[after - first + 1 :] if after >= first - 1 else None

    def is_settled(self, task_id: str) -> bool:
        """Whether nothing will happen to the task by itself: it has ended or paused."""
        entry = self._live.get(task_id)
        return entry is None or entry.record.task.status.state in SETTLED

    async def wait(self, task_id: str, after: int, seconds: float) -> bool:
        """Wait until the task is beyond version *after*; False when *seconds* were not enough."""
        entry = self._live.get(task_id)
        if entry is None or entry.record.version > after:
            return True
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        entry.waiters.add(waiter)
        timer = loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            entry.waiters.discard(waiter)
        return entry.record.version > after

    def _tell(self, before: TaskRecord | None, after: TaskRecord) -> None:
        for listener in self.listeners:
            listener(before, after)

    def _post(self, entry: Entry, events: Sequence[Event]) -> None:
        if not entry.webhooks or self.outbox is None:
            return
        task, owner = entry.record.task, entry.record.owner
        for version, payload in ((event.version, event.payload) for event in events):
            if not isinstance(payload, a2a.TaskArtifactUpdateEvent):
                then = payload if isinstance(payload, a2a.Task) else task
                try:
                    self.outbox.put(Transition(then, owner, version, payload), entry.webhooks)
                except Exception:  # whatever it is, it is no matter of the task
                    logger.exception("Webhooks of task %s are not told", task.id)

    def _end(self, entry: Entry) -> None:
        task_id = entry.record.task.id
        if entry.events:
            packed = tuple([_pack(event.payload) for event in entry.events])
            expires = time.monotonic() + self._log_ttl
            self._ended[task_id] = expires, entry.events[0].version, packed
        del self._live[task_id]
        self._forget_logs()

    def _forget_logs(self) -> None:
        while self._ended:
            expires, _, _ = next(iter(self._ended.values()))
            if len(self._ended) <= self._max_logs and expires > time.monotonic():
                return
            self._ended.popitem(last=False)

    def _replay(self, task_id: str, after: int) -> list[Event] | None:
        log = self._ended.get(task_id)
        if log is None:
            return None
        _, first, packed = log
        if after < first - 1:
            return None
        behind = enumerate(packed[after - first + 1 :], after + 1)
        return [Event(version, _unpack(data)) for version, data in behind]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_KINDS: tuple[type[Payload], ...] = (
    a2a.Task,
    a2a.TaskStatusUpdateEvent,
    a2a.TaskArtifactUpdateEvent,
)


def _pack(payload: Payload) -> bytes:
    """The payload as bytes, behind one that tells its kind."""
    return bytes([_KINDS.index(type(payload))]) + payload.SerializeToString()


def _unpack(data: bytes) -> Payload:
    return _KINDS[data[0]].FromString(data[1:])
