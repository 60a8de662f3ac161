"""Keeps the leases of the tasks that this process runs, and finds those that others have left."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from random import random
from typing import TypeAlias

from .journal import Journal
from .port import Claim, Lease

logger = logging.getLogger("apcore_a2a.store")

OnLost: TypeAlias = Callable[[Lease], None]
OnClaim: TypeAlias = Callable[[Claim], Awaitable[None]]

LOOK = 1.0
"""Seconds after which it is seen at the latest what other processes have changed."""
PRUNE = 60.0
"""Seconds, about, after which what is too old is dropped."""
PART = 3
"""A lease is renewed so many times before it would end."""
SAFE = 0.8
"""The part of a lease after which work under it ends, when it could not be renewed."""
WATCH = 0.02
"""The part of a lease after which that is looked at."""
CLAIM = 1.0
"""Seconds after which it is seen at the latest that others have left something."""
AT_ONCE = 50
"""How many tasks are claimed at a time."""


class Keeper:
    """The heartbeat of a process that shares tasks with others, or with what it was before.

    Args:
        journal: What this process knows of the tasks.
        on_lost: Is told when this process may not run a task any more.
        on_claim: Goes on with a task that was left, or ends it.
    """

    def __init__(self, journal: Journal, on_lost: OnLost, on_claim: OnClaim) -> None:
        self._store = journal.store
        self._journal = journal
        self._on_lost = on_lost
        self._on_claim = on_claim
        self._works: list[asyncio.Task[None]] = []
        self._since: dict[Lease, float] = {}
        self._renewed = time.monotonic()
        self.is_taking = True
        """Whether what others have left is taken over."""

    def start(self) -> None:
        """Begin, again after an earlier end; needs a running event loop."""
        self.is_taking = True
        self._since, self._renewed = {}, time.monotonic()
        works = self._keep, self._watch, self._take, self._look, self._prune
        self._works = [asyncio.create_task(work()) for work in works]

    @property
    def age(self) -> float:
        """Seconds since leases were last renewed, or there were none to renew."""
        return time.monotonic() - self._renewed

    async def stop(self) -> None:
        """End; leases that are held last as long as they do."""
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)

    async def _keep(self) -> None:
        """Renew, again and again."""
        fails = False
        while True:
            period = pause = self._store.lease_seconds / PART
            begun = time.monotonic()
            try:
                async with asyncio.timeout(period):
                    await self._renew()
            except Exception as error:  # a store may raise anything, and may be back soon
                if not fails:  # an outage is told of once
                    logger.warning("Leases could not be renewed: %s", type(error).__name__)
                fails, pause = True, period / 10
            else:
                fails, self._renewed = False, begun
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        """Give up what could not be renewed, before it ends; whatever the store is doing."""
        loop = asyncio.get_running_loop()
        seen = loop.time()
        while True:
            now, lasts = loop.time(), self._store.lease_seconds
            # what is new has been leased since the last look
            self._since = {lease: self._since.get(lease, seen) for lease in self._journal.leases()}
            for lease, since in self._since.items():
                if now >= since + SAFE * lasts:
                    self._lose(lease)
            seen = now
            await asyncio.sleep(WATCH * lasts)

    async def _renew(self) -> None:
        begun = asyncio.get_running_loop().time()
        leases = self._journal.leases()
        lost = await self._store.renew(leases) if leases else ()
        self._since |= dict.fromkeys(leases, begun)
        for lease in lost:
            # it may have been given back while that was asked
            if self._journal.lease_of(lease.task_id) == lease:
                self._lose(lease)

    async def _take(self) -> None:
        """Claim, again and again."""
        while True:
            try:
                while self.is_taking and await self._claim() == AT_ONCE:
                    pass
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.debug("Nothing could be claimed: %s", type(error).__name__)
            await asyncio.sleep(min(CLAIM, self._store.lease_seconds / PART))

    async def _claim(self) -> int:
        """Claim some; how many that were."""
        claims = await self._store.claim(AT_ONCE)
        for claim in claims:
            try:
                await self._on_claim(claim)
            except BaseException as error:  # what is not gone on with must not be renewed
                self._journal.lose(claim.lease.task_id)
                if not isinstance(error, Exception):
                    raise
                told = "Task %s can't be gone on with: %s"
                logger.warning(told, claim.lease.task_id, type(error).__name__)
        return len(claims)

    async def _prune(self) -> None:
        """Drop what need not be kept any more; not all processes at the same time."""
        while True:
            await asyncio.sleep(PRUNE * (0.5 + random()))
            try:
                pruned = await self._store.prune()
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.warning("Old tasks could not be dropped: %s", type(error).__name__)
            else:
                logger.debug("Old tasks dropped: %d", pruned)

    async def _look(self) -> None:
        """See what others have changed, for those who wait, and for what runs here."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                for lease in await self._journal.look():
                    self._lose(lease)
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.debug("Tasks could not be looked at: %s", type(error).__name__)

    def on_change(self, task_id: str, version: int) -> None:
        """Take the hint that another replica has brought a task to *version*."""
        lease = self._journal.hear(task_id, version)
        if lease is not None:
            self._lose(lease)

    def _lose(self, lease: Lease) -> None:
        self._journal.lose(lease.task_id)
        self._on_lost(lease)
