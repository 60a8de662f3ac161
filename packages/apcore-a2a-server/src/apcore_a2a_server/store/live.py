"""Live tasks: what this process knows of the tasks that can still change, and who waits for them.

Each task has a log of events with versions 1, 2, 3 … without gaps. The store is the truth. Of a
task that can still change, its record and lease are here, and its latest events where reading them
back from the store costs something.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from a2a.utils.errors import TaskNotFoundError
from apcore_a2a_core.records import Payload, TaskRecord
from apcore_a2a_core.states import PAUSED, SETTLED, TERMINAL, WORKING

from .errors import NotSavedError, StaleError
from .port import Change, Claim, Event, Lease, NewTask, SendKey, Store
from .webhooks import Webhook

logger = logging.getLogger(__name__)

OnState: TypeAlias = Callable[[TaskRecord | None, TaskRecord], None]
"""Takes a task before and after a change of its state; before its first state there is None."""


Waiter: TypeAlias = "asyncio.Future[bool]"


class Waiters:
    """Futures by task, each with the version that its reader has."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Waiter, int]] = {}

    async def wait(self, task_id: str, after: int, seconds: float) -> bool:
        """Wait until the task is beyond version *after*; False when *seconds* were not enough."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        known = self._waiting.setdefault(task_id, {})
        known[waiter] = after
        timer = loop.call_later(seconds, _settle, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            del known[waiter]
            if not known and self._waiting.get(task_id) is known:
                del self._waiting[task_id]

    def wake(self, task_id: str, version: int) -> None:
        """The task has come to *version*: tell those who have an earlier one."""
        for waiter, after in self._waiting.get(task_id, _NOBODY).items():
            if version > after:
                _settle(waiter, True)

    def tasks(self) -> list[str]:
        """The tasks that readers wait for."""
        return [*self._waiting]


_NOBODY: Mapping[Waiter, int] = {}


def _settle(waiter: Waiter, more: bool) -> None:
    if not waiter.done():
        waiter.set_result(more)


@dataclass(slots=True)
class LiveTask:
    """A task that may still change.

    Attributes:
        record: the task; of one that this process does not run, as it was when it was read.
        lease: the right to run it, when this process does.
        tail: its latest events, where reading them back costs something.
    """

    record: TaskRecord
    lease: Lease | None = None
    tail: list[Event] = field(default_factory=list[Event])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LiveTasks:
    """The tasks of a store, as this process knows them.

    Args:
        store: Where tasks are kept.
        max_history: How many of its latest messages a task and a conversation hold.
        on_state: Callback for every change of a task's state.

    Attributes:
        store: Where tasks are kept.
        waiters: Who waits for the next event of which task.
        max_history: How many of its latest messages a task and a conversation hold.
    """

    def __init__(
        self, store: Store, *, max_history: int = 100, on_state: OnState | None = None
    ) -> None:
        self.store = store
        self.waiters = Waiters()
        self.max_history = max_history
        self._on_state = on_state
        self._live: dict[str, LiveTask] = {}

    async def create(
        self,
        record: TaskRecord,
        payloads: list[Payload],
        webhooks: Sequence[Webhook] = (),
        key: SendKey | None = None,
    ) -> Lease:
        """Store a new task with its first events and webhooks; return the lease to run it.

        Raises:
            RepeatedError: The send that it comes from has come before.
            KeyReusedError: Another send was known by the same key.
            StoreFullError: The store has no room and nothing it may drop.
        """
        record.version = len(payloads)
        events = _numbered(payloads, 1)
        live = self._live[record.task.id] = LiveTask(record)
        async with live.lock:  # the store may show the task before it tells us that it has it
            try:
                live.lease = await self.store.create(NewTask(record, events, webhooks, key))
            except Exception:  # a user's store may raise anything: then there is no task
                del self._live[record.task.id]
                raise
        self._remember(live, events)
        self._report(None, record)
        return live.lease

    async def open(self, task_id: str) -> LiveTask | None:
        """Return a task that has not ended, read from the store if need be; None if it has."""
        live = self.current(task_id)
        if live is None:
            record = await self.store.get(task_id)
            if record is None or record.task.status.state in TERMINAL:
                return None
            if not await self.store.is_current(record):
                return self._live.get(task_id)
            live = LiveTask(record)
            if not self.store.is_shared:  # other replicas may change it: then it is read each time
                live = self._live.setdefault(task_id, live)
        return live

    async def write(
        self,
        live: LiveTask,
        record: TaskRecord,
        payloads: list[Payload],
        webhook: Webhook | None = None,
    ) -> None:
        """Make *record* the truth, with the events that lead to it; the caller holds the lock.

        Bringing a paused task back to work gives this process the lease to run it.

        Raises:
            StaleError: The task has changed since the change was made from it.
        """
        before, ended = live.record, record.task.status.state in TERMINAL
        run = before.task.status.state in PAUSED and record.task.status.state == WORKING
        events = _numbered(payloads, record.version - len(payloads) + 1)
        try:
            change = Change(record, before.version, events, live.lease, run, webhook)
            live.lease = await self.store.change(change)
        except NotSavedError:
            logger.error("The task store did not save the end of task %s", record.task.id)
            ended = False  # keep it in memory: the store did not save it
        except StaleError:
            self.forget(record.task.id)
            raise
        live.record = record
        self._remember(live, events)
        if ended or (live.lease is None and self.store.is_shared):
            self._live.pop(record.task.id, None)
        else:
            self._live[record.task.id] = live
        self.waiters.wake(record.task.id, record.version)
        if before.task.status.state != record.task.status.state:
            self._report(before, record)

    async def adopt(self, claim: Claim) -> None:
        """Run a claimed task in this process from now on."""
        self._live[claim.record.task.id] = LiveTask(claim.record, claim.lease)

    def forget(self, task_id: str) -> None:
        """Drop what is known of a task that others have changed, or may change."""
        if self.store.is_durable:
            self._live.pop(task_id, None)
            self.waiters.wake(task_id, sys.maxsize)

    def lease_of(self, task_id: str) -> Lease | None:
        """Return the lease of a task that this process runs; else None."""
        live = self._live.get(task_id)
        return None if live is None else live.lease

    def leases(self) -> list[Lease]:
        """Return the leases of all tasks that this process runs."""
        return [live.lease for live in self._live.values() if live.lease is not None]

    def current(self, task_id: str) -> LiveTask | None:
        """Return a task as it is now, if no other process can have changed it; else None."""
        live = self._live.get(task_id)
        if live is not None and live.lease is None and self.store.is_shared:
            return None
        return live

    async def get(self, task_id: str) -> TaskRecord | None:
        """Return the record as it is now; its task must not be changed."""
        live = self.current(task_id)
        return live.record if live is not None else await self.store.get(task_id)

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """Return the record of a task that belongs to *owner*, with the changes of all replicas."""
        live = None if self.store.is_shared else self.current(task_id)
        if live is None:
            return await self.store.get_own(task_id, owner)
        return live.record if live.record.owner == owner else None

    async def events(self, task_id: str, after: int) -> list[Event] | None:
        """Return the next events behind version *after*; None when some of them are gone."""
        live = self.current(task_id)
        if live is not None and live.tail and after >= live.tail[0].version - 1:
            return live.tail[after - live.tail[0].version + 1 :]
        return await self.store.events(task_id, after)

    async def settled(self, task_id: str) -> TaskRecord:
        """Wait until a task has ended or paused; return its record.

        An end that this process has written is not read back from the store.

        Raises:
            TaskNotFoundError: The task was deleted.
        """
        while True:
            live = self.current(task_id)
            record = await self.get(task_id)
            if record is None:
                raise TaskNotFoundError
            if record.task.status.state in SETTLED:
                return record
            if live is None and not self.store.is_shared:
                return record
            await self.waiters.wait(task_id, record.version, 3600)
            if live is not None and live.record.task.status.state in SETTLED:
                return live.record

    def _remember(self, live: LiveTask, events: Sequence[Event]) -> None:
        """Keep the latest events of a task whose store is slower than memory."""
        if self.store.is_durable:
            live.tail += events
            if len(live.tail) > 2 * self.store.retention.max_events:
                del live.tail[: -self.store.retention.max_events]

    def _report(self, before: TaskRecord | None, after: TaskRecord) -> None:
        if self._on_state is not None:
            self._on_state(before, after)


def _numbered(payloads: Sequence[Payload], first: int) -> list[Event]:
    return [Event(number, payload) for number, payload in enumerate(payloads, first)]
