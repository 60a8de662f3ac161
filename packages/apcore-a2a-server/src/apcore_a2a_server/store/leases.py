"""The background work of a replica: renew leases, claim orphaned tasks, poll for changes."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from random import random
from typing import TypeAlias

from .live import LiveTasks
from .port import Claim, Lease, Renew
from .replicas import Replica

logger = logging.getLogger("apcore_a2a.store")

OnLeaseLost: TypeAlias = Callable[[Lease], None]
OnClaim: TypeAlias = Callable[[Claim], Awaitable[None]]

CHANGE_POLL_INTERVAL = 1.0
"""Seconds between polls for changes by other replicas."""
PRUNE_INTERVAL = 60.0
"""Seconds, on average, between deletions of old tasks."""
RENEWALS_PER_LEASE = 3
"""Number of renewals of a lease before it would expire."""
LEASE_SAFETY_FRACTION = 0.8
"""Fraction of a lease's time after which the run stops if the lease could not be renewed."""
EXPIRY_CHECK_FRACTION = 0.02
"""Fraction of a lease's time between two checks for leases that could not be renewed."""
CLAIM_INTERVAL = 1.0
"""Maximum number of seconds between claims of orphaned tasks."""
CLAIM_LIMIT = 50
"""Maximum number of tasks that are claimed at a time."""
REMOVAL_TIMEOUT = 1.0  # seconds; a replica that is not removed is unlisted after a while


OnRenewed: TypeAlias = Callable[[Sequence[Lease], Sequence[Lease], float], None]
Describe: TypeAlias = Callable[[], Replica]
"""Returns the current `Replica` of this process; called from any thread."""


class Heartbeat:
    """A thread that renews leases and reports this replica.

    The thread has its own event loop and connection: a module that computes, or a large commit, can
    block the server's loop for seconds. The server's leases must not expire meanwhile, or another
    replica would run the tasks again.

    Args:
        tasks: The live tasks of this process.
        describe: Returns the `Replica` to report.
        on_renewed: Callback in the server's loop after each renewal. It takes the leases, those
            of them that are lost, and the `time.monotonic()` just before the call to the store.
    """

    def __init__(self, tasks: LiveTasks, describe: Describe, on_renewed: OnRenewed) -> None:
        self._tasks = tasks
        self._describe = describe
        self._store = tasks.store
        self._on_renewed = on_renewed
        self._server_loop = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._renewal_task = self._loop.create_task(self._renew_leases())
        self._thread = threading.Thread(target=self._run, name="apcore-a2a-leases", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop the thread; leases that are still held expire by themselves."""
        with suppress(RuntimeError):  # its loop is closed already
            self._loop.call_soon_threadsafe(self._renewal_task.cancel)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._renewal_task)
        self._loop.close()

    async def _renew_leases(self) -> None:
        """Renew all leases, several times before they expire, and report this replica."""
        is_failing = False
        renew: Renew | None = None
        interval = self._store.lease_seconds / RENEWALS_PER_LEASE
        async with AsyncExitStack() as stack:
            while True:
                # Renewal happens during the call, so the leases' time counts from before the call.
                pause, started_at, leases = interval, time.monotonic(), self._tasks.leases()
                try:
                    async with asyncio.timeout(interval):
                        if renew is None:
                            renew = await stack.enter_async_context(self._store.renewing())
                        lost_leases = await renew(leases, self._describe())
                except Exception as error:  # a store may raise anything, and may be back soon
                    if not is_failing:  # log an outage once
                        reason, extra = type(error).__name__, {"event": "lease_renewal_failed"}
                        logger.warning("Leases could not be renewed: %s", reason, extra=extra)
                    is_failing, pause = True, interval / 10
                else:
                    is_failing = False
                    self._call_on_renewed(leases, lost_leases, started_at)
                await asyncio.sleep(pause)

    def _call_on_renewed(
        self, leases: Sequence[Lease], lost_leases: Sequence[Lease], started_at: float
    ) -> None:
        with suppress(RuntimeError):  # the server's loop is closed
            self._server_loop.call_soon_threadsafe(
                self._on_renewed, leases, lost_leases, started_at
            )


class LeaseKeeper:
    """Background jobs that renew leases, claim orphaned tasks, poll for changes and prune.

    A store that only this process uses needs no renewals: the process never claims a task that it
    runs itself, however long its event loop was held up.

    Args:
        tasks: The live tasks of this process.
        describe: Returns the current `Replica` of this process.
        on_lost: Callback for each lease that this process has lost.
        on_claim: Resumes or ends a task that this process has claimed.
    """

    def __init__(
        self, tasks: LiveTasks, describe: Describe, on_lost: OnLeaseLost, on_claim: OnClaim
    ) -> None:
        self._store = tasks.store
        self._tasks = tasks
        self._describe = describe
        self._on_lost = on_lost
        self._on_claim = on_claim
        self._background_tasks: list[asyncio.Task[None]] = []
        self._heartbeat: Heartbeat | None = None
        self._renewed_at: dict[Lease, float] = {}
        self._last_renewal = time.monotonic()
        self.claims_orphans = True
        """Whether orphaned tasks are claimed; False while the process drains."""

    def start(self) -> None:
        """Start, or start again after `stop`; needs a running event loop."""
        self.claims_orphans = True
        self._renewed_at, self._last_renewal = {}, time.monotonic()
        jobs = [self._claim_orphans, self._poll_changes, self._prune]
        if self._store.is_shared:
            self._heartbeat = Heartbeat(self._tasks, self._describe, self._on_renewed)
            jobs.append(self._expire_leases)
        self._background_tasks = [asyncio.create_task(job()) for job in jobs]

    @property
    def seconds_since_renewal(self) -> float:
        """Seconds since this process last renewed its leases of a shared store."""
        return time.monotonic() - self._last_renewal

    async def stop(self) -> None:
        """Stop; leases that are still held expire by themselves."""
        if self._heartbeat is not None:
            await self._heartbeat.stop()
            await self._remove_replica()
        for background_task in self._background_tasks:
            background_task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)

    async def _remove_replica(self) -> None:
        with suppress(Exception):  # a store may raise anything; see REMOVAL_TIMEOUT
            async with asyncio.timeout(REMOVAL_TIMEOUT):
                await self._store.remove_replica(self._describe().id)

    async def _expire_leases(self) -> None:
        """Stop runs whose lease could not be renewed, before it expires.

        Another replica may claim the task as soon as the lease expires, so the run must have
        stopped by then. This loop never waits for the store: a reply that does not come must not
        delay it.
        """
        last_check = time.monotonic()
        while True:
            now, lease_seconds = time.monotonic(), self._store.lease_seconds
            # A new lease's time counts from the last check. Unless the store's reply was slow, the
            # lease was granted after that check, so its run may stop a little early, but not late.
            leases = self._tasks.leases()
            self._renewed_at = {lease: self._renewed_at.get(lease, last_check) for lease in leases}
            for lease, renewed_at in self._renewed_at.items():
                if now >= renewed_at + LEASE_SAFETY_FRACTION * lease_seconds:
                    self._lose(lease)
            last_check = now
            await asyncio.sleep(EXPIRY_CHECK_FRACTION * lease_seconds)

    def _on_renewed(
        self, leases: Sequence[Lease], lost_leases: Sequence[Lease], started_at: float
    ) -> None:
        self._last_renewal = started_at
        self._renewed_at |= dict.fromkeys(leases, started_at)
        for lease in lost_leases:
            # the task may have paused or ended during the call: then nothing was lost
            if self._tasks.lease_of(lease.task_id) == lease:
                self._lose(lease)

    async def _claim_orphans(self) -> None:
        """Claim orphaned tasks at intervals, each time until there are none."""
        while True:
            try:
                while self.claims_orphans and await self._claim() == CLAIM_LIMIT:
                    pass
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.debug("Orphaned tasks could not be claimed: %s", type(error).__name__)
            await asyncio.sleep(min(CLAIM_INTERVAL, self._store.lease_seconds / RENEWALS_PER_LEASE))

    async def _claim(self) -> int:
        """Claim some orphaned tasks; return how many."""
        claims = await self._store.claim(CLAIM_LIMIT, self._tasks.running())
        self._tasks.stored_at = time.monotonic()
        for claim in claims:
            task_id = claim.lease.task_id
            try:
                await self._on_claim(claim)
            except BaseException as error:  # do not renew the lease of a task we failed to resume
                self._tasks.forget(task_id)
                if not isinstance(error, Exception):
                    raise
                message, extra = "Task %s: not resumed: %s", {"event": "task_resume_failed"}
                logger.warning(message, task_id, type(error).__name__, extra=extra)
        return len(claims)

    async def _prune(self) -> None:
        """Delete old tasks at random intervals, so that replicas do not do it at the same time."""
        while True:
            await asyncio.sleep(PRUNE_INTERVAL * (0.5 + random()))
            try:
                pruned_count = await self._store.prune()
            except Exception as error:  # a store may raise anything, and may be back soon
                reason, extra = type(error).__name__, {"event": "prune_failed"}
                logger.warning("Old tasks could not be deleted: %s", reason, extra=extra)
            else:
                logger.debug("Old tasks deleted: %d", pruned_count)

    async def _poll_changes(self) -> None:
        """Poll for changes by other replicas, to wake readers and stop runs of this process.

        Change notifications arrive sooner, but may be lost.
        """
        while True:
            await asyncio.sleep(CHANGE_POLL_INTERVAL)
            try:
                versions = await self._store.versions(self._watched_ids())
            except Exception as error:  # a store may raise anything, and may be back soon
                logger.debug("Changes could not be polled: %s", type(error).__name__)
            else:
                for task_id, version in versions.items():
                    self.on_change(task_id, version)

    def _watched_ids(self) -> list[str]:
        """Return the ids of tasks whose changes by other replicas matter here.

        These are the tasks that run here, if the store is shared, and the tasks that readers wait
        for and that this process has no current record of.
        """
        leases = self._tasks.leases() if self._store.is_shared else []
        awaited_ids = self._tasks.waiters.task_ids()
        unknown_ids = (task_id for task_id in awaited_ids if not self._tasks.current(task_id))
        return [*{*(lease.task_id for lease in leases), *unknown_ids}]

    def on_change(self, task_id: str, version: int) -> None:
        """Wake the readers of a task that has reached *version*, or stop its outdated run."""
        live = self._tasks.current(task_id)
        if live is None:
            self._tasks.waiters.wake(task_id, version)
        # If the lock is held, this process is writing a change, which may be the new version.
        elif version > live.record.version and not live.lock.locked() and live.lease is not None:
            self._lose(live.lease)

    def _lose(self, lease: Lease) -> None:
        self._tasks.forget(lease.task_id)
        self._on_lost(lease)
