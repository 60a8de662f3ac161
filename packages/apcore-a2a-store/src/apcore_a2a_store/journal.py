"""The journal of tasks: what the change function writes and subscribers read.

Each task has a log of events with versions 1, 2, 3 … without gaps. While a task can still
change, its record and log are held here, and the task store gets the record at every change
of state. The log of a task that has ended is kept as bytes, for readers that come back late.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from a2a import types as a2a
from a2a.utils.errors import PushNotificationNotSupportedError, TaskNotFoundError

from .records import TaskRecord
from .states import SETTLED, TERMINAL
from .webhooks import Outbox, Payload, Transition, Webhook

logger = logging.getLogger(__name__)

Order: TypeAlias = Literal["created", "updated"]
Listener: TypeAlias = Callable[[TaskRecord | None, TaskRecord], None]
"""Is told of a task before and after a change of its state; before its first there is None."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a task; `version` is also its SSE id."""

    version: int
    payload: Payload


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
        self._editing = asyncio.Lock()

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
            async with self._editing:
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
        self, task_id: str, edit: Callable[[Sequence[Webhook]], Sequence[Webhook]]
    ) -> None:
        """Replace the webhooks of a task by what *edit* makes of them.

        Raises:
            TaskNotFoundError: The task has left.
        """
        async with self._editing:
            webhooks = edit(await self.webhooks(task_id))
            if await self.get(task_id) is None:
                raise TaskNotFoundError
            await self._shelf.save_webhooks(task_id, webhooks)
            if task_id in self._live:
                self._live[task_id].webhooks = webhooks
            if self.outbox is not None:
                self.outbox.update(task_id, webhooks)

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
                self.outbox.put(Transition(then, owner, version, payload), entry.webhooks)

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
