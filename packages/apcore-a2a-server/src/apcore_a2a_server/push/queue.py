"""Queue that claims due notifications from the outbox and delivers them.

Pending notifications are in the store. This process holds only those that it delivers now or next.
A claim expires: notifications that a replica has claimed and not settled in time can be claimed
again, by any replica.
"""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from heapq import heappop, heappush
from weakref import WeakValueDictionary

from apcore_a2a_core.data import Task

from apcore_a2a_server.store import ClaimRequest, Notification, Store
from apcore_a2a_server.store.webhooks import TOO_MANY_PENDING, Attempt

from .sender import WebhookSender
from .settings import PushSettings

logger = logging.getLogger("apcore_a2a.push")

PER_HOST = 8
"""Maximum number of notifications of one owner that are sent to one host at a time."""
PER_OWNER = 32
"""Maximum number of notifications of one owner that are sent at a time, to all hosts together."""
MAX_CLAIMED = 512
"""Maximum number of notifications that a process holds, including those that wait for a slot."""
PREFETCH_FACTOR = 2
"""Maximum notifications claimed per slot, so that a free slot need not wait for the store."""
POLL_INTERVAL = 1.0
"""Seconds between checks for notifications that other replicas have added."""
COUNT_INTERVAL = 2.0
"""Seconds between two counts of pending notifications."""
STORE_TIMEOUT = 1.0
"""Maximum seconds at shutdown to wait for a claim in progress, and then to release claims."""
CLAIM_MARGIN = 5.0
"""Seconds that a claim lasts beyond the longest wait for a slot and the attempt after it."""


class DeliveryQueue:
    """Queue of deliveries, with fair shares for owners and hosts.

    Args:
        store: The store whose outbox has the notifications.
        sender: The sender that makes the attempts.
        settings: The timeout of an attempt, and the limit for pending notifications.
    """

    def __init__(self, store: Store, sender: WebhookSender, settings: PushSettings) -> None:
        self._store = store
        self._sender = sender
        self._max_pending = settings.max_pending
        # A claim outlasts the wait for a slot and the attempt after it: otherwise another replica
        # could deliver a notification that this process is still delivering.
        self._max_wait = PREFETCH_FACTOR * settings.timeout
        self._claim_seconds = (PREFETCH_FACTOR + 1) * settings.timeout + CLAIM_MARGIN
        self._deliveries: dict[asyncio.Task[None], Notification] = {}
        self._owner_counts: Counter[str] = Counter()
        self._host_counts: Counter[tuple[str, str]] = Counter()
        self._slots: WeakValueDictionary[tuple[str, ...], asyncio.Semaphore] = WeakValueDictionary()
        self._wake = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        store.on_notification(self.wake)

    def wake(self) -> None:
        """Check for due notifications now."""
        self._wake.set()

    def start(self) -> None:
        """Start delivering; a drained queue may be started again."""
        self._wake = asyncio.Event()
        self._retry_times: list[float] = []
        """Heap of the times at which postponed notifications are due, by the monotonic clock."""
        self._drain_end: float | None = None
        self._is_stopped = False
        self._loops = [asyncio.create_task(self._run()), asyncio.create_task(self._count())]

    async def drain(self, seconds: float) -> None:
        """Deliver pending notifications for up to *seconds*, then stop.

        If the store is durable, other replicas or a later process deliver the rest. If not, waiting
        retries are made at once, and what is still undelivered at the end is reported as lost.
        """
        if not self._loops:  # the application failed before it called `start`
            await self._sender.transport.close()
            return
        claim_loop = self._loops[0]
        if pending := self._store.backlog.pending:
            message = "Shutting down; delivering %d pending notifications for up to %.3g s"
            logger.info(message, pending, seconds, extra={"event": "notifications_draining"})
        self._drain_end = time.monotonic() + seconds
        self._retry_times.clear()
        await self._store.mark_due()
        self.wake()
        await asyncio.wait([claim_loop], timeout=seconds)
        self._is_stopped = True
        self.wake()
        # Wait for a claim that is in progress: if it were cancelled, its notifications would stay
        # claimed until the claim expires.
        await asyncio.wait([claim_loop], timeout=STORE_TIMEOUT)
        claimed, unfinished = [*self._deliveries.values()], [*self._loops, *self._deliveries]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        with suppress(TimeoutError):  # the claims expire, as after a crash
            async with asyncio.timeout(STORE_TIMEOUT):
                await asyncio.gather(self._limit_backlog(), *map(self._release, claimed))
        await self._report_lost()
        await self._sender.transport.close()

    async def test(self, notification: Notification, task: Task) -> Attempt:
        """Make one attempt to deliver a notification that is in no outbox; return its result.

        The attempt waits for a slot of its host and its owner, as all deliveries do.
        """
        owner, host = notification.owner, notification.webhook.host
        async with self._slot(PER_HOST, owner, host), self._slot(PER_OWNER, owner):
            return await self._sender.test(notification, task)

    async def _release(self, notification: Notification) -> None:
        """Give up the claim of a notification, so that another replica can claim it now."""
        try:
            await self._store.postpone(notification, 0)
        except Exception as error:  # stores may raise anything; the claim expires anyway
            logger.debug("The claim of %s was not released: %s", notification, type(error).__name__)

    async def _report_lost(self) -> None:
        for notification, count in await self._store.abandon_notifications():
            message = "%d notifications for %s are lost: the server is shutting down"
            logger.warning(message, count, notification, extra={"event": "notifications_lost"})
            self._sender.on_result("failed", count)

    async def _run(self) -> None:
        """Claim and deliver due notifications until the queue is drained or stopped."""
        while not self._is_stopped:
            if await self._claim():
                continue
            drain_end = self._drain_end
            is_idle = not self._deliveries
            if drain_end is not None and is_idle and not self._awaits_retry(drain_end):
                return
            await self._wait()

    def _awaits_retry(self, end: float) -> bool:
        """Return whether a retry that only this process can make is due before *end*."""
        return not self._store.is_durable and any(due <= end for due in self._retry_times[:1])

    async def _wait(self) -> None:
        """Wait for a wake-up, the next retry or the poll interval."""
        seconds = POLL_INTERVAL
        if self._retry_times:
            seconds = min(seconds, self._retry_times[0] - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _claim(self) -> bool:
        """Claim due notifications and start their deliveries; return whether there were any."""
        self._wake.clear()
        while self._retry_times and self._retry_times[0] <= time.monotonic():
            heappop(self._retry_times)
        # only half of the free places: the other half is for notifications that become due next
        limit = (MAX_CLAIMED - len(self._deliveries) + 1) // 2
        if not limit:
            return False
        deadline = asyncio.get_running_loop().time() + self._max_wait
        try:
            notifications = await self._store.claim_notifications(self._claim_request(limit))
        except Exception as error:  # stores may raise anything; the next poll tries again
            logger.debug("Due notifications could not be claimed: %s", type(error).__name__)
            return False
        for notification in notifications:
            self._start_delivery(notification, deadline)
        return bool(notifications)

    def _claim_request(self, limit: int) -> ClaimRequest:
        # Owners share the claims equally, and one share stays free: slow receivers of some owners
        # must not delay an owner whose first notification is yet to come.
        owner_share = MAX_CLAIMED // (PREFETCH_FACTOR * (len(self._owner_counts) + 1))
        per_owner = max(min(PER_OWNER, owner_share), 1)
        return ClaimRequest(
            limit=limit,
            per_host=PER_HOST,
            per_owner=per_owner,
            # nothing is claimed for these, which have no free slot
            hosts=[pair for pair, count in self._host_counts.items() if count >= PER_HOST],
            owners=[owner for owner, count in self._owner_counts.items() if count >= per_owner],
            seconds=self._claim_seconds,
        )

    def _start_delivery(self, notification: Notification, deadline: float) -> None:
        owner, host = notification.owner, notification.webhook.host
        delivery = asyncio.create_task(self._deliver(notification, host, deadline))
        self._deliveries[delivery] = notification
        self._owner_counts[owner] += 1
        self._host_counts[owner, host] += 1
        delivery.add_done_callback(self._on_done)

    async def _deliver(self, notification: Notification, host: str, deadline: float) -> None:
        owner = notification.owner
        # The host's slot comes first: a delivery that waits for a slow host must not occupy a slot
        # of its owner, which a delivery to another host could use.
        async with self._slot(PER_HOST, owner, host), self._slot(PER_OWNER, owner):
            seconds = await self._sender.send(notification, deadline)
        if seconds is not None:
            heappush(self._retry_times, time.monotonic() + seconds)

    def _slot(self, capacity: int, *key: str) -> asyncio.Semaphore:
        return self._slots.setdefault(key, asyncio.Semaphore(capacity))

    def _on_done(self, delivery: asyncio.Task[None]) -> None:
        notification = self._deliveries.pop(delivery)
        owner, host = notification.owner, notification.webhook.host
        self._owner_counts -= {owner: 1}  # this operator drops counts of zero
        self._host_counts -= {(owner, host): 1}
        if not delivery.cancelled() and (error := delivery.exception()):
            # usually an error of the store; the notification is due again when its claim expires
            message, extra = "Delivery to %s failed: %s", {"event": "delivery_failed"}
            logger.warning(message, notification, type(error).__name__, extra=extra)
        self.wake()

    async def _count(self) -> None:
        """Count and limit pending notifications periodically."""
        while True:
            await self._limit_backlog()
            await asyncio.sleep(COUNT_INTERVAL)

    async def _limit_backlog(self) -> None:
        """Count pending notifications; fail webhooks with notifications beyond an owner's limit."""
        try:
            dead_letter_count = await self._store.limit_backlog(self._max_pending)
        except Exception as error:  # stores may raise anything; the next count tries again
            logger.debug("Pending notifications were not counted: %s", type(error).__name__)
            return
        if dead_letter_count:
            extra = {"event": "notifications_given_up"}
            logger.warning(
                "Gave up %d notifications: %s", dead_letter_count, TOO_MANY_PENDING, extra=extra
            )
        self._sender.on_result("failed", dead_letter_count)
