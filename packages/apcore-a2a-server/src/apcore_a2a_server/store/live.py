"""Live tasks: records and leases of tasks that can still change, and readers that wait for events.

Each task has a log of events with versions 1, 2, 3 … without gaps. The store has the authoritative
state. For tasks that can still change, this module keeps the record and the lease in memory, and
the latest events if the store is slower than memory.
"""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import Context
from math import inf
from time import monotonic
from typing import TypeAlias

from a2a.utils.errors import TaskNotFoundError
from apcore_a2a_core.data import TaskState
from apcore_a2a_core.records import Payload, TaskRecord, estimated_size
from apcore_a2a_core.states import PAUSED, SETTLED, TERMINAL, WORKING
from msgspec import Struct, field

from apcore_a2a_server.errors import DrainingError

from .exceptions import NotSavedError, StaleError
from .operator_port import OpenTasks
from .port import Change, Claim, Event, Lease, NewTask, SendKey, Store
from .webhooks import Webhook

logger = logging.getLogger("apcore_a2a.store")

DELETION_CHECK_INTERVAL = 3600
"""Seconds after which a blocking send checks whether another replica has deleted its task."""

OnState: TypeAlias = Callable[[TaskRecord | None, TaskRecord], None]
"""Callback for a new state or a restarted module; takes the old record, if any, and the new."""


class Waiter:
    """A reader that waits for new events of one task.

    Use it as a context manager while the task is read, so that no wake-up between two waits is
    lost.

    Args:
        waiters: The waiters of all tasks.
        task_id: The task's id.
        after: The last version that the reader has.
        idle: Seconds after which a wait without an event ends.

    Attributes:
        after: the last version that the reader has; the reader moves it forward.
    """

    __slots__ = (
        "_deadline",
        "_idle",
        "_task_id",
        "_timer",
        "_waiters",
        "_wake",
        "_was_woken",
        "after",
    )

    def __init__(self, waiters: "Waiters", task_id: str, after: int, idle: float) -> None:
        self.after = after
        self._waiters = waiters
        self._task_id = task_id
        self._idle = idle
        self._was_woken = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._wake: asyncio.Future[bool] | None = None

    def __enter__(self) -> "Waiter":
        self._waiters.add(self._task_id, self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._waiters.remove(self._task_id, self)
        if self._timer is not None:
            self._timer.cancel()

    async def wait(self) -> bool:
        """Wait until the task may be beyond version `after`; return False after the idle time."""
        if self._was_woken:
            self._was_woken = False
            return True
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._idle
        if self._timer is None:
            self._set_timer(loop)
        self._wake = loop.create_future()
        try:
            return await self._wake
        finally:
            self._wake = None

    def wake(self, version: int) -> None:
        """End the current wait, or else the next one, if *version* is later than `after`."""
        if version > self.after:
            if self._wake is None:
                self._was_woken = True
            elif not self._wake.done():
                self._wake.set_result(True)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        # in an empty context: the current one would keep the request's context variables in memory
        self._timer = loop.call_at(self._deadline, self._on_timer, loop, context=Context())

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the wait if its time is over; one timer serves all waits, as timers are costly."""
        self._timer = None
        if self._wake is not None and not self._wake.done():
            if loop.time() < self._deadline:
                self._set_timer(loop)
            else:
                self._wake.set_result(False)


class Waiters:
    """The waiters of each task."""

    def __init__(self) -> None:
        self._waiters: dict[str, dict[Waiter, None]] = {}

    def add(self, task_id: str, waiter: Waiter) -> None:
        """Add a waiter of a task."""
        self._waiters.setdefault(task_id, {})[waiter] = None

    def remove(self, task_id: str, waiter: Waiter) -> None:
        """Remove a waiter of a task."""
        task_waiters = self._waiters[task_id]
        del task_waiters[waiter]
        if not task_waiters:
            del self._waiters[task_id]

    def wake(self, task_id: str, version: int) -> None:
        """Wake the readers that have an earlier version of a task than *version*."""
        for waiter in self._waiters.get(task_id, ()):
            waiter.wake(version)

    def task_ids(self) -> list[str]:
        """Return the ids of the tasks that readers wait for."""
        return [*self._waiters]


class LiveTask(Struct):
    """A task that may still change.

    Attributes:
        record: the task; another replica may have changed it since.
        lease: this process's lease to run the task, if it has one.
        tail: the latest events, if the store is slower than memory.
        lock: held by the one request or run that is changing the task.
        client: the client that the task's bytes are counted for; None if unknown.
        size: about how many bytes the task takes in memory, here or in the store.
        kept_size: how many of these bytes are kept here, and not counted by the store.
    """

    record: TaskRecord
    lease: Lease | None = None
    tail: list[Event] = field(default_factory=list[Event])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    client: str | None = None
    size: int = 0
    kept_size: int = 0


class LiveTasks:
    """The tasks of a store that this process runs, changes or waits for.

    Args:
        store: The store.
        max_history: Number of latest messages that a task and a conversation keep.
        on_state: Callback for every change of a task's state, and every restart of its module.

    Attributes:
        store: the store.
        waiters: the readers that wait for the next event of a task.
        max_history: number of latest messages that a task and a conversation keep.
        kept_bytes: about how many bytes the live tasks take, unless the store counts them.
        stored_at: when a write or claim of this process last succeeded, by `time.monotonic`.
    """

    def __init__(
        self, store: Store, *, max_history: int = 100, on_state: OnState | None = None
    ) -> None:
        self.store = store
        self.waiters = Waiters()
        self.max_history = max_history
        self._on_state = on_state
        self._live: dict[str, LiveTask] = {}
        self._handed_over: set[str] = set()
        self._bytes_of: Counter[str | None] = Counter()
        self.kept_bytes = 0
        self.stored_at = -inf

    async def create(
        self,
        record: TaskRecord,
        payloads: list[Payload],
        webhooks: Sequence[Webhook] = (),
        key: SendKey | None = None,
        client: str | None = None,
    ) -> Lease:
        """Store a new task with its first events and webhooks; return the lease to run it.

        The task's bytes are counted for *client* while the task is live.

        Raises:
            RepeatedError: The same send has already created a task.
            KeyReusedError: Another send has used the same idempotency key.
            StoreFullError: The store is full, and has no task that it may delete.
        """
        record.version = len(payloads)
        live = LiveTask(record, client=client)
        self._add(live)
        new_task = NewTask(record, _number_events(payloads, 1), webhooks, key, live.size)
        # Other requests may find the new task before `store.create` returns. Unless the store is
        # shared, the lock makes them wait until this process knows the lease.
        async with live.lock:
            try:
                live.lease = await self.store.create(new_task)
            except BaseException as error:  # any error of a user's store, or a cancellation
                # A durable store may have the task despite a cancellation: keep the task here too.
                if isinstance(error, Exception) or not self.store.is_durable:
                    self._remove(record.task.id)
                raise
        self.stored_at = monotonic()
        if self.store.is_durable:
            self._drop_call(record)
            self._remember(live, new_task.slim_events())
        if self._on_state is not None:
            self._on_state(None, record)
        return live.lease

    async def open(self, task_id: str) -> LiveTask | None:
        """Return a task, read from the store if necessary; None if it has ended or is unknown."""
        live = self.current(task_id)
        if live is None:
            record = await self.store.get(task_id)
            if record is None or record.task.status.state in TERMINAL:
                return None
            # A slow store may have returned a record that a change has replaced meanwhile.
            if not await self.store.is_current(record):
                return self._live.get(task_id)
            live = LiveTask(record)
            # In a shared store other replicas may change the task, so it must be read each time.
            # In other stores, all requests must use the same object, and with it the same lock.
            if not self.store.is_shared:
                if task_id not in self._live:
                    self._add(live)
                live = self._live[task_id]
        return live

    async def write(
        self,
        live: LiveTask,
        record: TaskRecord,
        payloads: list[Payload],
        webhook: Webhook | None = None,
        *,
        restart: bool = False,
        growth: int | None = None,
        spans: str = "",
    ) -> None:
        """Store *record* with the events that lead to it; the caller holds the task's lock.

        A change from paused to working gives this process the lease to run the task. With
        *restart*, the task's module is started again under the lease that this process has claimed.
        *growth* is roughly the number of bytes added, if known; *spans* are added to the task's.

        Raises:
            StaleError: The task has changed since *live* was read.
        """
        previous = live.record
        state_before, state = previous.task.status.state, record.task.status.state
        has_ended = state in TERMINAL
        run = state_before in PAUSED and state == WORKING
        events = _number_events(payloads, record.version - len(payloads) + 1)
        try:
            change = Change(
                record,
                previous.version,
                events,
                live.lease,
                run,
                webhook,
                restart,
                known_messages=previous.messages,
                spans=spans,
            )
            live.lease = await self.store.change(change)
            self.stored_at = monotonic()
        except NotSavedError:
            message, extra = "Task %s: end not saved by the store", {"event": "task_end_not_saved"}
            logger.error(message, record.task.id, extra=extra)
            has_ended = False  # keep it in memory: the store did not save it
        except StaleError:
            # Another replica has changed the task: the record and lease here are outdated.
            self.forget(record.task.id)
            raise
        live.record = record
        if self.store.is_durable:
            self._drop_call(record)
            self._remember(live, events)
        # In a shared store, other replicas may change a task that this one has no lease of.
        if has_ended or (live.lease is None and self.store.is_shared):
            self._remove(record.task.id)
        else:
            self._grow(live, growth)
        # Wake readers only now: they look at the record and the events that were set above.
        self.waiters.wake(record.task.id, record.version)
        if self._on_state is not None and (restart or state_before != state):
            self._on_state(previous, record)

    async def adopt(self, claim: Claim) -> None:
        """Keep a claimed task, which this process runs from now on."""
        self._add(LiveTask(claim.record, claim.lease))
        self._handed_over.discard(claim.record.task.id)

    def forget(self, task_id: str) -> None:
        """Drop a task of a durable store from memory, as it may have changed; wake its readers."""
        if self.store.is_durable:
            self._remove(task_id)
            self.waiters.wake(task_id, sys.maxsize)

    def drop_paused(self) -> None:
        """Drop the paused tasks of a durable store from memory: they can be read again."""
        if self.store.is_durable:
            for task_id, live in [*self._live.items()]:
                if live.lease is None and not live.lock.locked():
                    self._remove(task_id)

    async def open_tasks(self) -> OpenTasks:
        """Count the open tasks of all processes if the store can, or else those of this process."""
        stored = await self.store.open_tasks()
        if stored is not None:
            return stored
        counts, oldest = Counter[TaskState](), dict[TaskState, float]()
        for live in self._live.values():
            state, since = live.record.task.status.state, live.record.status_at
            counts[state] += 1
            oldest[state] = min(since, oldest.get(state, since))
        return OpenTasks(counts, oldest)

    def bytes_of(self, client: str) -> int:
        """Return about how many bytes the live tasks of a client take, here or in the store."""
        return self._bytes_of.get(client, 0)

    def count_for(self, client: str, task_id: str) -> None:
        """Count the bytes of a task for *client* while the task is live."""
        live = self._live.get(task_id)
        if live is not None:
            size, kept_size = live.size, live.kept_size
            self._count(live, 0, 0)
            live.client = client
            self._count(live, size, kept_size)

    def _add(self, live: LiveTask) -> None:
        """Keep a task in memory, instead of an earlier record of it."""
        size = _size(live.record)
        self._remove(live.record.task.id)
        self._live[live.record.task.id] = live
        self._count(live, size, 0 if self.store.counts_tasks else size)

    def _remove(self, task_id: str) -> None:
        live = self._live.pop(task_id, None)
        if live is not None:
            self._count(live, 0, 0)

    def _count(self, live: LiveTask, size: int, kept_size: int) -> None:
        """Count *size* bytes for a task; *kept_size* of them are kept here."""
        self.kept_bytes += kept_size - live.kept_size
        client_bytes = self._bytes_of.get(live.client, 0) + size - live.size
        if client_bytes:
            self._bytes_of[live.client] = client_bytes
        else:
            self._bytes_of.pop(live.client, None)
        live.size, live.kept_size = size, kept_size

    def _drop_call(self, record: TaskRecord) -> None:
        """Drop the call in `resume` unless the task is paused: claims read it from the store."""
        if record.task.status.state not in PAUSED:
            record.resume = None

    def _grow(self, live: LiveTask, growth: int | None) -> None:
        """Count the bytes that a change adds; measure the task if *growth* is None."""
        if self._live.get(live.record.task.id) is not live:
            self._add(live)
        if growth is not None:
            self._count(live, live.size + growth, live.kept_size + growth)
            return
        growth = max(_size(live.record) - live.size, 0)
        kept_growth = 0 if self.store.counts_tasks else growth
        self._count(live, live.size + growth, live.kept_size + kept_growth)

    def hand_over(self, task_id: str) -> None:
        """Leave a task to another replica or a later process, as this one is about to end."""
        self._handed_over.add(task_id)
        self.forget(task_id)

    def lease_of(self, task_id: str) -> Lease | None:
        """Return the lease of a task that this process runs; else None."""
        live = self._live.get(task_id)
        return None if live is None else live.lease

    async def lease_holders(self, task_ids: Sequence[str]) -> dict[str, str]:
        """Return the ids of the replicas that run these tasks, by task id."""
        own_id = self.store.replica_id
        holders = {task_id: own_id for task_id in task_ids if self.lease_of(task_id) is not None}
        rest = [task_id for task_id in task_ids if task_id not in holders]
        return {**await self.store.lease_holders(rest), **holders} if rest else holders

    def leases(self) -> list[Lease]:
        """Return the leases of all tasks that this process runs."""
        # a copy, made in one step: the heartbeat calls this from its own thread
        return [live.lease for live in [*self._live.values()] if live.lease is not None]

    def running(self) -> list[str]:
        """Return the ids of all tasks that this process runs or is changing now."""
        return [
            task_id
            for task_id, live in self._live.items()
            if live.lease is not None or live.lock.locked()
        ]

    def current(self, task_id: str) -> LiveTask | None:
        """Return a live task if this process runs it, or if the store is not shared; else None."""
        live = self._live.get(task_id)
        if live is not None and live.lease is None and self.store.is_shared:
            return None
        return live

    async def get(self, task_id: str) -> TaskRecord | None:
        """Return the current record; the caller must not modify its task."""
        live = self.current(task_id)
        return live.record if live is not None else await self.store.get(task_id)

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """Return the record of a task that belongs to *owner*, with the changes of all replicas."""
        live = None if self.store.is_shared else self.current(task_id)
        if live is None:
            return await self.store.get(task_id, owner)
        return live.record if live.record.owner == owner else None

    async def events(self, task_id: str, after: int) -> list[Event] | None:
        """Return the next events after version *after*; None if some were deleted."""
        live = self.current(task_id)
        if live is not None and live.tail and after >= live.tail[0].version - 1:
            events = live.tail[after - live.tail[0].version + 1 :]
            if events and events[0].has_gaps:
                events[0] = events[0].filled(live.record)
            return events
        return await self.store.events(task_id, after)

    async def wait_until_settled(self, task_id: str) -> TaskRecord:
        """Wait until a task has ended or paused; return its record.

        If this process wrote the end or pause, the record is not read back. If this process loses
        the task's lease, the wait goes on: the task will be claimed again.

        Raises:
            TaskNotFoundError: The task was deleted.
            DrainingError: The task was handed over; another request finds it at another replica.
        """
        with Waiter(self.waiters, task_id, 0, DELETION_CHECK_INTERVAL) as waiter:
            while True:
                if task_id in self._handed_over:
                    raise DrainingError
                live = self.current(task_id)
                record = await self.get(task_id)
                if record is None:
                    raise TaskNotFoundError
                if record.task.status.state in SETTLED:
                    return record
                waiter.after = record.version
                await waiter.wait()
                if live is not None and live.record.task.status.state in SETTLED:
                    return live.record

    def _remember(self, live: LiveTask, events: Sequence[Event]) -> None:
        """Keep the latest events of a task whose store is slower than memory."""
        live.tail += events
        if len(live.tail) > 2 * self.store.retention.max_events:
            del live.tail[: -self.store.retention.max_events]


def _size(record: TaskRecord) -> int:
    """Return about how many bytes a record takes."""
    is_paused = record.task.status.state in PAUSED
    return estimated_size(record.task) + (len(record.resume or b"") if is_paused else 0)


def _number_events(payloads: Sequence[Payload], first_version: int) -> list[Event]:
    return [*map(Event, range(first_version, first_version + len(payloads)), payloads)]
