"""The outbox of an in-process store.

Each webhook has its own queue. Only the first event of a queue can be claimed, which keeps the
order. Queues that are not due yet are in a heap, by due time; due queues are grouped by owner and
host. A claim therefore looks only at what it takes and at the few busy owners and hosts, however
many events wait for a slow receiver.
"""

import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import TypeAlias

from apcore_a2a_core.data import Task
from apcore_a2a_core.records import Payload, TaskRecord
from apcore_a2a_core.values import size_of

from .port import Event
from .webhooks import TOO_MANY, Backlog, ClaimRequest, Notification, Webhook

MAX_BYTES_PER_OWNER = 256 * 1024 * 1024
"""Bytes that the pending notifications of one owner may take."""


@dataclass(slots=True)
class QueuedEvent:
    """An event that is to be sent to one webhook.

    Attributes:
        version: the version of the event.
        payload: the event.
        task: the task at the time of the event, for webhooks that get the whole task.
        size: the approximate size in bytes.
        since: when it was added, by the monotonic clock.
    """

    version: int
    payload: Payload
    task: Task | None
    size: int
    since: float


@dataclass(slots=True, eq=False, repr=False)
class WebhookQueue:
    """The pending events of one webhook, in their order.

    Attributes:
        task_id: the id of the webhook's task.
        owner: the principal that the task belongs to.
        webhook: the webhook as it is now.
        host: the host of the webhook.
        events: the pending events.
        attempts: how often the first event has been claimed.
        ticket: the number of its valid entry in the schedule, 0 for none. Old entries are not
            searched for and removed: they have another number and are skipped when they come up.
        is_claimed: whether the first event is being delivered.
        failure: the reason why the webhook has failed, until it has been saved.
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
        columns = self.task_id, self.owner, first.version, first.payload
        return Notification(*columns, self.webhook, self.attempts, first.task)


DueQueue: TypeAlias = tuple[int, WebhookQueue]
QueuesByHost: TypeAlias = OrderedDict[str, deque[DueQueue]]


class Outbox:
    """The pending notifications of all tasks of a store.

    Args:
        on_due: Called when a notification becomes due through a call of this object.

    Attributes:
        bytes: the approximate size of all pending notifications.
    """

    def __init__(self, on_due: Callable[[], None]) -> None:
        self._on_due = on_due
        self._queues: dict[str, list[WebhookQueue]] = {}
        self._due: OrderedDict[str, QueuesByHost] = OrderedDict()
        self._scheduled: list[tuple[float, int, WebhookQueue]] = []
        self._compact_at = 64
        self._tickets = count(1)
        self._pending: Counter[str] = Counter()
        self.bytes = 0
        self._bytes: Counter[str] = Counter()
        self._max_pending = sys.maxsize
        self._failing: dict[str, None] = {}
        self._dead_letters = 0

    @property
    def backlog(self) -> Backlog:
        """The pending notifications now."""
        times = [queue.events[0].since for queue in self._pending_queues()]
        age = time.monotonic() - min(times) if times else 0
        return Backlog(self._pending.total(), age)

    def add(self, record: TaskRecord, webhooks: Sequence[Webhook], events: Sequence[Event]) -> None:
        """Add notifications of *events* for each of *webhooks* that has not failed."""
        for webhook in webhooks:
            if webhook.failure:
                continue
            queue = self._queue_of(record, webhook)
            if queue.failure:
                continue
            was_empty = not queue.events
            for event in events:
                self._append(queue, event, record.task)
            owner = queue.owner
            if self._pending[owner] > self._max_pending or self._bytes[owner] > MAX_BYTES_PER_OWNER:
                self._fail(queue, TOO_MANY)
            elif was_empty:
                self._schedule(queue, 0)

    def update(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Replace the webhooks of a task.

        Notifications for removed webhooks are dropped; those for replaced ones are due at once.
        """
        current = {webhook.config.id: webhook for webhook in webhooks if not webhook.failure}
        for queue in [*self._queues.get(task_id, ())]:
            webhook = current.get(queue.webhook.config.id)
            if webhook is None and not queue.failure:
                self._clear(queue)
                self._remove(queue)
            elif webhook is not None and (queue.failure or webhook != queue.webhook):
                queue.webhook, queue.host, queue.failure = webhook, webhook.host, ""
                self._restart(queue)

    def claim(self, request: ClaimRequest) -> list[Notification]:
        """Claim due notifications from one owner after the other."""
        self._move_due()
        claimed: list[Notification] = []
        busy_owners, busy_hosts = {*request.owners}, {*request.hosts}
        for _ in range(len(self._due)):
            if len(claimed) >= request.limit:
                break
            owner, queues_by_host = next(iter(self._due.items()))
            # Owners take turns: the next claim starts with the owner after this one.
            self._due.move_to_end(owner)
            if owner in busy_owners:
                continue
            free_slots = min(request.per_owner, request.limit - len(claimed))
            # Even if all busy hosts come first, enough others follow to fill the free slots.
            for host in [*islice(queues_by_host, free_slots + len(busy_hosts))]:
                if free_slots and (owner, host) not in busy_hosts:
                    most = min(request.per_host, free_slots)
                    claimed_now = self._claim_from(queues_by_host, host, most, request.seconds)
                    free_slots -= len(claimed_now)
                    claimed += claimed_now
            if not queues_by_host:
                del self._due[owner]
        return claimed

    def settle(self, notification: Notification) -> None:
        """Delete a notification that was delivered; the next one becomes due."""
        queue = self._claimed_queue(notification)
        if queue is not None:
            self._subtract(queue, [queue.events.pop(0)])
            self._restart(queue)

    def postpone(self, notification: Notification, seconds: float) -> None:
        """Make a notification due again in *seconds*."""
        queue = self._claimed_queue(notification)
        if queue is not None:
            self._schedule(queue, seconds)

    def fail(self, notification: Notification, reason: str) -> int:
        """Mark a webhook as failed, unless it was replaced; return the dropped notifications."""
        for queue in self._queues.get(notification.task_id, ()):
            if queue.webhook is notification.webhook and not queue.failure:
                return self._fail(queue, reason)
        return 0

    def limit(self, max_pending: int) -> int:
        """Limit each owner's pending notifications; return how many were given up for that."""
        self._max_pending = max_pending
        for owner in [owner for owner, pending in self._pending.items() if pending > max_pending]:
            pending = 0
            for queue in [queue for queue in self._pending_queues() if queue.owner == owner]:
                pending += len(queue.events)
                if pending > max_pending:
                    self._fail(queue, TOO_MANY)
        dead_letters, self._dead_letters = self._dead_letters, 0
        return dead_letters

    def mark_due(self) -> None:
        """Make all notifications due now, except those that are being delivered."""
        for _, ticket, queue in [*self._scheduled]:
            if queue.ticket == ticket and not queue.is_claimed:
                self._schedule(queue, 0)

    def abandon(self) -> list[tuple[Notification, int]]:
        """Drop all; return the first notification of each webhook, and how many it had."""
        abandoned: list[tuple[Notification, int]] = []
        for queue in [*self._pending_queues()]:
            abandoned.append((queue.head(), self._clear(queue)))
            self._remove(queue)
        return abandoned

    def tasks_with_failures(self) -> list[str]:
        """Return the tasks that have webhooks whose failure has not been saved."""
        return [*self._failing]

    def with_failures(self, task_id: str, webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
        """Return *webhooks* with the failures that have not been saved."""
        if task_id not in self._failing:
            return webhooks
        queues = self._queues.get(task_id, ())
        failures = {queue.webhook.config.id: queue.failure for queue in queues if queue.failure}
        return [
            replace(each, failure=failures.get(each.config.id, each.failure)) for each in webhooks
        ]

    def forget_failures(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Forget the failures of a task's webhooks that were saved with *webhooks*."""
        active_ids = {webhook.config.id for webhook in webhooks if not webhook.failure}
        failed = [queue for queue in self._queues.get(task_id, ()) if queue.failure]
        saved = [queue for queue in failed if queue.webhook.config.id not in active_ids]
        for queue in saved:
            self._remove(queue)
        if len(saved) == len(failed):
            self._failing.pop(task_id, None)

    def _pending_queues(self) -> Iterator[WebhookQueue]:
        """Yield the queues that have events, oldest task first."""
        return (queue for queues in [*self._queues.values()] for queue in queues if queue.events)

    def _queue_of(self, record: TaskRecord, webhook: Webhook) -> WebhookQueue:
        queues = self._queues.setdefault(record.task.id, [])
        for queue in queues:
            if queue.webhook.config.id == webhook.config.id:
                return queue
        queues.append(WebhookQueue(record.task.id, record.owner, webhook, webhook.host))
        return queues[-1]

    def _append(self, queue: WebhookQueue, event: Event, task: Task) -> None:
        # Webhooks of protocol 0.3 get the whole task, as it was at the time of the event.
        is_task = isinstance(event.payload, Task)
        snapshot = task if queue.webhook.version == "0.3" and not is_task else None
        size = size_of(event.payload) + (0 if snapshot is None else size_of(snapshot))
        queued = QueuedEvent(event.version, event.payload, snapshot, size, time.monotonic())
        queue.events.append(queued)
        self._pending[queue.owner] += 1
        self._bytes[queue.owner] += size
        self.bytes += size

    def _schedule(self, queue: WebhookQueue, seconds: float, *, is_claimed: bool = False) -> None:
        """Make a queue due now, or in *seconds*."""
        queue.ticket, queue.is_claimed = next(self._tickets), is_claimed
        if seconds <= 0:
            self._add_due(queue)
            self._on_due()
            return
        heappush(self._scheduled, (time.monotonic() + seconds, queue.ticket, queue))
        # Outdated entries stay in the heap until they are due: drop them when they may be the most.
        if len(self._scheduled) > self._compact_at:
            self._scheduled = [entry for entry in self._scheduled if entry[2].ticket == entry[1]]
            heapify(self._scheduled)
            self._compact_at = 2 * len(self._scheduled) + 64

    def _restart(self, queue: WebhookQueue) -> None:
        """Make the first event of a queue due, with no attempts yet."""
        queue.attempts = 0
        if queue.events:
            self._schedule(queue, 0)
        else:
            self._remove(queue)

    def _add_due(self, queue: WebhookQueue) -> None:
        queues_by_host = self._due.setdefault(queue.owner, OrderedDict())
        queues_by_host.setdefault(queue.host, deque()).append((queue.ticket, queue))

    def _move_due(self) -> None:
        """Move the queues whose due time has come from the heap to the due ones."""
        now = time.monotonic()
        while self._scheduled and self._scheduled[0][0] <= now:
            _, ticket, queue = heappop(self._scheduled)
            if queue.ticket == ticket:
                queue.is_claimed = False
                self._add_due(queue)

    def _claim_from(
        self, queues_by_host: QueuesByHost, host: str, most: int, seconds: float
    ) -> list[Notification]:
        """Claim up to *most* due notifications for a host."""
        due_queues, claimed = queues_by_host[host], list[Notification]()
        while due_queues and len(claimed) < most:
            ticket, queue = due_queues.popleft()
            if queue.ticket == ticket:
                queue.attempts += 1
                claimed.append(queue.head())
                self._schedule(queue, seconds, is_claimed=True)
        queues_by_host.move_to_end(host)
        if not due_queues:
            del queues_by_host[host]
        return claimed

    def _claimed_queue(self, notification: Notification) -> WebhookQueue | None:
        """Return the queue of a notification; None if it was claimed again since."""
        for queue in self._queues.get(notification.task_id, ()):
            if queue.webhook is notification.webhook and queue.events:
                head = queue.events[0].version, queue.attempts
                if head == (notification.version, notification.attempts):
                    return queue
        return None

    def _fail(self, queue: WebhookQueue, reason: str) -> int:
        queue.failure = reason
        self._failing[queue.task_id] = None
        if reason is TOO_MANY:
            self._dead_letters += len(queue.events)
        return self._clear(queue)

    def _clear(self, queue: WebhookQueue) -> int:
        """Drop the events of a queue; return how many."""
        dropped, queue.events, queue.ticket = queue.events, [], 0
        self._subtract(queue, dropped)
        return len(dropped)

    def _subtract(self, queue: WebhookQueue, removed: Sequence[QueuedEvent]) -> None:
        """Subtract removed events from the totals of their owner."""
        owner = queue.owner
        self._pending[owner] -= len(removed)
        size = sum(event.size for event in removed)
        self._bytes[owner] -= size
        self.bytes -= size
        if not self._pending[owner]:
            del self._pending[owner], self._bytes[owner]

    def _remove(self, queue: WebhookQueue) -> None:
        queue.ticket = 0
        queues = self._queues[queue.task_id]
        queues.remove(queue)
        if not queues:
            del self._queues[queue.task_id]
