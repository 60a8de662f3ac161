"""What a store in one process has beside its records: the events of tasks, and their leases.

Events live in memory. The log of a task that has ended is kept for some time as bytes, for
readers that come back late.
"""

import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from .errors import KeyReusedError, LeaseLostError, NotSavedError, RepeatedError, StaleError
from .events import Event, pack, unpack
from .port import Change, Claim, Lease, SendKey, Store
from .webhooks import Webhook


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
    """A store for one process: what derives from it keeps records and answers queries."""

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._sends: OrderedDict[tuple[str, str], tuple[bytes, str]] = OrderedDict()

    @abstractmethod
    async def save(self, record: TaskRecord) -> None:
        """Keep *record*, in place of the one with the same task id."""

    async def create(
        self,
        record: TaskRecord,
        events: Sequence[Event],
        webhooks: Sequence[Webhook] = (),
        key: SendKey | None = None,
    ) -> Lease:
        """Keep a new task, or nothing of it."""
        task_id = record.task.id
        if key is not None:
            await self._reserve(record.owner, key, task_id)
        log = self._logs[task_id] = _Log(record.version, [*events])
        try:
            if webhooks:
                await self.save_webhooks(task_id, webhooks)
            await self.save(record)
        except Exception:  # a user's store may raise anything: then there is no task
            del self._logs[task_id]
            if key is not None:
                del self._sends[record.owner, key.text]
            if webhooks:
                await self.save_webhooks(task_id, ())
            raise
        return self._lease(task_id, log)

    async def _reserve(self, owner: str, key: SendKey, task_id: str) -> None:
        """Take a key for a task, unless another task that is kept has it."""
        digest, known = self._sends.get((owner, key.text), (key.digest, ""))
        if known and (known in self._logs or await self.get(known) is not None):
            raise (RepeatedError if digest == key.digest else KeyReusedError)(known)
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
        try:
            await self.save(change.record)
        except (Exception, BaseExceptionGroup):  # a user's store may raise anything
            if not ended:
                log.version = change.base
                raise
            return False
        return True

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
        return self._logs.setdefault(task_id, _Log(base))

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
