"""In-process stores: events of tasks, leases and the outbox, kept beside the records.

Events live in memory. The log of a task that has ended is kept for some time as bytes, for
readers that come back late.
"""

import asyncio
import logging
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakValueDictionary

from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from .errors import LeaseLostError, NotSavedError, StaleError
from .outbox import Outbox
from .port import Change, Claim, Event, Lease, NewTask, SendKey, Store, pack, unpack
from .webhooks import Backlog, ClaimRequest, Notification, Webhook, with_webhook

logger = logging.getLogger("apcore_a2a.stores")


@dataclass(slots=True)
class _Log:
    """What happened to a task that can still change, and who may change it."""

    version: int
    events: list[Event] = field(default_factory=list[Event])
    epoch: int = 0
    attempts: int = 0
    expires: float | None = None
    """When its lease ends; None when nobody runs it."""
    deadline: float | None = None
    """When it waits for an answer no more, in seconds since 1970."""
    webhooks: Sequence[Webhook] = ()
    """Its webhooks, whether or not they could be saved."""

    def is_free(self) -> bool:
        """Whether somebody should see to it, and nobody does."""
        if self.expires is not None:
            return self.expires <= time.monotonic()
        return self.deadline is not None and self.deadline <= time.time()


_Ended: TypeAlias = tuple[float, int, tuple[bytes, ...]]
"""Of a task that has ended: when its log may leave, its first version, its events.

There are many; tuples of atoms are what the garbage collector need not go through.
"""


class InProcessStore(Store):
    """A store for one process: what derives from it keeps records and answers queries.

    It need not keep webhooks: those of tasks that have not ended are here.
    """

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._sends: OrderedDict[tuple[str, str], tuple[bytes, str]] = OrderedDict()
        self._outbox = Outbox(self.ring)
        self._delivers = False
        """Whether notifications are delivered; if not, webhooks need not be read."""
        self._edits: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks that serialize edits of a task's webhooks."""

    @abstractmethod
    async def save(self, record: TaskRecord) -> None:
        """Keep *record*, in place of the one with the same task id."""

    @abstractmethod
    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the webhooks of a task that were written last, as far as they are kept."""

    @abstractmethod
    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Keep these as the webhooks of a task."""

    async def create(self, new: NewTask) -> Lease:
        """Keep a new task, or nothing of it."""
        record, key, task_id = new.record, new.key, new.record.task.id
        if key is not None:
            await self._reserve(record.owner, key, task_id)
        log = _Log(record.version, [*new.events], webhooks=tuple(new.webhooks))
        self._logs[task_id] = log
        try:
            if log.webhooks:
                await self.write_webhooks(task_id, log.webhooks)
            await self.save(record)
        except Exception:  # a user's store may raise anything: then there is no task
            del self._logs[task_id]
            if key is not None:
                del self._sends[record.owner, key.text]
            if log.webhooks:
                await self.write_webhooks(task_id, ())
            raise
        if log.webhooks:
            self._outbox.add(record, log.webhooks, new.events)
        return self._lease(task_id, log)

    async def _reserve(self, owner: str, key: SendKey, task_id: str) -> None:
        """Take a key for a task, unless another task that is kept has it."""
        digest, known = self._sends.get((owner, key.text), (key.digest, ""))
        if known and (known in self._logs or await self.get(known) is not None):
            raise key.refusal(digest, known)
        self._sends[owner, key.text] = key.digest, task_id
        if len(self._sends) > self.retention.max_logs:
            self._sends.popitem(last=False)

    async def change(self, change: Change) -> Lease | None:
        """Make a change; the record is saved when it comes into another state."""
        record, task_id = change.record, change.record.task.id
        log = self._logs.get(task_id) or await self._reopened(task_id, change.base)
        if log.version != change.base:
            raise StaleError
        if change.lease is not None and change.lease.epoch != log.epoch:
            raise LeaseLostError
        log.version = record.version  # before anything is awaited: of two changes one is stale
        ended = record.task.status.state in TERMINAL
        saved = await self._saved(change, log, ended) if change.states else True
        if log.webhooks:
            self._outbox.add(record, log.webhooks, change.states)
        log.events += change.events
        if len(log.events) > 2 * self.retention.max_events:
            del log.events[: -self.retention.max_events]
        if not saved:
            raise NotSavedError
        if ended:
            self._end(task_id, log)
        log.deadline = record.deadline
        if record.task.status.state in SETTLED:
            log.expires = None
            return None
        if not change.run:
            return change.lease
        log.attempts = 0
        return self._lease(task_id, log)

    async def _saved(self, change: Change, log: _Log, ended: bool) -> bool:
        """Save a change of state; that of an end may fail, for its readers must hear of it."""
        before = log.webhooks
        try:
            if change.webhook is not None:
                await self._add_webhook(change.record.task.id, change.webhook)
        except BaseException:  # whatever it is, nothing has changed
            log.version = change.base
            raise
        try:
            await self.save(change.record)
        except (Exception, BaseExceptionGroup):  # a user's store may raise anything
            if not ended:
                log.version = change.base
                if change.webhook is not None:
                    await self._take_back(change.record.task.id, change.webhook, before)
                raise
            return False
        return True

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """The webhooks of a task, oldest first."""
        log = self._logs.get(task_id)
        webhooks = await self.read_webhooks(task_id) if log is None else log.webhooks
        return self._outbox.marked(task_id, webhooks)

    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], known: Sequence[Webhook] | None = None
    ) -> None:
        """Keep these as the webhooks of a task."""
        async with self._editing(task_id):
            if known is not None:
                is_kept = await self.get(task_id) is not None
                if not is_kept or [*known] != [*await self.webhooks(task_id)]:
                    raise StaleError
            await self._replace_webhooks(task_id, webhooks)

    def _editing(self, task_id: str) -> asyncio.Lock:
        return self._edits.setdefault(task_id, asyncio.Lock())

    async def _replace_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], *, must_save: bool = True
    ) -> None:
        try:
            await self.write_webhooks(task_id, webhooks)
        except Exception as error:  # a user's store may raise anything
            if must_save:
                raise
            told = "The webhooks of task %s were not saved: %s"
            logger.warning(told, task_id, type(error).__name__)
        if task_id in self._logs:
            self._logs[task_id].webhooks = tuple(webhooks)
        self._outbox.update(task_id, webhooks)

    async def _add_webhook(self, task_id: str, webhook: Webhook) -> None:
        async with self._editing(task_id):
            webhooks = with_webhook(await self.webhooks(task_id), webhook)
            await self._replace_webhooks(task_id, webhooks)

    async def _take_back(self, task_id: str, webhook: Webhook, before: Sequence[Webhook]) -> None:
        """Put back what a webhook has replaced, unless it was set again or deleted since."""
        previous = [known for known in before if known.config.id == webhook.config.id]
        async with self._editing(task_id):
            webhooks = await self.webhooks(task_id)
            if any(known is webhook for known in webhooks):
                others = [known for known in webhooks if known is not webhook]
                await self._replace_webhooks(task_id, [*previous, *others], must_save=False)

    async def _save_failures(self, task_id: str) -> None:
        """Save which of a task's webhooks have failed."""
        async with self._editing(task_id):
            log = self._logs.get(task_id)
            known = await self.read_webhooks(task_id) if log is None else log.webhooks
            marked = self._outbox.marked(task_id, known)
            if [*marked] != [*known]:
                await self._replace_webhooks(task_id, marked, must_save=False)
            self._outbox.saved(task_id, marked)

    async def claim_notifications(self, request: ClaimRequest) -> Sequence[Notification]:
        """Claim what is due, the next of each webhook."""
        return self._outbox.claim(request)

    async def settle(self, notification: Notification) -> None:
        """Forget it: it has been delivered."""
        self._outbox.settle(notification)

    async def postpone(self, notification: Notification, seconds: float) -> None:
        """Have it due again in so many seconds."""
        self._outbox.postpone(notification, seconds)

    async def give_up(self, notification: Notification, reason: str) -> int:
        """Have its webhook fail."""
        dead = self._outbox.fail(notification, reason)
        if dead:
            await self._save_failures(notification.task_id)
        return dead

    @property
    def backlog(self) -> Backlog:
        """The notifications that wait now."""
        return self._outbox.backlog

    async def limit_backlog(self, max_pending: int) -> int:
        """Hold owners to so much, from now on at once; return how much was given up."""
        self._delivers = True
        dead = self._outbox.limit(max_pending)
        for task_id in self._outbox.failing():
            await self._save_failures(task_id)
        return dead

    async def mark_due(self) -> None:
        """Have everything due at once."""
        self._outbox.mark_due()

    async def abandon_notifications(self) -> Sequence[tuple[Notification, int]]:
        """Forget all that waits."""
        return self._outbox.abandon()

    async def is_current(self, record: TaskRecord) -> bool:
        """Whether nothing has happened since; a slow store may give what was true long ago."""
        log = self._logs.get(record.task.id)
        return record.task.id not in self._ended if log is None else log.version == record.version

    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """The next events of a task; None when they have left, or happened in another process."""
        log = self._logs.get(task_id)
        if log is None:
            return self._replay(task_id, after, limit)
        first = log.events[0].version if log.events else log.version + 1
        begin = after - first + 1
        return log.events[begin : begin + limit] if begin >= 0 else None

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Have these leases last again for their whole time; returns those that are lost."""
        lost: list[Lease] = []
        for lease in leases:
            log = self._logs.get(lease.task_id)
            if log is None or log.expires is None or log.epoch != lease.epoch:
                lost.append(lease)
            else:
                log.expires = time.monotonic() + self.lease_seconds
        return lost

    async def release(self, leases: Sequence[Lease]) -> None:
        """Let others claim these tasks at once."""
        for lease in leases:
            log = self._logs.get(lease.task_id)
            if log is not None and log.expires is not None and log.epoch == lease.epoch:
                log.expires = 0

    async def claim(self, limit: int) -> Sequence[Claim]:
        """Lease up to *limit* tasks that somebody should see to."""
        claims: list[Claim] = []
        for task_id, log in [*self._logs.items()]:
            if log.is_free() and len(claims) < limit:
                record = await self.get(task_id)
                if record is not None:
                    log.attempts += 1
                    claims.append(Claim(record, self._lease(task_id, log), log.attempts))
        return claims

    def _lease(self, task_id: str, log: _Log) -> Lease:
        log.epoch += 1
        log.expires = time.monotonic() + self.lease_seconds
        return Lease(task_id, log.epoch)

    async def _reopened(self, task_id: str, base: int) -> _Log:
        """A new log of a task that has not ended, and that an earlier process has left."""
        if task_id in self._ended:
            raise StaleError
        record = await self.get(task_id)
        if record is None or record.version != base:
            raise StaleError
        webhooks = await self.read_webhooks(task_id) if self._delivers else ()
        return self._logs.setdefault(task_id, _Log(base, webhooks=webhooks))

    def _end(self, task_id: str, log: _Log) -> None:
        packed = tuple([pack(event.payload) for event in log.events])
        expires = time.monotonic() + self.retention.log_ttl
        self._ended[task_id] = expires, log.events[0].version, packed
        del self._logs[task_id]
        while len(self._ended) > 1:  # of the newest one the readers have yet to hear
            expires, _, _ = next(iter(self._ended.values()))
            if len(self._ended) <= self.retention.max_logs and expires > time.monotonic():
                return
            self._ended.popitem(last=False)

    def _replay(self, task_id: str, after: int, limit: int) -> list[Event] | None:
        log = self._ended.get(task_id)
        if log is None:
            return None
        _, first, packed = log
        begin = after - first + 1
        if begin < 0:
            return None
        behind = enumerate(packed[begin : begin + limit], after + 1)
        return [Event(version, unpack(data)) for version, data in behind]
