"""The journal of tasks: what the change function writes and subscribers read.

Each task has a log of events with versions 1, 2, 3 … without gaps. The store is the truth;
of a task that can still change, its record is here, and who waits for more.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakValueDictionary

from a2a import types as a2a
from a2a.utils.errors import TaskNotFoundError

from .errors import NotSavedError
from .events import Event
from .port import Change, Lease, Page, Query, Retention, Store
from .records import TaskRecord
from .states import SETTLED, TERMINAL
from .webhooks import Outbox, Payload, Transition, Webhook

logger = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[TaskRecord | None, TaskRecord], None]
"""Is told of a task before and after a change of its state; before its first there is None."""


@dataclass(slots=True)
class Entry:
    """A task that may still change: its record, and who waits for more."""

    record: TaskRecord
    webhooks: Sequence[Webhook] = ()
    lease: Lease | None = None
    waiters: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Journal:
    """What one process knows of the tasks in a store.

    Args:
        store: Where tasks are kept.
        retention: How much is kept of what has happened.
        max_history: How many of its latest messages a task and a conversation hold.

    Attributes:
        listeners: Who is told of every change of a task's state.
        outbox: What tells webhooks; None when there are none.
    """

    def __init__(
        self, store: Store, retention: Retention | None = None, *, max_history: int = 100
    ) -> None:
        self.max_history = max_history
        self.listeners: list[Listener] = []
        self.outbox: Outbox | None = None
        self._store = store
        self._live: dict[str, Entry] = {}
        self._editing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        store.retention = retention or store.retention

    @property
    def keeps_webhooks(self) -> bool:
        """Whether the store has a place for webhooks."""
        return self._store.keeps_webhooks

    async def create(
        self, record: TaskRecord, payloads: list[Payload], webhooks: Sequence[Webhook] = ()
    ) -> None:
        """Store a new task with its first events, and its webhooks.

        Raises:
            StoreFullError: The store has no room and nothing it may drop.
        """
        record.version = len(payloads)
        events = _numbered(payloads, 1)
        entry = self._live[record.task.id] = Entry(record, webhooks)
        async with entry.lock:  # the store may show the task before it tells us that it has it
            try:
                entry.lease = await self._store.create(record, events, webhooks)
            except Exception:  # a user's store may raise anything: then there is no task
                del self._live[record.task.id]
                raise
        self._tell(None, record)
        self._post(entry, events)

    async def open(self, task_id: str) -> Entry | None:
        """The entry of a task that has not ended, made from the store if need be."""
        if task_id not in self._live:
            record = await self._store.get(task_id)
            if record is None or record.task.status.state in TERMINAL:
                return None
            async with self._edits(task_id):
                webhooks = await self._store.webhooks(task_id) if self.outbox else ()
                if not await self._store.is_current(record):
                    return self._live.get(task_id)
                self._live.setdefault(task_id, Entry(record, webhooks))
        return self._live[task_id]

    async def write(
        self, entry: Entry, record: TaskRecord, payloads: list[Payload], *, run: bool = False
    ) -> None:
        """Make *record* the truth, with the events that lead to it; its caller has the lock.

        Args:
            entry: The task.
            record: The task after the change.
            payloads: What happened.
            run: Whether this process runs the task from now on.

        Raises:
            StaleError: The task is not any more what the change was made from.
        """
        before, ended = entry.record, record.task.status.state in TERMINAL
        events = _numbered(payloads, record.version - len(payloads) + 1)
        try:
            change = Change(record, before.version, events, entry.lease, run)
            entry.lease = await self._store.change(change)
        except NotSavedError:
            logger.error("The task store did not save the end of task %s", record.task.id)
            ended = False  # it stays here, where the truth is
        entry.record = record
        if ended:
            del self._live[record.task.id]
        for waiter in entry.waiters:
            _wake(waiter)
        if before.task.status.state != record.task.status.state:
            self._tell(before, record)
        self._post(entry, events)

    async def get(self, task_id: str) -> TaskRecord | None:
        """The record as it is now; whoever gets it must not change its task."""
        entry = self._live.get(task_id)
        return entry.record if entry is not None else await self._store.get(task_id)

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's."""
        entry = self._live.get(task_id)
        if entry is None:
            return await self._store.get_own(task_id, owner)
        return entry.record if entry.record.owner == owner else None

    async def page(self, query: Query) -> Page:
        """A page of the records that *query* asks for."""
        return await self._store.query(query)

    async def conversation(self, owner: str, context_id: str) -> Sequence[a2a.Message]:
        """The latest messages of the owner's conversation in a context, in their order."""
        return await self._store.conversation(owner, context_id, self.max_history)

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        entry = self._live.get(task_id)
        return entry.webhooks if entry is not None else await self._store.webhooks(task_id)

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
                await self._store.save_webhooks(task_id, webhooks)
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

    async def events(self, task_id: str, after: int) -> list[Event] | None:
        """The next events behind version *after*; None when some of them are gone."""
        return await self._store.events(task_id, after)

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


def _numbered(payloads: Sequence[Payload], first: int) -> list[Event]:
    return [Event(number, payload) for number, payload in enumerate(payloads, first)]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
