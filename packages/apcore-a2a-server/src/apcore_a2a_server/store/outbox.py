"""The outbox of a store that lives in one process.

Each webhook has a queue of its own, of which only the first event can be claimed: that keeps the
order. Queues whose time has not come lie in a heap, by due time; those that are due lie with their
owner and host. So a claim looks at what it takes, and at the few owners and hosts that are busy,
however many events wait for a slow receiver.
"""

import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import TypeAlias

from a2a import types as a2a
from apcore_a2a_core.records import Payload, TaskRecord

from .port import Event
from .webhooks import TOO_MANY, Backlog, ClaimRequest, Notification, Webhook

MAX_BYTES = 256 * 1024 * 1024
"""How large all that waits for one owner may be."""


@dataclass(slots=True)
class QueuedEvent:
    """An event that a webhook is to be notified of.

    Attributes:
        version: the number of the event.
        payload: the event.
        task: the task as it was then, for webhooks that are sent the whole of it.
        size: bytes, about.
        since: when it came, by the monotonic clock.
    """

    version: int
    payload: Payload
    task: a2a.Task | None
    size: int
    since: float


@dataclass(slots=True, eq=False, repr=False)
class WebhookQueue:
    """The events that wait for one webhook, in their order.

    Attributes:
        task_id: the id of the webhook's task.
        owner: the principal that the task belongs to.
        webhook: the webhook as it is now.
        host: where it is.
        events: what waits.
        attempts: how often the first event has been claimed.
        ticket: what its one valid place in the schedule is known by; places are never searched
            for and removed, but passed over when they turn out to be old.
        is_claimed: whether the first event is being delivered.
        failure: why the webhook has failed; it is kept here until that has been saved.
    """

    task_id: str
    owner: str
    webhook: Webhook
    host: str
    events: list[QueuedEvent] = field(default_factory=list[QueuedEvent])
    attempts: int = 0
    ticket: int = 0
    is_claimed: bool = False
    failure: str = ""

    def head(self) -> Notification:
        """Return the first event as a notification."""
        first = self.events[0]
        about = self.task_id, self.owner, first.version, first.payload
        return Notification(*about, self.webhook, self.attempts, first.task)


Place: TypeAlias = tuple[int, WebhookQueue]
Hosts: TypeAlias = OrderedDict[str, deque[Place]]


class Outbox:
    """The notifications of all tasks of a store.

    Args:
        on_due: Called when there is something to claim that was not there before.
    """

    def __init__(self, on_due: Callable[[], None]) -> None:
        self._on_due = on_due
        self._queues: dict[str, list[WebhookQueue]] = {}
        self._due: OrderedDict[str, Hosts] = OrderedDict()
        self._later: list[tuple[float, int, WebhookQueue]] = []
        self._compact_at = 64
        self._tickets = count(1)
        self._pending: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._max_pending = sys.maxsize
        self._failing: dict[str, None] = {}
        self._dead = 0

    @property
    def backlog(self) -> Backlog:
        """The notifications that wait now."""
        firsts = [queue.events[0].since for queue in self._all()]
        age = time.monotonic() - min(firsts) if firsts else 0
        return Backlog(self._pending.total(), age)

    def add(self, record: TaskRecord, webhooks: Sequence[Webhook], events: Sequence[Event]) -> None:
        """Have each of *webhooks* that has not failed notified of *events*."""
        for webhook in webhooks:
            if webhook.failure:
                continue
            queue = self._queue_of(record, webhook)
            if queue.failure:
                continue
            is_idle = not queue.events
            for event in events:
                self._append(queue, event, record.task)
            owner = queue.owner
            if self._pending[owner] > self._max_pending or self._bytes[owner] > MAX_BYTES:
                self._fail(queue, TOO_MANY)
            elif is_idle:
                self._schedule(queue, 0)

    def update(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Adopt the new webhooks of a task.

        Drop what waits for one that is gone; for one that was set again it is due at once.
        """
        current = {webhook.config.id: webhook for webhook in webhooks if not webhook.failure}
        for queue in [*self._queues.get(task_id, ())]:
            webhook = current.get(queue.webhook.config.id)
            if webhook is None and not queue.failure:
                self._clear(queue)
                self._remove(queue)
            elif webhook is not None and (queue.failure or webhook != queue.webhook):
                queue.webhook, queue.host, queue.failure = webhook, webhook.host, ""
                queue.attempts = 0
                if queue.events:
                    self._schedule(queue, 0)
                else:
                    self._remove(queue)

    def claim(self, request: ClaimRequest) -> list[Notification]:
        """Claim what is due, owner by owner in turn."""
        self._ripen()
        found: list[Notification] = []
        busy_owners, busy_hosts = {*request.owners}, {*request.hosts}
        for _ in range(len(self._due)):
            if len(found) >= request.limit:
                break
            owner, hosts = next(iter(self._due.items()))
            self._due.move_to_end(owner)
            if owner in busy_owners:
                continue
            most = min(request.per_owner, request.limit - len(found))
            # one host more than there can be busy ones, so that there is something to take
            for host in [*islice(hosts, most + len(busy_hosts))]:
                if most and (owner, host) not in busy_hosts:
                    taken = self._take(hosts, host, min(request.per_host, most), request.seconds)
                    most -= len(taken)
                    found += taken
            if not hosts:
                del self._due[owner]
        return found

    def settle(self, notification: Notification) -> None:
        """Forget a notification that has been delivered; the next one is due."""
        queue = self._claimed(notification)
        if queue is not None:
            self._account(queue, [queue.events.pop(0)])
            queue.attempts = 0
            if queue.events:
                self._schedule(queue, 0)
            else:
                self._remove(queue)

    def postpone(self, notification: Notification, seconds: float) -> None:
        """Have it due again in so many seconds."""
        queue = self._claimed(notification)
        if queue is not None:
            self._schedule(queue, seconds)

    def fail(self, notification: Notification, reason: str) -> int:
        """Have its webhook fail, unless it was set again; return how many are given up."""
        for queue in self._queues.get(notification.task_id, ()):
            if queue.webhook is notification.webhook and not queue.failure:
                return self._fail(queue, reason)
        return 0

    def limit(self, max_pending: int) -> int:
        """Hold owners to so many from now on; return how many were given up for that."""
        self._max_pending = max_pending
        for owner in [owner for owner, pending in self._pending.items() if pending > max_pending]:
            kept = 0
            for queue in [queue for queue in self._all() if queue.owner == owner]:
                kept += len(queue.events)
                if kept > max_pending:
                    self._fail(queue, TOO_MANY)
        dead, self._dead = self._dead, 0
        return dead

    def mark_due(self) -> None:
        """Have everything due now that waits for its time."""
        for _, ticket, queue in [*self._later]:
            if queue.ticket == ticket and not queue.is_claimed:
                self._schedule(queue, 0)

    def abandon(self) -> list[tuple[Notification, int]]:
        """Forget all: the first notification of each webhook, and how many there were."""
        found = [(queue.head(), len(queue.events)) for queue in self._all()]
        for queue in [*self._all()]:
            self._clear(queue)
            self._remove(queue)
        return found

    def failing(self) -> list[str]:
        """Return the tasks with webhooks whose failure has not been saved."""
        return [*self._failing]

    def marked(self, task_id: str, webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
        """Return *webhooks* with the failures that have not been saved."""
        if task_id not in self._failing:
            return webhooks
        queues = self._queues.get(task_id, ())
        reasons = {queue.webhook.config.id: queue.failure for queue in queues if queue.failure}
        return [replace(w, failure=reasons.get(w.config.id, w.failure)) for w in webhooks]

    def saved(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Forget the failures that are among a task's webhooks, as they were saved."""
        active = {webhook.config.id for webhook in webhooks if not webhook.failure}
        failed = [queue for queue in self._queues.get(task_id, ()) if queue.failure]
        saved = [queue for queue in failed if queue.webhook.config.id not in active]
        for queue in saved:
            self._remove(queue)
        if len(saved) == len(failed):
            self._failing.pop(task_id, None)

    def _all(self) -> Iterator[WebhookQueue]:
        """Iterate over the queues in which something waits, oldest task first."""
        return (queue for queues in [*self._queues.values()] for queue in queues if queue.events)

    def _queue_of(self, record: TaskRecord, webhook: Webhook) -> WebhookQueue:
        queues = self._queues.setdefault(record.task.id, [])
        for queue in queues:
            if queue.webhook.config.id == webhook.config.id:
                return queue
        queues.append(WebhookQueue(record.task.id, record.owner, webhook, webhook.host))
        return queues[-1]

    def _append(self, queue: WebhookQueue, event: Event, task: a2a.Task) -> None:
        is_whole = isinstance(event.payload, a2a.Task)
        then = task if queue.webhook.version == "0.3" and not is_whole else None
        size = event.payload.ByteSize() + (0 if then is None else then.ByteSize())
        queued = QueuedEvent(event.version, event.payload, then, size, time.monotonic())
        queue.events.append(queued)
        self._pending[queue.owner] += 1
        self._bytes[queue.owner] += size

    def _schedule(self, queue: WebhookQueue, seconds: float, *, is_claimed: bool = False) -> None:
        """Give a queue its place: now, or so many seconds later."""
        queue.ticket, queue.is_claimed = next(self._tickets), is_claimed
        if seconds <= 0:
            self._put(queue)
            self._on_due()
            return
        heappush(self._later, (time.monotonic() + seconds, queue.ticket, queue))
        if len(self._later) > self._compact_at:
            self._later = [place for place in self._later if place[2].ticket == place[1]]
            heapify(self._later)
            self._compact_at = 2 * len(self._later) + 64

    def _put(self, queue: WebhookQueue) -> None:
        hosts = self._due.setdefault(queue.owner, OrderedDict())
        hosts.setdefault(queue.host, deque()).append((queue.ticket, queue))

    def _ripen(self) -> None:
        """Put the queues whose time has come where claims look for them."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            _, ticket, queue = heappop(self._later)
            if queue.ticket == ticket:
                queue.is_claimed = False
                self._put(queue)

    def _take(self, hosts: Hosts, host: str, most: int, seconds: float) -> list[Notification]:
        """Claim up to *most* of what is due for a host."""
        places, found = hosts[host], list[Notification]()
        while places and len(found) < most:
            ticket, queue = places.popleft()
            if queue.ticket == ticket:
                queue.attempts += 1
                found.append(queue.head())
                self._schedule(queue, seconds, is_claimed=True)
        hosts.move_to_end(host)
        if not places:
            del hosts[host]
        return found

    def _claimed(self, notification: Notification) -> WebhookQueue | None:
        """Find the queue of a notification that has not been claimed again since."""
        for queue in self._queues.get(notification.task_id, ()):
            if queue.webhook is notification.webhook and queue.events:
                first = queue.events[0].version, queue.attempts
                if first == (notification.version, notification.attempts):
                    return queue
        return None

    def _fail(self, queue: WebhookQueue, reason: str) -> int:
        queue.failure = reason
        self._failing[queue.task_id] = None
        if reason is TOO_MANY:
            self._dead += len(queue.events)
        return self._clear(queue)

    def _clear(self, queue: WebhookQueue) -> int:
        """Give up what waits in a queue; return how much that was."""
        dead, queue.events, queue.ticket = queue.events, [], 0
        self._account(queue, dead)
        return len(dead)

    def _account(self, queue: WebhookQueue, gone: Sequence[QueuedEvent]) -> None:
        owner = queue.owner
        self._pending[owner] -= len(gone)
        self._bytes[owner] -= sum(event.size for event in gone)
        if not self._pending[owner]:
            del self._pending[owner], self._bytes[owner]

    def _remove(self, queue: WebhookQueue) -> None:
        queue.ticket = 0
        queues = self._queues[queue.task_id]
        queues.remove(queue)
        if not queues:
            del self._queues[queue.task_id]
