"""The queue of deliveries: claims what is due from the outbox, and has it sent.

What waits lies in the store. Here is only what is being delivered at this moment, and a little
more, so that no delivery waits for the store. What a process has claimed and not settled in time,
another one claims.
"""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from heapq import heappop, heappush
from typing import TypeVar
from weakref import WeakValueDictionary

from apcore_a2a_server.store import ClaimRequest, Notification, Store
from apcore_a2a_server.store.webhooks import TOO_MANY

from .sender import OnResult, WebhookSender
from .settings import PushSettings

logger = logging.getLogger("apcore_a2a.push")

Key = TypeVar("Key")

PER_HOST = 8
"""How many notifications of a principal are under way to a host at a time."""
PER_OWNER = 32
"""How many to all hosts."""
MAX_CLAIMED = 512
"""How many notifications a process holds at a time."""
AHEAD = 2
"""How many times as much is claimed as can be under way, so that no delivery waits for it."""
POLL_INTERVAL = 1.0
"""Seconds after which notifications of other processes are noticed at the latest."""
COUNT_INTERVAL = 2.0
"""Seconds after which what waits is counted again."""
STORE_TIMEOUT = 1.0
"""Seconds that the store has at the end for what it was asked."""
CLAIM_MARGIN = 5.0
"""Seconds that a notification is claimed for beyond the time that its attempt may take."""


class DeliveryQueue:
    """Delivers the notifications of a store, fairly between principals and hosts.

    Args:
        store: Where notifications wait.
        sender: Makes one attempt.
        settings: How long an attempt may take, and how much may wait.
        on_result: Called with the outcome of notifications that the store has given up.
    """

    def __init__(
        self, store: Store, sender: WebhookSender, settings: PushSettings, on_result: OnResult
    ) -> None:
        self._store = store
        self._sender = sender
        self._on_result = on_result
        self._max_pending = settings.max_pending
        self._begin_within = AHEAD * settings.timeout
        self._claim_seconds = (AHEAD + 1) * settings.timeout + CLAIM_MARGIN
        self._deliveries: dict[asyncio.Task[None], Notification] = {}
        self._of_owner: Counter[str] = Counter()
        self._of_host: Counter[tuple[str, str]] = Counter()
        self._slots: WeakValueDictionary[tuple[str, ...], asyncio.Semaphore] = WeakValueDictionary()
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None
        store.on_notification(self.wake)

    def wake(self) -> None:
        """Look at once whether something is due."""
        self._wake.set()

    def start(self) -> None:
        """Begin, again after an earlier end."""
        self._wake = asyncio.Event()
        self._retries: list[float] = []
        """When postponed notifications are due again, by the monotonic clock."""
        self._end: float | None = None
        self._is_over = False
        self._counting = asyncio.create_task(self._count())
        self._running = asyncio.create_task(self._run())

    async def drain(self, seconds: float) -> None:
        """Deliver what is due for *seconds*.

        Other processes, or the next start, go on with the rest; what only this process could
        deliver is tried once more at once, and reported as lost in the end.
        """
        running = self._running
        if running is None:  # an application that failed before it started
            await self._sender.close()
            return
        if pending := self._store.backlog.pending:
            logger.info("Ending; notifications that wait: %d, for %.3g s", pending, seconds)
        self._end = time.monotonic() + seconds
        self._retries.clear()
        await self._store.mark_due()
        self.wake()
        await asyncio.wait([running], timeout=seconds)
        self._is_over = True
        self.wake()
        # what is being claimed at this moment should not have been claimed in vain
        await asyncio.wait([running], timeout=STORE_TIMEOUT)
        claimed = [*self._deliveries.values()]
        await self._cancel()
        with suppress(TimeoutError):  # others wait as for a process that was killed
            async with asyncio.timeout(STORE_TIMEOUT):
                await asyncio.gather(self._limit(), *map(self._give_back, claimed))
        await self._report_lost()
        await self._sender.close()

    async def _cancel(self) -> None:
        works = [w for w in (self._running, self._counting, *self._deliveries) if w is not None]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def _give_back(self, notification: Notification) -> None:
        """Let others claim it at once."""
        try:
            await self._store.postpone(notification, 0)
        except Exception as error:  # a store may raise anything: it is due again after a while
            logger.debug("The %s was not given back: %s", notification, type(error).__name__)

    async def _report_lost(self) -> None:
        for notification, number in await self._store.abandon_notifications():
            told = "%d notifications for %s are lost: the server ends"
            logger.warning(told, number, notification)
            self._on_result("failed", number)

    async def _run(self) -> None:
        """Claim what is due, again and again."""
        while not self._is_over:
            if await self._claim():
                continue
            if self._end is not None and not self._deliveries and not self._awaits_retry(self._end):
                return
            await self._wait()

    def _awaits_retry(self, end: float) -> bool:
        """Whether something that only this process can deliver is due before the end."""
        return not self._store.is_durable and any(due <= end for due in self._retries[:1])

    async def _wait(self) -> None:
        """Wait until something has happened, or may have."""
        seconds = POLL_INTERVAL
        if self._retries:
            seconds = min(seconds, self._retries[0] - time.monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _claim(self) -> bool:
        """Claim what is due and there is time for; return whether there was anything."""
        self._wake.clear()
        while self._retries and self._retries[0] <= time.monotonic():
            heappop(self._retries)
        room = (MAX_CLAIMED - len(self._deliveries) + 1) // 2
        if not room:
            return False
        deadline = asyncio.get_running_loop().time() + self._begin_within
        try:
            found = await self._store.claim_notifications(self._request(room))
        except Exception as error:  # a store may raise anything, and may be back soon
            logger.debug("What is due could not be claimed: %s", type(error).__name__)
            return False
        for notification in found:
            self._begin(notification, deadline)
        return bool(found)

    def _request(self, room: int) -> ClaimRequest:
        # slow ones leave places to other principals, and to one who is not here yet
        share = max(min(PER_OWNER, MAX_CLAIMED // (AHEAD * (len(self._of_owner) + 1))), 1)
        return ClaimRequest(
            limit=room,
            per_host=PER_HOST,
            per_owner=share,
            hosts=[pair for pair, count in self._of_host.items() if count >= PER_HOST],
            owners=[owner for owner, count in self._of_owner.items() if count >= share],
            seconds=self._claim_seconds,
        )

    def _begin(self, notification: Notification, deadline: float) -> None:
        owner, host = notification.owner, notification.webhook.host
        work = asyncio.create_task(self._deliver(notification, host, deadline))
        self._deliveries[work] = notification
        self._of_owner[owner] += 1
        self._of_host[owner, host] += 1
        work.add_done_callback(self._on_done)

    async def _deliver(self, notification: Notification, host: str, deadline: float) -> None:
        owner = notification.owner
        # whoever waits for a slow host must not keep a place that other hosts could have
        async with self._slot(PER_HOST, owner, host), self._slot(PER_OWNER, owner):
            seconds = await self._sender.send(notification, deadline)
        if seconds is not None:
            heappush(self._retries, time.monotonic() + seconds)

    def _slot(self, most: int, *key: str) -> asyncio.Semaphore:
        return self._slots.setdefault(key, asyncio.Semaphore(most))

    def _on_done(self, work: asyncio.Task[None]) -> None:
        notification = self._deliveries.pop(work)
        owner, host = notification.owner, notification.webhook.host
        _decrement(self._of_owner, owner)
        _decrement(self._of_host, (owner, host))
        if not work.cancelled() and (error := work.exception()):  # it is due again after a while
            logger.warning("Delivering to the %s: %s", notification, type(error).__name__)
        self.wake()

    async def _count(self) -> None:
        """Count what waits, again and again."""
        while True:
            await self._limit()
            await asyncio.sleep(COUNT_INTERVAL)

    async def _limit(self) -> None:
        """Count what waits, and hold principals to what may wait for them."""
        try:
            dead = await self._store.limit_backlog(self._max_pending)
        except Exception as error:  # a store may raise anything, and may be back soon
            logger.debug("What waits was not counted: %s", type(error).__name__)
            return
        if dead:
            logger.warning("Notifications given up: %d; %s", dead, TOO_MANY)
        self._on_result("failed", dead)


def _decrement(counter: Counter[Key], key: Key) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
