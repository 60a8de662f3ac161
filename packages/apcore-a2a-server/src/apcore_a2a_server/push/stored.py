"""The outbox of a store that writes down what webhooks have to be told.

Any process that shares the store tells it; what one has taken, and not settled in time, another
takes. Nothing is kept here but what is being told at this moment.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from a2a import types as a2a

from apcore_a2a_server.store import Backlog, Journal, Notification, Transition, Wanted, Webhook
from apcore_a2a_server.store.webhooks import TOO_MANY

from .lanes import name
from .notice import Notice
from .settings import PushSettings
from .teller import OnResult, Teller
from .turns import PER_HOST, PER_OWNER, Desk, Work

logger = logging.getLogger("apcore_a2a.push")

LOOK = 1.0
"""Seconds after which it is seen at the latest what other processes have left."""
COUNT = 2.0
"""Seconds after which it is counted again what waits."""
AT_ONCE = 256
"""How many notifications a process holds at a time."""
AHEAD = 2
"""How many times what can be told at a time is taken, so that nobody waits for the store."""
LAST = 1.0
"""Seconds that the store has at the end to answer what it was asked."""
SPARE = 5.0
"""Seconds that a notification is kept beyond the time that its attempt may take."""


@dataclass(slots=True, eq=False)
class Errand:
    """A notification that was taken, and waits for its turn or has it.

    Attributes:
        end: When it is too late to begin, by the loop's clock: others may have taken it.
    """

    notification: Notification
    end: float
    is_waiting: bool = False
    work: Work | None = None

    @property
    def owner(self) -> str:
        """The principal that it is told for."""
        return self.notification.owner

    @property
    def host(self) -> str:
        """Where its webhook is."""
        return self.notification.webhook.host

    def __str__(self) -> str:
        return name(self.notification.webhook, self.notification.task_id)


class StoredOutbox:
    """Tells webhooks what a store has written down for them.

    Args:
        journal: The tasks.
        teller: Tells a webhook.
        settings: How long an attempt may take, and how much may wait.

    Attributes:
        on_result: Is told what comes of notifications: delivered, retried, failed.
    """

    def __init__(self, journal: Journal, teller: Teller, settings: PushSettings) -> None:
        self.on_result: OnResult = lambda result: None
        self._journal = journal
        self._store = journal.store
        self._teller = teller
        self._max_pending = settings.max_pending
        self._timeout = settings.timeout
        self._seconds = (AHEAD + 1) * settings.timeout + SPARE
        self._desk: Desk[Errand] = Desk(self._tell, self._on_done)
        self._errands: set[Errand] = set()
        self._backlog = Backlog()

    @property
    def pending(self) -> int:
        """How many notifications wait, for all processes; counted now and then."""
        return self._backlog.pending

    @property
    def age(self) -> float:
        """Seconds since the oldest of them came."""
        return self._backlog.age

    def start(self) -> None:
        """Begin, again after an earlier end."""
        self._wake = asyncio.Event()
        self._ending = self._ended = False
        self._running = asyncio.create_task(self._run())
        self._counting = asyncio.create_task(self._count())

    def put(self, transition: Transition, webhooks: Sequence[Webhook]) -> None:
        """Webhooks have to be told something, which the store has by now."""
        self._wake.set()

    def update(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """The webhooks of a task are now these."""
        self._wake.set()

    async def drain(self, seconds: float) -> None:
        """Tell what is due for *seconds*; others, or the next start, go on with the rest."""
        self._ending = True
        self._wake.set()
        await asyncio.wait([self._running], timeout=seconds)
        self._ended = True
        self._wake.set()
        # what is being taken at this moment should not have been taken in vain
        await asyncio.wait([self._running], timeout=LAST)
        works = [self._running, self._counting, *self._desk.works]
        while works:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            works = [*self._desk.works]  # whose turn it was then
        with suppress(TimeoutError):  # others wait as for a process that was killed
            async with asyncio.timeout(LAST):
                await asyncio.gather(*map(self._give_back, [*self._errands]))
        await self._teller.close()

    async def _run(self) -> None:
        """Take what is due, again and again."""
        while not self._ended:
            if await self._take():
                continue
            if self._ending and not self._errands:
                return
            await self._wait(LOOK)

    async def _wait(self, seconds: float) -> None:
        """Wait for something to happen."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    async def _take(self) -> bool:
        """Take what is due and there is time for; whether there was anything."""
        self._wake.clear()
        wanted = self._wanted()
        end = asyncio.get_running_loop().time() + AHEAD * self._timeout
        try:
            found = await self._store.claim_notifications(wanted) if wanted.limit > 0 else ()
        except Exception as error:  # a store may raise anything, and may be back soon
            logger.debug("What webhooks have to be told is not known: %s", type(error).__name__)
            return False
        for notification in found:
            errand = Errand(notification, end)
            self._errands.add(errand)
            self._desk.wait(errand)
        return bool(found)

    def _wanted(self) -> Wanted:
        of_host = Counter((errand.owner, errand.host) for errand in self._errands)
        of_owner = Counter(errand.owner for errand in self._errands)
        # who is slow leaves places to others, and to one who is not here yet
        share = max(min(PER_OWNER, AT_ONCE // (AHEAD * (len(of_owner) + 1))), 1)
        return Wanted(
            limit=(AT_ONCE - len(self._errands) + 1) // 2,
            per_host=PER_HOST,
            per_owner=share,
            hosts=[host for host, count in of_host.items() if count >= PER_HOST],
            owners=[owner for owner, count in of_owner.items() if count >= share],
            seconds=self._seconds,
        )

    async def _tell(self, errand: Errand) -> None:
        notification = errand.notification
        transition = await self._transition(notification)
        if transition is None:  # the task has left
            return
        if asyncio.get_running_loop().time() > errand.end:  # this process was asleep
            return
        webhook = notification.webhook
        answer = await self._teller.tell(webhook, Notice(transition))
        if answer.is_success:
            await self._store.settle(notification)
            self.on_result("delivered")
            return
        attempts = notification.attempts
        seconds = self._teller.pause(webhook, notification.task_id, attempts, answer)
        if seconds is None:
            await self._fail(notification, answer.reason)
            return
        await self._store.postpone(notification, seconds)
        self.on_result("retried")
        asyncio.get_running_loop().call_later(seconds, self._wake.set)

    async def _transition(self, notification: Notification) -> Transition | None:
        """What happened; of the task itself only as much as is told."""
        payload, owner = notification.payload, notification.owner
        task = a2a.Task(id=notification.task_id)
        if isinstance(payload, a2a.Task):
            task = payload
        elif notification.webhook.version == "0.3":
            record = await self._journal.get(notification.task_id)
            if record is None:
                return None
            task.CopyFrom(record.task)
            if isinstance(payload, a2a.TaskStatusUpdateEvent):  # it may be in another one by now
                task.status.CopyFrom(payload.status)
        return Transition(task, owner, notification.version, payload)

    async def _fail(self, notification: Notification, reason: str) -> None:
        """Give up on a webhook."""
        for _ in range(await self._store.give_up(notification, reason)):
            self.on_result("failed")

    def _on_done(self, errand: Errand, work: Work) -> None:
        if work.cancelled():  # at the end of the process
            return
        self._errands.discard(errand)
        if error := work.exception():  # it is due again after a while
            logger.warning("Telling the %s: %s", errand, type(error).__name__)
        self._wake.set()

    async def _give_back(self, errand: Errand) -> None:
        """Let others tell it at once."""
        self._errands.discard(errand)
        try:
            await self._store.postpone(errand.notification, 0)
        except Exception as error:  # a store may raise anything: it is due again after a while
            logger.debug("The %s was not given back: %s", errand, type(error).__name__)

    async def _count(self) -> None:
        """See what waits, again and again."""
        while True:
            try:
                self._backlog = await self._store.backlog(self._max_pending)
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.debug("What waits was not counted: %s", type(error).__name__)
            else:
                self._on_count(self._backlog.given_up)
            await asyncio.sleep(COUNT)

    def _on_count(self, given_up: int) -> None:
        if given_up:
            logger.warning("Notifications given up: %d; %s", given_up, TOO_MANY)
        for _ in range(given_up):
            self.on_result("failed")
