"""The outbox of an in-process store.

Each webhook has its own queue. Only the first event of a queue can be claimed, which keeps the
order. Queues that are not due yet are in a heap, by due time; due queues are grouped by owner and
host. A claim therefore looks only at the queues that it claims and at a few busy owners and hosts,
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

from apcore_a2a_core.data import Task, TaskPushNotificationConfig
from apcore_a2a_core.records import Payload, TaskRecord
from apcore_a2a_core.values import size_of

from .port import Event
from .webhooks import (
    TOO_MANY_PENDING,
    Attempt,
    Backlog,
    ClaimRequest,
    Notification,
    Webhook,
    WebhookStatus,
    attempts_from,
    with_attempt,
)

MAX_BYTES_PER_OWNER = 256 * 1024 * 1024
"""Maximum size of the pending notifications of one owner, in bytes."""


@dataclass(slots=True)
class QueuedEvent:
    """An event that is to be sent to one webhook.

    Attributes:
        version: the version of the event.
        payload: the event.
        task: the task at the time of the event; None if it is not needed, or no longer known.
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
        attempts: how many times the first event has been claimed.
        ticket: the number of its valid entry in the heap or the due queues, 0 for none. Entries
            with another number are outdated, and skipped when they come up.
        due: when the first event is due, or its claim expires, by the monotonic clock.
        is_claimed: whether the first event is being delivered.
        failure: the reason why the webhook has failed; empty if it has not. The queue of a failed
            webhook is kept until the failure has been saved.
    """

    task_id: str
    owner: str
    webhook: Webhook
    host: str
    events: list[QueuedEvent] = field(default_factory=list[QueuedEvent])
    attempts: int = 0
    ticket: int = 0
    due: float = 0
    is_claimed: bool = False
    failure: str = ""

    def head(self) -> Notification:
        """Return the first event as a notification."""
        first = self.events[0]
        members = self.task_id, self.owner, first.version, first.payload
        return Notification(*members, self.webhook, self.attempts, first.task)


@dataclass(slots=True)
class WebhookHistory:
    """The last attempts of a webhook, and the first notification that was given up.

    Attributes:
        config: the push config of the webhook.
        attempts: the attempts as text.
        given_up_version: the version of the first notification that was given up when the
            webhook last failed; 0 for none.
    """

    config: TaskPushNotificationConfig
    attempts: str = ""
    given_up_version: int = 0


DueEntry: TypeAlias = tuple[int, WebhookQueue]
"""The ticket of an entry (see `WebhookQueue`), and the webhook's queue that is due."""
QueuesByHost: TypeAlias = OrderedDict[str, deque[DueEntry]]


class Outbox:
    """The pending notifications of all tasks of a store, and the attempts to deliver them.

    Args:
        on_due: Called when a method of this object makes a notification due.
        keeps_history: Returns whether to keep the attempts of a task's webhooks; `forget` drops
            them.

    Attributes:
        bytes: the approximate size of all pending notifications and all attempts.
    """

    def __init__(
        self, on_due: Callable[[], None], keeps_history: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._on_due = on_due
        self._keeps_history = keeps_history
        self._histories: dict[str, dict[str, WebhookHistory]] = {}
        self._queues: dict[str, list[WebhookQueue]] = {}
        self._due: OrderedDict[str, QueuesByHost] = OrderedDict()
        self._scheduled: list[tuple[float, int, WebhookQueue]] = []
        self._compact_at = 64
        self._tickets = count(1)
        self._pending: Counter[str] = Counter()
        self.bytes = 0
        self._bytes_of: Counter[str] = Counter()
        self._max_pending = sys.maxsize
        self._tasks_with_failures: dict[str, None] = {}
        self._dead_letter_count = 0

    @property
    def backlog(self) -> Backlog:
        """The current number of pending notifications, and the age of the oldest."""
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
            if self._exceeds_limits(queue.owner):
                self._fail(queue, TOO_MANY_PENDING)
            elif was_empty:
                self._schedule(queue, 0)

    def requeue(self, record: TaskRecord, webhook: Webhook, events: Sequence[Event]) -> int:
        """Add notifications of earlier *events* for a webhook; return how many are pending now.

        A webhook of protocol 0.3 gets the task as it is at delivery, with the event's status.
        """
        queue = self._queue_of(record, webhook)
        pending_versions = {event.version for event in queue.events}
        for event in events:
            if event.version not in pending_versions:
                self._append(queue, event, None)
        queue.events.sort(key=lambda event: event.version)
        if self._exceeds_limits(queue.owner):
            self._fail(queue, TOO_MANY_PENDING)
        else:
            self._restart(queue)
        return len(queue.events)

    def update(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Replace the webhooks of a task.

        Notifications for removed webhooks are dropped; those for replaced ones are due at once.
        """
        configs = {webhook.config.id: webhook.config for webhook in webhooks}
        for config_id, history in [*self._histories.get(task_id, {}).items()]:
            if configs.get(config_id) != history.config:
                self._drop_history(task_id, config_id)
        active_webhooks = {
            webhook.config.id: webhook for webhook in webhooks if not webhook.failure
        }
        for queue in [*self._queues.get(task_id, ())]:
            webhook = active_webhooks.get(queue.webhook.config.id)
            if webhook is None and not queue.failure:
                self._clear(queue)
                self._remove(queue)
            elif webhook is not None and (queue.failure or webhook != queue.webhook):
                queue.webhook, queue.host, queue.failure = webhook, webhook.host, ""
                self._restart(queue)

    def claim(self, request: ClaimRequest) -> list[Notification]:
        """Claim due notifications of one owner after another."""
        self._move_due()
        claimed: list[Notification] = []
        busy_owners, busy_pairs = {*request.owners}, {*request.hosts}
        for _ in range(len(self._due)):
            if len(claimed) >= request.limit:
                break
            owner, queues_by_host = next(iter(self._due.items()))
            # Owners take turns: the next claim starts with the owner after this one.
            self._due.move_to_end(owner)
            if owner in busy_owners:
                continue
            free_slots = min(request.per_owner, request.limit - len(claimed))
            # All busy hosts may come first: look at enough hosts to fill the free slots even then.
            for host in [*islice(queues_by_host, free_slots + len(busy_pairs))]:
                if free_slots and (owner, host) not in busy_pairs:
                    limit = min(request.per_host, free_slots)
                    claimed_now = self._claim_from(queues_by_host, host, limit, request.seconds)
                    free_slots -= len(claimed_now)
                    claimed += claimed_now
            if not queues_by_host:
                del self._due[owner]
        return claimed

    def settle(self, notification: Notification, attempt: Attempt | None = None) -> None:
        """Delete a notification that was delivered; the next one becomes due."""
        queue = self._claimed_queue(notification)
        if queue is not None:
            self._add_attempt(queue, attempt)
            self._subtract(queue, [queue.events.pop(0)])
            self._restart(queue)

    def postpone(
        self, notification: Notification, seconds: float, attempt: Attempt | None = None
    ) -> None:
        """Make a notification due again in *seconds*."""
        queue = self._claimed_queue(notification)
        if queue is not None:
            self._add_attempt(queue, attempt)
            self._schedule(queue, seconds)

    def fail(self, notification: Notification, reason: str, attempt: Attempt | None = None) -> int:
        """Mark a webhook as failed, unless it was replaced; return the number of dropped events."""
        for queue in self._queues.get(notification.task_id, ()):
            if queue.webhook is notification.webhook and not queue.failure:
                self._add_attempt(queue, attempt)
                return self._fail(queue, reason)
        return 0

    def status(self, record: TaskRecord, webhook: Webhook) -> WebhookStatus:
        """Return the status of a webhook of a task."""
        task_id, config_id, pending, due = record.task.id, webhook.config.id, 0, None
        for queue in self._queues.get(task_id, ()):
            if queue.webhook.config.id == config_id and queue.events:
                pending, due = len(queue.events), time.time() + queue.due - time.monotonic()
        history = self._histories.get(task_id, {}).get(config_id)
        attempts = () if history is None else attempts_from(history.attempts)
        return WebhookStatus(task_id, record.owner, webhook, pending, due, attempts)

    def first_given_up_version(self, task_id: str, config_id: str) -> int:
        """Return the version of the first notification given up at the latest failure, or 0."""
        history = self._histories.get(task_id, {}).get(config_id)
        return 0 if history is None else history.given_up_version

    def forget(self, task_id: str) -> None:
        """Drop the histories of a task's webhooks."""
        for config_id in [*self._histories.get(task_id, ())]:
            self._drop_history(task_id, config_id)

    def limit(self, max_pending: int) -> int:
        """Limit each owner's pending notifications.

        Returns:
            The number of notifications given up since the last call because of an owner's limits.
        """
        self._max_pending = max_pending
        for owner in [owner for owner, pending in self._pending.items() if pending > max_pending]:
            pending = 0
            for queue in [queue for queue in self._pending_queues() if queue.owner == owner]:
                pending += len(queue.events)
                if pending > max_pending:
                    pending -= self._fail(queue, TOO_MANY_PENDING)
        dead_letters, self._dead_letter_count = self._dead_letter_count, 0
        return dead_letters

    def mark_due(self) -> None:
        """Make all notifications due now, except those that are being delivered."""
        for _, ticket, queue in [*self._scheduled]:
            if queue.ticket == ticket and not queue.is_claimed:
                self._schedule(queue, 0)

    def abandon(self) -> list[tuple[Notification, int]]:
        """Drop all notifications; return the first of each webhook, and how many it had."""
        abandoned: list[tuple[Notification, int]] = []
        for queue in [*self._pending_queues()]:
            abandoned.append((queue.head(), self._clear(queue)))
            self._remove(queue)
        return abandoned

    def tasks_with_failures(self) -> list[str]:
        """Return the ids of tasks with webhooks whose failure has not been saved."""
        return [*self._tasks_with_failures]

    def with_failures(self, task_id: str, webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
        """Return *webhooks* with the failures that have not been saved."""
        if task_id not in self._tasks_with_failures:
            return webhooks
        queues = self._queues.get(task_id, ())
        failures = {queue.webhook.config.id: queue.failure for queue in queues if queue.failure}
        return [
            replace(webhook, failure=failures.get(webhook.config.id, webhook.failure))
            for webhook in webhooks
        ]

    def forget_failures(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Forget a task's failures, except those of webhooks that the store has as active."""
        active_ids = {webhook.config.id for webhook in webhooks if not webhook.failure}
        failed_queues = [queue for queue in self._queues.get(task_id, ()) if queue.failure]
        saved_queues = [
            queue for queue in failed_queues if queue.webhook.config.id not in active_ids
        ]
        for queue in saved_queues:
            self._remove(queue)
        if len(saved_queues) == len(failed_queues):
            self._tasks_with_failures.pop(task_id, None)

    def _pending_queues(self) -> Iterator[WebhookQueue]:
        """Yield the queues that have events, task by task."""
        return (queue for queues in [*self._queues.values()] for queue in queues if queue.events)

    def _queue_of(self, record: TaskRecord, webhook: Webhook) -> WebhookQueue:
        queues = self._queues.setdefault(record.task.id, [])
        for queue in queues:
            if queue.webhook.config.id == webhook.config.id:
                return queue
        queues.append(WebhookQueue(record.task.id, record.owner, webhook, webhook.host))
        return queues[-1]

    def _history(self, queue: WebhookQueue) -> WebhookHistory | None:
        """Return or create the history of a webhook; return None if none is kept for its task."""
        task_id, config = queue.task_id, queue.webhook.config
        if not self._keeps_history(task_id):
            return None
        histories = self._histories.setdefault(task_id, {})
        if config.id not in histories or histories[config.id].config != config:
            self._drop_history(task_id, config.id)
            self._histories.setdefault(task_id, {})[config.id] = WebhookHistory(config)
        return self._histories[task_id][config.id]

    def _drop_history(self, task_id: str, config_id: str) -> None:
        histories = self._histories.get(task_id, {})
        history = histories.pop(config_id, None)
        self.bytes -= 0 if history is None else len(history.attempts)
        if not histories:
            self._histories.pop(task_id, None)

    def _add_attempt(self, queue: WebhookQueue, attempt: Attempt | None) -> None:
        """Add an attempt to those of a webhook."""
        history = None if attempt is None else self._history(queue)
        if attempt is not None and history is not None:
            size = len(history.attempts)
            history.attempts = with_attempt(history.attempts, attempt)
            self.bytes += len(history.attempts) - size

    def _exceeds_limits(self, owner: str) -> bool:
        """Return whether an owner has too many pending notifications, or too many bytes of them."""
        has_too_many = self._pending[owner] > self._max_pending
        return has_too_many or self._bytes_of[owner] > MAX_BYTES_PER_OWNER

    def _append(self, queue: WebhookQueue, event: Event, task: Task | None) -> None:
        # Webhooks of protocol 0.3 get the whole task, as it was at the time of the event.
        is_task = isinstance(event.payload, Task)
        snapshot = task if queue.webhook.version == "0.3" and not is_task else None
        size = size_of(event.payload) + (0 if snapshot is None else size_of(snapshot))
        queued_event = QueuedEvent(event.version, event.payload, snapshot, size, time.monotonic())
        queue.events.append(queued_event)
        self._pending[queue.owner] += 1
        self._bytes_of[queue.owner] += size
        self.bytes += size

    def _schedule(self, queue: WebhookQueue, seconds: float, *, is_claimed: bool = False) -> None:
        """Make a queue due now, or in *seconds*."""
        queue.ticket, queue.is_claimed = next(self._tickets), is_claimed
        queue.due = time.monotonic() + max(seconds, 0)
        if seconds <= 0:
            self._add_due(queue)
            self._on_due()
            return
        heappush(self._scheduled, (queue.due, queue.ticket, queue))
        # Outdated entries stay in the heap until they are due: drop them if most may be outdated.
        if len(self._scheduled) > self._compact_at:
            self._scheduled = [entry for entry in self._scheduled if entry[2].ticket == entry[1]]
            heapify(self._scheduled)
            self._compact_at = 2 * len(self._scheduled) + 64

    def _restart(self, queue: WebhookQueue) -> None:
        """Make the first event of a queue due, with no attempts yet; remove an empty queue."""
        queue.attempts = 0
        if queue.events:
            self._schedule(queue, 0)
        else:
            self._remove(queue)

    def _add_due(self, queue: WebhookQueue) -> None:
        queues_by_host = self._due.setdefault(queue.owner, OrderedDict())
        queues_by_host.setdefault(queue.host, deque()).append((queue.ticket, queue))

    def _move_due(self) -> None:
        """Move the queues that are due by now from the heap to the due queues."""
        now = time.monotonic()
        while self._scheduled and self._scheduled[0][0] <= now:
            _, ticket, queue = heappop(self._scheduled)
            if queue.ticket == ticket:
                queue.is_claimed = False
                self._add_due(queue)

    def _claim_from(
        self, queues_by_host: QueuesByHost, host: str, limit: int, seconds: float
    ) -> list[Notification]:
        """Claim up to *limit* due notifications for a host."""
        due_queues, claimed = queues_by_host[host], list[Notification]()
        while due_queues and len(claimed) < limit:
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
        """Return the queue of a notification; None if its claim or its webhook is outdated."""
        for queue in self._queues.get(notification.task_id, ()):
            if queue.webhook is notification.webhook and queue.events:
                current_claim = queue.events[0].version, queue.attempts
                if current_claim == (notification.version, notification.attempts):
                    return queue
        return None

    def _fail(self, queue: WebhookQueue, reason: str) -> int:
        queue.failure = reason
        history = self._history(queue) if queue.events else None
        if history is not None:
            history.given_up_version = queue.events[0].version
        self._tasks_with_failures[queue.task_id] = None
        if reason is TOO_MANY_PENDING:
            self._dead_letter_count += len(queue.events)
        return self._clear(queue)

    def _clear(self, queue: WebhookQueue) -> int:
        """Drop the events of a queue; return how many."""
        dropped, queue.events, queue.ticket = queue.events, [], 0
        self._subtract(queue, dropped)
        return len(dropped)

    def _subtract(self, queue: WebhookQueue, removed: Sequence[QueuedEvent]) -> None:
        """Subtract removed events from the totals."""
        owner = queue.owner
        self._pending[owner] -= len(removed)
        size = sum(event.size for event in removed)
        self._bytes_of[owner] -= size
        self.bytes -= size
        if not self._pending[owner]:
            del self._pending[owner], self._bytes_of[owner]

    def _remove(self, queue: WebhookQueue) -> None:
        queue.ticket = 0
        queues = self._queues[queue.task_id]
        queues.remove(queue)
        if not queues:
            del self._queues[queue.task_id]
