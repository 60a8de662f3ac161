"""In-process stores: leases, the outbox and the events of tasks are kept in memory.

The event log of a task that has ended is kept for some time as bytes, for readers that reconnect.
"""

import asyncio
import logging
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Container, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from apcore_a2a_server.trace_context import MAX_SPANS_SIZE

from .exceptions import LeaseLostError, NotSavedError, StaleError
from .outbox import Outbox
from .port import (
    Change,
    Claim,
    Event,
    Lease,
    NewTask,
    SendKey,
    Store,
    is_state,
    pack_payloads,
    unpack_payload,
)
from .queries import Query
from .task_logs import NO_LOG, EndedLog, TaskLog
from .webhooks import (
    Attempt,
    Backlog,
    ClaimRequest,
    Notification,
    Webhook,
    WebhookQuery,
    WebhookStatus,
    with_webhook,
)

logger = logging.getLogger("apcore_a2a.store")

PAGE_SIZE = 200
"""Number of records that are read at a time when a store is scanned."""


class InProcessStore(Store):
    """A store for one process; a subclass keeps the records and answers queries.

    A subclass need not keep webhooks: those of tasks that have not ended are kept here.
    """

    def __init__(self) -> None:
        self._logs: dict[str, TaskLog] = {}
        self._ended_logs: OrderedDict[str, EndedLog] = OrderedDict()
        self._ended_log_bytes = 0
        self._send_keys: OrderedDict[tuple[str, str], tuple[bytes, str]] = OrderedDict()
        """The digest of the body and the id of the task, by owner and idempotency key."""
        self._outbox = Outbox(self.wake_listener, self._has_log)
        self._span_bytes = 0
        self._delivers = False
        """Whether notifications are delivered; if not, webhooks need not be read."""
        self._webhook_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks that serialize edits of a task's webhooks."""

    @abstractmethod
    async def save(self, record: TaskRecord) -> None:
        """Store *record*; it replaces the one with the same task id."""

    @abstractmethod
    async def read_webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the webhooks last written for a task, if the subclass keeps them."""

    @abstractmethod
    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """Replace the webhooks of a task."""

    @abstractmethod
    async def delete(self, task_id: str) -> bool:
        """Delete a task; return False if there is none."""

    async def ended_task_ids(self, owner: str) -> Sequence[str]:
        """Return the ids of an owner's tasks that have ended."""
        cursor: str | None = None
        task_ids: list[str] = []
        while True:
            page = await self.query(Query(owner, cursor=cursor, limit=PAGE_SIZE))
            tasks = (record.task for record in page.records)
            task_ids += (task.id for task in tasks if task.status.state in TERMINAL)
            cursor = page.next_cursor
            if cursor is None:
                return task_ids

    async def delete_ended(self, owner: str) -> int:
        """Delete an owner's tasks that have ended, with everything that belongs to them."""
        task_ids = frozenset(await self.ended_task_ids(owner))
        deleted = 0
        for task_id in task_ids:
            async with self._webhook_lock(task_id):  # else a webhook could outlive the task
                self._outbox.update(task_id, ())
                await self.write_webhooks(task_id, ())
                self._pop_log(task_id)
                deleted += await self.delete(task_id)
        for owner_and_key, (_, task_id) in [*self._send_keys.items()]:
            if task_id in task_ids:
                del self._send_keys[owner_and_key]
        return deleted

    async def create(self, new_task: NewTask) -> Lease:
        """Store a new task; return the lease of its creator."""
        record, send_key, task_id = new_task.record, new_task.key, new_task.record.task.id
        if send_key is not None:
            await self._reserve(record.owner, send_key, task_id)
        webhooks = tuple(new_task.webhooks)
        task_log = TaskLog(record.version, new_task.slim_events(), webhooks=webhooks)
        self._logs[task_id] = task_log
        try:
            if task_log.webhooks:
                await self.write_webhooks(task_id, task_log.webhooks)
            await self.save(record)
        except BaseException as error:  # any error of a user's store, or a cancellation
            del self._logs[task_id]
            if send_key is not None:
                self._send_keys.pop((record.owner, send_key.text), None)
            # a store that hangs must not hold up a cancellation
            if task_log.webhooks and not isinstance(error, asyncio.CancelledError):
                await self.write_webhooks(task_id, ())
            raise
        if task_log.webhooks:
            self._outbox.add(record, task_log.webhooks, new_task.events)
        return self._grant_lease(task_id, task_log)

    async def _reserve(self, owner: str, send_key: SendKey, task_id: str) -> None:
        """Reserve an idempotency key for a task; raise an error if an existing task has it."""
        owner_and_key = owner, send_key.text
        while entry := self._send_keys.get(owner_and_key):
            digest, existing_id = entry
            if existing_id in self._logs or await self.get(existing_id) is not None:
                raise send_key.conflict(digest, existing_id)
            # another send may have reserved the key while a slow store was read: look again
            if self._send_keys.get(owner_and_key) is entry:
                del self._send_keys[owner_and_key]
        self._send_keys[owner_and_key] = send_key.digest, task_id
        if len(self._send_keys) > self.retention.max_logs:
            self._send_keys.popitem(last=False)

    async def change(self, change: Change) -> Lease | None:
        """Store a change; the record is saved only when the task's state changes."""
        record, task_id = change.record, change.record.task.id
        task_log = self._logs.get(task_id) or await self._reopen(task_id, change.base)
        if task_log.version != change.base:
            raise StaleError
        if change.lease is not None and change.lease.epoch != task_log.epoch:
            raise LeaseLostError
        # No await between the checks and this line: of two concurrent changes, the second is stale.
        task_log.version = record.version
        state_events, has_ended = change.state_events, record.task.status.state in TERMINAL
        is_saved = not state_events or await self._save_state(change, task_log, has_ended)
        task_log.events += change.events
        if change.spans:
            self._span_bytes -= len(task_log.spans)
            task_log.spans = (task_log.spans + change.spans)[:MAX_SPANS_SIZE]
            self._span_bytes += len(task_log.spans)
        if len(task_log.events) > 2 * self.retention.max_events:
            del task_log.events[: -self.retention.max_events]
        if not state_events:  # chunks and progress change nothing else
            return change.lease
        if task_log.webhooks:
            self._outbox.add(record, task_log.webhooks, state_events)
        if not is_saved:
            raise NotSavedError
        if has_ended:
            self._archive(task_id, task_log)
        task_log.deadline = record.deadline
        if record.task.status.state in SETTLED:
            task_log.expires = None
            return None
        if change.run or change.restart:
            task_log.starts = task_log.starts + 1 if change.restart else 1
            task_log.started = time.monotonic()
        return self._grant_lease(task_id, task_log) if change.run else change.lease

    async def _save_state(self, change: Change, task_log: TaskLog, has_ended: bool) -> bool:
        """Save a change of state; return False if the end of a task could not be saved.

        An end that can't be saved is not undone: the module has finished, and readers must learn
        the outcome. Any other change is undone and the error raised. If saving is cancelled, an end
        is undone too.
        """
        # The webhook is added first, so that it gets the notifications of this change.
        previous_webhooks = task_log.webhooks
        try:
            if change.webhook is not None:
                await self._add_webhook(change.record.task.id, change.webhook)
        except BaseException:  # any error, or a cancellation; only the version has changed so far
            task_log.version = change.base
            raise
        try:
            await self.save(change.record)
        except BaseException as error:  # any error of a user's store, or a cancellation
            if has_ended and isinstance(error, Exception | BaseExceptionGroup):
                return False
            task_log.version = change.base
            # a store that hangs must not hold up a cancellation, so the webhook stays
            if not isinstance(error, asyncio.CancelledError):
                await self._undo_webhook(change, previous_webhooks)
            raise
        return True

    async def spans(self, task_id: str) -> str:
        """Return the spans of a task, as long as its events are kept."""
        task_log = self._logs.get(task_id)
        return self._ended_logs.get(task_id, NO_LOG)[3] if task_log is None else task_log.spans

    async def webhooks(self, task_id: str) -> Sequence[Webhook]:
        """Return the webhooks of a task, oldest first."""
        task_log = self._logs.get(task_id)
        webhooks = await self.read_webhooks(task_id) if task_log is None else task_log.webhooks
        return self._outbox.with_failures(task_id, webhooks)

    async def save_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], expected: Sequence[Webhook] | None = None
    ) -> None:
        """Replace the webhooks of a task."""
        async with self._webhook_lock(task_id):
            if expected is not None:
                exists = await self.get(task_id) is not None
                if not exists or [*expected] != [*await self.webhooks(task_id)]:
                    raise StaleError
            await self._replace_webhooks(task_id, webhooks)

    def _webhook_lock(self, task_id: str) -> asyncio.Lock:
        return self._webhook_locks.setdefault(task_id, asyncio.Lock())

    async def _replace_webhooks(
        self, task_id: str, webhooks: Sequence[Webhook], *, must_save: bool = True
    ) -> None:
        try:
            await self.write_webhooks(task_id, webhooks)
        except Exception as error:  # a user's store may raise anything
            if must_save:
                raise
            message, extra = "Task %s: webhooks not saved: %s", {"event": "webhooks_not_saved"}
            logger.warning(message, task_id, type(error).__name__, extra=extra)
        if task_id in self._logs:
            self._logs[task_id].webhooks = tuple(webhooks)
        self._outbox.update(task_id, webhooks)

    async def _add_webhook(self, task_id: str, webhook: Webhook) -> None:
        async with self._webhook_lock(task_id):
            webhooks = with_webhook(await self.webhooks(task_id), webhook)
            await self._replace_webhooks(task_id, webhooks)

    async def _undo_webhook(self, change: Change, previous: Sequence[Webhook]) -> None:
        """Undo a change's edit of a webhook, unless the webhook was edited again since."""
        task_id, webhook = change.record.task.id, change.webhook
        if webhook is None:
            return
        previous_ids = [old.config.id for old in previous]
        async with self._webhook_lock(task_id):
            webhooks = await self.webhooks(task_id)
            if all(existing is not webhook for existing in webhooks):
                return
            restored = [existing for existing in webhooks if existing is not webhook]
            if webhook.config.id in previous_ids:
                place = previous_ids.index(webhook.config.id)
                older = [old for old in restored if old.config.id in previous_ids[:place]]
                restored.insert(len(older), previous[place])
            await self._replace_webhooks(task_id, restored, must_save=False)

    async def _save_failures(self, task_id: str) -> None:
        """Save the failures of a task's webhooks."""
        async with self._webhook_lock(task_id):
            task_log = self._logs.get(task_id)
            recorded = await self.read_webhooks(task_id) if task_log is None else task_log.webhooks
            webhooks = self._outbox.with_failures(task_id, recorded)
            if [*webhooks] != [*recorded]:
                await self._replace_webhooks(task_id, webhooks, must_save=False)
            self._outbox.forget_failures(task_id, webhooks)

    async def claim_notifications(self, request: ClaimRequest) -> Sequence[Notification]:
        """Claim due notifications, at most the next one of each webhook."""
        return self._outbox.claim(request)

    async def settle(self, notification: Notification, attempt: Attempt | None = None) -> None:
        """Delete a notification that was delivered."""
        self._outbox.settle(notification, attempt)

    async def postpone(
        self, notification: Notification, seconds: float, attempt: Attempt | None = None
    ) -> None:
        """Make a notification due again in *seconds*."""
        self._outbox.postpone(notification, seconds, attempt)

    async def give_up(
        self, notification: Notification, reason: str, attempt: Attempt | None = None
    ) -> int:
        """Mark the webhook as failed and drop its notifications; return how many."""
        dead_letters = self._outbox.fail(notification, reason, attempt)
        if dead_letters:
            await self._save_failures(notification.task_id)
        return dead_letters

    async def webhook_statuses(self, query: WebhookQuery) -> Sequence[WebhookStatus]:
        """Return the webhooks that match *query*, as far as this process knows their tasks."""
        task_ids = self.tasks_with_webhooks() if query.task_id is None else [query.task_id]
        statuses: list[WebhookStatus] = []
        for task_id in task_ids:
            webhooks = [*filter(query.matches, await self.webhooks(task_id))]
            record = await self.get(task_id, query.owner) if webhooks else None
            if record is not None and record.owner.startswith(query.owner_prefix):
                statuses += [self._outbox.status(record, webhook) for webhook in webhooks]
            if len(statuses) >= query.limit:
                break
        return statuses[: query.limit]

    def tasks_with_webhooks(self) -> Sequence[str]:
        """Return ids of tasks that may have webhooks: open ones, then ended ones, latest first."""
        return [*reversed(self._logs), *reversed(self._ended_logs)]

    async def redeliver(self, task_id: str, config_id: str) -> int | None:
        """Make a failed webhook active again, with the notifications that it has missed."""
        async with self._webhook_lock(task_id):
            webhooks = await self.webhooks(task_id)
            matches = [webhook for webhook in webhooks if webhook.config.id == config_id]
            if not matches or not matches[0].failure:
                return 0 if matches else None
            given_up_version = self._outbox.first_given_up_version(task_id, config_id)
            active = replace(matches[0], failure="")
            active_webhooks = [active if old is matches[0] else old for old in webhooks]
            await self._replace_webhooks(task_id, active_webhooks)
            record = await self.get(task_id)
            limit = 2 * self.retention.max_events
            events = await self.events(task_id, given_up_version - 1, limit)
            if record is None or events is None or not given_up_version:
                return 0
            state_events = [event for event in events if is_state(event.payload)]
            return self._outbox.requeue(record, active, state_events)

    @property
    def backlog(self) -> Backlog:
        """The current number of pending notifications, and the age of the oldest."""
        return self._outbox.backlog

    async def limit_backlog(self, max_pending: int) -> int:
        """Limit each owner's pending notifications from now on; return how many were given up."""
        self._delivers = True  # only the delivery queue calls this
        dead_letters = self._outbox.limit(max_pending)
        for task_id in self._outbox.tasks_with_failures():
            try:
                await self._save_failures(task_id)
            except Exception as error:  # a user's store may raise anything; the next call retries
                reason = type(error).__name__
                logger.debug("Task %s: failed webhooks were not saved: %s", task_id, reason)
        return dead_letters

    async def mark_due(self) -> None:
        """Make all notifications due now, except those that are being delivered."""
        self._outbox.mark_due()

    async def abandon_notifications(self) -> Sequence[tuple[Notification, int]]:
        """Drop all notifications."""
        return self._outbox.abandon()

    async def is_current(self, record: TaskRecord) -> bool:
        """Return whether *record*, of an open task, is still current.

        A slow store may have returned an old one.
        """
        task_id, task_log = record.task.id, self._logs.get(record.task.id)
        return task_log.version == record.version if task_log else task_id not in self._ended_logs

    async def events(self, task_id: str, after: int, limit: int = 1000) -> list[Event] | None:
        """Return the next events; None if they were deleted, or came from an earlier process."""
        task_log = self._logs.get(task_id)
        if task_log is None:
            events = self._replay(task_id, after, limit)
        else:
            first_version = task_log.events[0].version if task_log.events else task_log.version + 1
            start = after - first_version + 1
            events = task_log.events[start : start + limit] if start >= 0 else None
        return await self._with_large_messages(task_id, events) if events and not after else events

    async def _with_large_messages(self, task_id: str, events: list[Event]) -> list[Event]:
        """Put the large messages into the first event of a task, if it has gaps for them."""
        if not events[0].has_gaps:
            return events
        return [events[0].filled(await self.get(task_id)), *events[1:]]

    async def extend(self, leases: Sequence[Lease], seconds: float) -> Sequence[Lease]:
        """Make leases expire in *seconds*; return those that are lost."""
        lost_leases: list[Lease] = []
        for lease in leases:
            task_log = self._logs.get(lease.task_id)
            if task_log is None or task_log.expires is None or task_log.epoch != lease.epoch:
                lost_leases.append(lease)
            else:
                task_log.expires = time.monotonic() + seconds
        return lost_leases

    async def claim(self, limit: int, running: Collection[str] = ()) -> Sequence[Claim]:
        """Lease up to *limit* tasks that are orphaned, or paused past their deadline."""
        claims: list[Claim] = []
        claimable = [
            (task_id, task_log, task_log.version)
            for task_id, task_log in self._logs.items()
            if task_log.is_claimable() and task_id not in running
        ]
        for task_id, task_log, version in claimable:
            if len(claims) == limit:
                break
            record = await self.get(task_id)
            # a task may be answered or canceled while a slow store is read
            if record is None or task_log.version != version or self._must_wait(record, task_log):
                continue
            claims.append(Claim(record, self._grant_lease(task_id, task_log), task_log.starts))
        return claims

    def _must_wait(self, record: TaskRecord, task_log: TaskLog) -> bool:
        """Return whether it is too early to start a task's module once more."""
        if record.resume is None or task_log.expires is None:
            return False
        pause = next(iter(self.restart_pauses[task_log.starts - 1 :]), 0)
        return time.monotonic() < task_log.started + pause

    def _grant_lease(self, task_id: str, task_log: TaskLog) -> Lease:
        task_log.epoch += 1
        task_log.expires = time.monotonic() + self.lease_seconds
        return Lease(task_id, task_log.epoch)

    async def _reopen(self, task_id: str, base: int) -> TaskLog:
        """Return a log for an open task that an earlier process has stored."""
        if task_id in self._ended_logs:
            raise StaleError
        record = await self.get(task_id)
        if record is None or record.version != base:
            raise StaleError
        webhooks = await self.read_webhooks(task_id) if self._delivers else ()
        return self._logs.setdefault(task_id, TaskLog(base, webhooks=webhooks))

    def _archive(self, task_id: str, task_log: TaskLog) -> None:
        """Keep the log of an ended task as bytes, and delete old logs."""
        first_version = task_log.events[0].version
        packed_events = pack_payloads(task_log.events)
        expires = time.monotonic() + self.retention.log_ttl
        self._ended_logs[task_id] = expires, first_version, packed_events, task_log.spans
        self._ended_log_bytes += sum(map(len, packed_events))
        del self._logs[task_id]
        # Keep the newest log in any case: readers of the task still need its last event.
        while len(self._ended_logs) > 1:
            oldest_id, (expires, *_) = next(iter(self._ended_logs.items()))
            if len(self._ended_logs) <= self.retention.max_logs and expires > time.monotonic():
                return
            self.drop_log(oldest_id)

    @property
    def kept_bytes(self) -> int:
        """About how many bytes the logs of ended tasks, the outbox and the spans take."""
        return self._ended_log_bytes + self._outbox.bytes + self._span_bytes

    def evict(
        self, size: int, owner: str, kept_ids: Container[str], share: int | None = None
    ) -> None:
        """Delete logs of ended tasks, oldest first, until *size* bytes are freed."""
        target = self.kept_bytes - size
        for task_id in [*self._ended_logs]:
            if self.kept_bytes > target and task_id not in kept_ids:
                self.drop_log(task_id)

    def _has_log(self, task_id: str) -> bool:
        return task_id in self._logs or task_id in self._ended_logs

    def drop_log(self, task_id: str) -> None:
        """Delete the log of an ended task, unless it is the newest, which readers still need."""
        if task_id != next(reversed(self._ended_logs), None):
            self._pop_log(task_id)

    def _pop_log(self, task_id: str) -> None:
        _, _, packed_events, spans = self._ended_logs.pop(task_id, NO_LOG)
        self._ended_log_bytes -= sum(map(len, packed_events))
        self._span_bytes -= len(spans)
        self._outbox.forget(task_id)

    def _replay(self, task_id: str, after: int, limit: int) -> list[Event] | None:
        """Return events of a task that has ended."""
        ended_log = self._ended_logs.get(task_id)
        if ended_log is None:
            return None
        _, first_version, packed_events, _ = ended_log
        start = after - first_version + 1
        if start < 0:
            return None
        next_events = enumerate(packed_events[start : start + limit], after + 1)
        return [Event(version, unpack_payload(packed)) for version, packed in next_events]
