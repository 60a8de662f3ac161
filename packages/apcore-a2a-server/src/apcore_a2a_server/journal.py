"""The journal of tasks: what the change function writes and subscribers read.

Each task has a log of events with versions 1, 2, 3 … without gaps. While a task
runs, its record and log are held here; the task store gets the record at every
change of state. When the task has ended, its log is kept as bytes, so that a
reader that comes back late can still have what it missed.
"""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from a2a.types import (
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core import TaskRecord

from .states import SETTLED, TERMINAL

logger = logging.getLogger("apcore_a2a.journal")

Payload: TypeAlias = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
Order: TypeAlias = Literal["created", "updated"]
PackedLog: TypeAlias = tuple[int, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a task; `version` is also its SSE id."""

    version: int
    payload: Payload

    @property
    def state(self) -> TaskState | None:
        """The state this event brought the task into, if it says so."""
        return (
            None if isinstance(self.payload, TaskArtifactUpdateEvent) else self.payload.status.state
        )


@dataclass(frozen=True, slots=True)
class Query:
    """What to list, newest first by creation or by last change of state."""

    owner: str
    context_id: str = ""
    state: TaskState | None = None
    after: float | None = None
    order: Order = "created"
    cursor: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Page:
    """A page of records; `next_cursor` is None on the last one."""

    records: list[TaskRecord]
    next_cursor: str | None
    total: int


class Shelf(Protocol):
    """The part of a task store that the journal needs."""

    async def save(self, record: TaskRecord) -> None: ...
    async def get(self, task_id: str) -> TaskRecord | None: ...
    async def query(self, query: Query) -> Page: ...


@dataclass(slots=True)
class Entry:
    """A task that may still change: the truth about it, and who waits for more."""

    record: TaskRecord
    events: list[Event] = field(default_factory=lambda: [])
    waiters: set[asyncio.Future[None]] = field(default_factory=lambda: set())
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def wake(self) -> None:
        for waiter in self.waiters:
            _wake(waiter)
        self.waiters.clear()


class Journal:
    """Event logs over a task store, for one process.

    Args:
        shelf: Where records are kept.
        max_logs: How many logs of ended tasks are kept for replay; older ones
            are answered with a snapshot of the task.
    """

    def __init__(self, shelf: Shelf, *, max_logs: int = 10_000) -> None:
        self._shelf = shelf
        self._max_logs = max_logs
        self._live: dict[str, Entry] = {}
        self._ended: OrderedDict[str, PackedLog] = OrderedDict()

    async def create(self, record: TaskRecord, payloads: tuple[Payload, ...]) -> None:
        """Store a new task with its first events.

        Raises:
            StoreFullError: The store has no room and nothing it may drop.
        """
        record.version = len(payloads)
        await self._shelf.save(record)
        events = [Event(number, payload) for number, payload in enumerate(payloads, 1)]
        self._live[record.task.id] = Entry(record, events)

    async def open(self, task_id: str) -> Entry | None:
        """The live entry of a task that has not ended, read from the store if need be."""
        entry = self._live.get(task_id)
        if entry is None:
            record = await self._shelf.get(task_id)
            if record is None or record.task.status.state in TERMINAL:
                return None
            entry = self._live.setdefault(task_id, Entry(record))
        return entry

    async def write(self, entry: Entry, record: TaskRecord, payloads: tuple[Payload, ...]) -> None:
        """Make *record* the truth, with the events that lead to it.

        The caller holds the entry's lock. A write without a new state goes to the log alone.
        """
        changed = any(isinstance(payload, TaskStatusUpdateEvent) for payload in payloads)
        saved = await self._save(record) if changed else False
        first = record.version - len(payloads) + 1
        entry.events += [Event(number, payload) for number, payload in enumerate(payloads, first)]
        entry.record = record
        if saved and record.task.status.state in TERMINAL:
            self._end(entry)
        entry.wake()

    async def get(self, task_id: str) -> TaskRecord | None:
        """The record as it is now; its task must not be changed by the caller."""
        entry = self._live.get(task_id)
        return entry.record if entry is not None else await self._shelf.get(task_id)

    async def probe(self) -> None:
        """Raise what the task store raises, if it does not work."""
        await self._shelf.get("00000000-0000-0000-0000-000000000000")

    async def page(self, query: Query) -> Page:
        """A page of the records that *query* asks for."""
        return await self._shelf.query(query)

    def events(self, task_id: str, after: int) -> list[Event] | None:
        """The events behind version *after*; None when the log does not reach back so far."""
        entry = self._live.get(task_id)
        if entry is None:
            return self._replay(task_id, after)
        first = entry.events[0].version if entry.events else entry.record.version + 1
        return entry.events[after - first + 1 :] if after >= first - 1 else None

    def resting(self, task_id: str) -> bool:
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

    async def settled(self, task_id: str) -> None:
        """Wait until the task has ended or paused."""
        while not self.resting(task_id):
            await self.wait(task_id, self._live[task_id].record.version, 3600)

    @property
    def live(self) -> list[TaskRecord]:
        """The records of the tasks that have not ended."""
        return [entry.record for entry in self._live.values()]

    async def _save(self, record: TaskRecord) -> bool:
        try:
            await self._shelf.save(record)
        except Exception:  # a user's store may raise anything; an end that nobody hears of is worse
            logger.exception("The task store did not save task %s", record.task.id)
            if record.task.status.state not in TERMINAL:
                raise
            return False
        return True

    def _end(self, entry: Entry) -> None:
        task_id = entry.record.task.id
        if entry.events:
            packed = tuple(_pack(event.payload) for event in entry.events)
            self._ended[task_id] = (entry.events[0].version, packed)
        del self._live[task_id]
        while len(self._ended) > self._max_logs:
            self._ended.popitem(last=False)

    def _replay(self, task_id: str, after: int) -> list[Event] | None:
        first, packed = self._ended.get(task_id, (None, ()))
        if first is None or after < first - 1:
            return None
        behind = packed[after - first + 1 :]
        return [Event(version, _unpack(data)) for version, data in enumerate(behind, after + 1)]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_FIELDS: dict[type[Payload], str] = {
    Task: "task",
    TaskStatusUpdateEvent: "status_update",
    TaskArtifactUpdateEvent: "artifact_update",
}


def _pack(payload: Payload) -> bytes:
    response = StreamResponse()
    getattr(response, _FIELDS[type(payload)]).CopyFrom(payload)
    return response.SerializeToString()


def _unpack(data: bytes) -> Payload:
    response = StreamResponse.FromString(data)
    return getattr(response, str(response.WhichOneof("payload")))
