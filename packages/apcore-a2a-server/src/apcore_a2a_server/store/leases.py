"""The heartbeat of a replica: renews its leases, claims orphaned tasks, and polls for changes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from random import random
from typing import TypeAlias

from .live import LiveTasks
from .port import Claim, Lease

logger = logging.getLogger("apcore_a2a.store")

OnLost: TypeAlias = Callable[[Lease], None]
OnClaim: TypeAlias = Callable[[Claim], Awaitable[None]]

POLL_INTERVAL = 1.0
"""Seconds between looks for changes by other replicas."""
PRUNE_INTERVAL = 60.0
"""Seconds, on average, between deletions of old tasks."""
RENEWALS_PER_LEASE = 3
"""How often a lease is renewed before it would end."""
LEASE_SAFETY_FRACTION = 0.8
"""Part of a lease after which its run stops if the lease could not be renewed."""
EXPIRY_CHECK_FRACTION = 0.02
"""Part of a lease between two looks for leases that could not be renewed."""
CLAIM_INTERVAL = 1.0
"""Seconds between looks for orphaned tasks."""
CLAIM_LIMIT = 50
"""Most tasks claimed at a time."""


class LeaseKeeper:
    """Keeps the leases of this process, and takes over tasks whose lease has expired.

    Args:
        tasks: What this process knows of the tasks.
        on_lost: Takes a lease that this process has lost.
        on_claim: Resumes or ends a task that this process has claimed.
    """

    def __init__(self, tasks: LiveTasks, on_lost: OnLost, on_claim: OnClaim) -> None:
        self._store = tasks.store
        self._tasks = tasks
        self._on_lost = on_lost
        self._on_claim = on_claim
        self._works: list[asyncio.Task[None]] = []
        self._since: dict[Lease, float] = {}
        self._renewed = time.monotonic()
        self.claims_orphans = True
        """Whether orphaned tasks are taken over; not while the process drains."""

    def start(self) -> None:
        """Begin, again after an earlier end; needs a running event loop."""
        self.claims_orphans = True
        self._since, self._renewed = {}, time.monotonic()
        works = (
            self._renew_leases,
            self._expire_leases,
            self._claim_orphans,
            self._poll_changes,
            self._prune,
        )
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

    async def _renew_leases(self) -> None:
        """Renew all leases several times before they end."""
        fails = False
        while True:
            period = pause = self._store.lease_seconds / RENEWALS_PER_LEASE
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

    async def _expire_leases(self) -> None:
        """Stop runs whose lease could not be renewed, before it ends and whatever the store does.

        Another replica may claim the task when the lease ends, so the run must have stopped by
        then. This task never waits for the store: an answer that does not come must not delay it.
        """
        loop = asyncio.get_running_loop()
        seen = loop.time()
        while True:
            now, lasts = loop.time(), self._store.lease_seconds
            # a new lease was taken after the last look: count it from there
            self._since = {lease: self._since.get(lease, seen) for lease in self._tasks.leases()}
            for lease, since in self._since.items():
                if now >= since + LEASE_SAFETY_FRACTION * lasts:
                    self._lose(lease)
            seen = now
            await asyncio.sleep(EXPIRY_CHECK_FRACTION * lasts)

    async def _renew(self) -> None:
        begun = asyncio.get_running_loop().time()
        leases = self._tasks.leases()
        lost = await self._store.renew(leases) if leases else ()
        self._since |= dict.fromkeys(leases, begun)
        for lease in lost:
            # it may have been released during the call
            if self._tasks.lease_of(lease.task_id) == lease:
                self._lose(lease)

    async def _claim_orphans(self) -> None:
        """Take over tasks whose lease has expired, until there are none."""
        while True:
            try:
                while self.claims_orphans and await self._claim() == CLAIM_LIMIT:
                    pass
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.debug("Nothing could be claimed: %s", type(error).__name__)
            await asyncio.sleep(min(CLAIM_INTERVAL, self._store.lease_seconds / RENEWALS_PER_LEASE))

    async def _claim(self) -> int:
        """Claim some orphaned tasks; return how many."""
        claims = await self._store.claim(CLAIM_LIMIT)
        for claim in claims:
            try:
                await self._on_claim(claim)
            except BaseException as error:  # do not renew the lease of a task we failed to resume
                self._tasks.forget(claim.lease.task_id)
                if not isinstance(error, Exception):
                    raise
                message = "Task %s can't be resumed: %s"
                logger.warning(message, claim.lease.task_id, type(error).__name__)
        return len(claims)

    async def _prune(self) -> None:
        """Delete old tasks now and then, at random so that replicas take turns."""
        while True:
            await asyncio.sleep(PRUNE_INTERVAL * (0.5 + random()))
            try:
                pruned = await self._store.prune()
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.warning("Old tasks could not be dropped: %s", type(error).__name__)
            else:
                logger.debug("Old tasks dropped: %d", pruned)

    async def _poll_changes(self) -> None:
        """Look for changes by other replicas, for waiting readers and for runs of this one."""
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            try:
                versions = await self._store.versions(self._watched())
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.debug("Tasks could not be looked at: %s", type(error).__name__)
            else:
                for task_id, version in versions.items():
                    self.on_change(task_id, version)

    def _watched(self) -> list[str]:
        """Return the tasks that other replicas may change while this process relies on them."""
        leased = [lease.task_id for lease in self._tasks.leases()] if self._store.is_shared else []
        awaited = self._tasks.waiters.tasks()
        return [*{*leased, *(name for name in awaited if self._tasks.current(name) is None)}]

    def on_change(self, task_id: str, version: int) -> None:
        """Take the hint that a task has come to *version*: wake its readers, or stop its run."""
        live = self._tasks.current(task_id)
        if live is None:
            self._tasks.waiters.wake(task_id, version)
        # a locked task is being changed by this very process
        elif version > live.record.version and not live.lock.locked() and live.lease is not None:
            self._lose(live.lease)

    def _lose(self, lease: Lease) -> None:
        self._tasks.forget(lease.task_id)
        self._on_lost(lease)
