"""The journal of tasks: what the change function writes and subscribers read.

Each task has a log of events with versions 1, 2, 3 … without gaps. The store is the truth;
of a task that can still change, its record is here, and who waits for more.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from a2a import types as a2a
from a2a.utils.errors import TaskNotFoundError
from apcore_a2a_core.records import Payload, TaskRecord
from apcore_a2a_core.states import PAUSED, SETTLED, TERMINAL, WORKING

from .errors import NotSavedError, StaleError
from .events import Event
from .port import Change, Claim, Lease, Page, Query, SendKey, Store
from .waiting import Waiters
from .webhooks import Edit, Webhook

logger = logging.getLogger(__name__)

OnState: TypeAlias = Callable[[TaskRecord | None, TaskRecord], None]
"""Takes a task before and after a change of its state; before its first state there is None."""


@dataclass(slots=True)
class Entry:
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


class Journal:
    """What one process knows of the tasks in a store.

    Args:
        store: Where tasks are kept.
        max_history: How many of its latest messages a task and a conversation hold.
        on_state: Callback for every change of a task's state.

    Attributes:
        store: Where tasks are kept.
    """

    def __init__(
        self, store: Store, *, max_history: int = 100, on_state: OnState | None = None
    ) -> None:
        self.max_history = max_history
        self._on_state = on_state
        self.store = store
        self._live: dict[str, Entry] = {}
        self._waiters = Waiters()

    async def create(
        self,
        record: TaskRecord,
        payloads: list[Payload],
        webhooks: Sequence[Webhook] = (),
        key: SendKey | None = None,
    ) -> Lease:
        """Store a new task with its first events, and its webhooks; the right to run it.

        Raises:
            RepeatedError: The send that it comes from has come before.
            KeyReusedError: Another send was known by the same key.
            StoreFullError: The store has no room and nothing it may drop.
        """
        record.version = len(payloads)
        events = _numbered(payloads, 1)
        entry = self._live[record.task.id] = Entry(record)
        async with entry.lock:  # the store may show the task before it tells us that it has it
            try:
                entry.lease = await self.store.create(record, events, webhooks, key)
            except Exception:  # a user's store may raise anything: then there is no task
                del self._live[record.task.id]
                raise
        if self.store.is_durable:
            self._keep(entry, events)
        self._tell(None, record)
        return entry.lease

    async def open(self, task_id: str) -> Entry | None:
        """The entry of a task that has not ended, made from the store if need be."""
        entry = self._own(task_id)
        if entry is None:
            record = await self.store.get(task_id)
            if record is None or record.task.status.state in TERMINAL:
                return None
            if not await self.store.is_current(record):
                return self._live.get(task_id)
            entry = Entry(record)
            if not self.store.is_shared:  # else it is for one change: then others may have it
                entry = self._live.setdefault(task_id, entry)
        return entry

    async def write(
        self,
        entry: Entry,
        record: TaskRecord,
        payloads: list[Payload],
        webhook: Webhook | None = None,
    ) -> None:
        """Make *record* the truth, with the events that lead to it; its caller has the lock.

        Who brings a paused task back to work runs it from now on.

        Raises:
            StaleError: The task is not any more what the change was made from.
        """
        before, ended = entry.record, record.task.status.state in TERMINAL
        run = before.task.status.state in PAUSED and record.task.status.state == WORKING
        events = _numbered(payloads, record.version - len(payloads) + 1)
        try:
            change = Change(record, before.version, events, entry.lease, run, webhook)
            entry.lease = await self.store.change(change)
        except NotSavedError:
            logger.error("The task store did not save the end of task %s", record.task.id)
            ended = False  # it stays here, where the truth is
        except StaleError:
            self.lose(record.task.id)
            raise
        entry.record = record
        if self.store.is_durable:
            self._keep(entry, events)
        if ended or (entry.lease is None and self.store.is_shared):
            self._live.pop(record.task.id, None)
        else:
            self._live[record.task.id] = entry
        self._waiters.wake(record.task.id, record.version)
        if before.task.status.state != record.task.status.state:
            self._tell(before, record)

    async def adopt(self, claim: Claim) -> None:
        """This process runs a task from now on that another has left."""
        self._live[claim.record.task.id] = Entry(claim.record, claim.lease)

    def lose(self, task_id: str) -> None:
        """Somebody else has changed the task, or may: what is known of it here is old."""
        if self.store.is_durable:
            self._live.pop(task_id, None)
            self._waiters.wake(task_id, sys.maxsize)

    def lease_of(self, task_id: str) -> Lease | None:
        """The right to run a task, when this process has it."""
        entry = self._live.get(task_id)
        return None if entry is None else entry.lease

    def leases(self) -> list[Lease]:
        """The tasks that this process runs."""
        return [entry.lease for entry in self._live.values() if entry.lease is not None]

    def _own(self, task_id: str) -> Entry | None:
        """The entry of a task that nobody else can have changed."""
        entry = self._live.get(task_id)
        if entry is not None and entry.lease is None and self.store.is_shared:
            return None
        return entry

    def _keep(self, entry: Entry, events: Sequence[Event]) -> None:
        entry.tail += events
        if len(entry.tail) > 2 * self.store.retention.max_events:
            del entry.tail[: -self.store.retention.max_events]

    async def get(self, task_id: str) -> TaskRecord | None:
        """The record as it is now; whoever gets it must not change its task."""
        entry = self._own(task_id)
        return entry.record if entry is not None else await self.store.get(task_id)

    async def get_own(self, task_id: str, owner: str) -> TaskRecord | None:
        """The same of a task that is the owner's, as others have left it."""
        entry = None if self.store.is_shared else self._own(task_id)
        if entry is None:
            return await self.store.get_own(task_id, owner)
        return entry.record if entry.record.owner == owner else None

    async def page(self, query: Query) -> Page:
        """A page of the records that *query* asks for."""
        return await self.store.query(query)

    async def conversation(self, owner: str, context_id: str) -> Sequence[a2a.Message]:
        """The latest messages of the owner's conversation in a context, in their order."""
        return await self.store.conversation(owner, context_id, self.max_history)

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        return await self.store.webhooks(task_id)

    async def edit_webhooks(self, task_id: str, edit: Edit) -> None:
        """Replace the webhooks of a task by what *edit* makes of them.

        Raises:
            TaskNotFoundError: The task has left.
        """
        while True:
            known = await self.store.webhooks(task_id)
            webhooks = edit(known)
            if await self.get(task_id) is None:
                raise TaskNotFoundError
            try:
                await self.store.save_webhooks(task_id, webhooks, known)
            except StaleError:  # others have edited them meanwhile
                continue
            return

    async def has_webhooks(self, task_id: str) -> bool:
        """Whether a task that has not ended has a webhook that has not failed."""
        if task_id not in self._live:
            return False
        return any(not webhook.failure for webhook in await self.store.webhooks(task_id))

    async def events(self, task_id: str, after: int) -> list[Event] | None:
        """The next events behind version *after*; None when some of them are gone."""
        entry = self._own(task_id)
        if entry is not None and entry.tail and after >= entry.tail[0].version - 1:
            return entry.tail[after - entry.tail[0].version + 1 :]
        return await self.store.events(task_id, after)

    def is_at_work(self, task_id: str, after: int) -> bool:
        """Whether this process knows that there is nothing yet behind *after*, and will be."""
        entry = self._own(task_id)
        if entry is None or entry.record.version > after:
            return False
        return entry.record.task.status.state not in SETTLED

    async def is_settled(self, task_id: str, after: int) -> bool:
        """Whether nothing will come behind version *after* by itself: it has ended or paused."""
        entry = self._own(task_id)
        if entry is None and self.store.is_durable:
            record = await self.store.get(task_id)
            return record is None or (
                record.version <= after and record.task.status.state in SETTLED
            )
        return entry is None or entry.record.task.status.state in SETTLED

    async def wait(self, task_id: str, after: int, seconds: float) -> bool:
        """Wait until the task is beyond version *after*; False when *seconds* were not enough."""
        entry = self._own(task_id)
        if entry is not None and entry.record.version > after:
            return True
        if entry is None and not self.store.is_durable:
            return True
        return await self._waiters.wait(task_id, after, seconds)

    async def settled(self, task_id: str) -> TaskRecord:
        """The record when the task has ended or paused.

        An end that this process has written need not be read.

        Raises:
            TaskNotFoundError: The task has left.
        """
        while True:
            entry = self._own(task_id)
            record = await self.get(task_id)
            if record is None:
                raise TaskNotFoundError
            if record.task.status.state in SETTLED:
                return record
            if entry is None and not self.store.is_shared:
                return record
            await self._waiters.wait(task_id, record.version, 3600)
            if entry is not None and entry.record.task.status.state in SETTLED:
                return entry.record

    async def look(self) -> list[Lease]:
        """See what others have changed: tell who waits for it; returns what they have ended."""
        shared = self.store.is_shared
        leased = [task_id for task_id, entry in self._live.items() if entry.lease and shared]
        awaited = [task_id for task_id in self._waiters.tasks() if self._own(task_id) is None]
        if not (asked := {*leased, *awaited}):
            return []
        versions = await self.store.versions([*asked])
        found = [self.hear(task_id, version) for task_id, version in versions.items()]
        return [lease for lease in found if lease is not None]

    def hear(self, task_id: str, version: int) -> Lease | None:
        """A task has come to *version*; the lease that this process has lost by that, if so."""
        entry = self._own(task_id)
        if entry is None:
            self._waiters.wake(task_id, version)
        # where it is locked, it is our own change that is on its way
        elif version > entry.record.version and not entry.lock.locked():
            return entry.lease
        return None

    def _tell(self, before: TaskRecord | None, after: TaskRecord) -> None:
        if self._on_state is not None:
            self._on_state(before, after)


def _numbered(payloads: Sequence[Payload], first: int) -> list[Event]:
    return [Event(number, payload) for number, payload in enumerate(payloads, first)]
