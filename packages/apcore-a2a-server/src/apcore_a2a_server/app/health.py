"""The health check: `GET /health` (FR-OPS-001)."""

import asyncio
import logging
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apcore_a2a_server.engine.setup import Setup
from apcore_a2a_server.errors import DISK_FULL
from apcore_a2a_server.store import DiskFullError

from .companions import Companions
from .figures import ALIVE_AT, STORE_PROBLEM, Figures

logger = logging.getLogger(__name__)

PROBE_TIMEOUT = 0.8
"""Seconds for a check of the task store; the whole response may take one second (FR-OPS-001)."""
MAX_CHECK_WAIT = 0.25
"""Maximum seconds that a response waits for a check if the store has stored something recently."""
MAX_WRITE_AGE = 2.0
"""Maximum age in seconds of a write that shows that the store works.

With a durable store, a replica without tasks writes once a second, to claim orphaned tasks.
"""
WORKER_TIMEOUT = 10
"""Seconds after which a worker whose event loop has not run counts as stuck."""
PROBLEMS = ("", "The task store does not answer", DISK_FULL)
"""Problems of the task store, "" for none; the figure STORE_PROBLEM is an index into them."""


class HealthPage:
    """The health check (FR-OPS-001).

    With several workers, the response is about all of them, whichever gets the request.

    Args:
        setup: Provides the modules, the task store and the state of the process.
        figures: The figures of all workers.
        companions: The companions, whose state does not make the agent unhealthy.
    """

    def __init__(self, setup: Setup, figures: Figures, companions: Companions) -> None:
        self._companions = companions
        self._setup = setup
        self._figures = figures
        self._last_problem = 0
        self._running_check: asyncio.Task[None] | None = None

    async def publish(self) -> None:
        """Check the store, and share the result with the other workers."""
        await asyncio.wait([self._check(logs_again=False)])
        self._figures.set(ALIVE_AT, time.monotonic())

    async def status(self, *, logs_again: bool = False) -> tuple[str, str]:
        """Return `healthy`, `unhealthy` or `draining`, and the reason if the agent is not healthy.

        A check may have to wait for other work of the process. If the check takes long, and the
        store has stored something recently, the result of the previous check is returned.

        Args:
            logs_again: Whether to log a problem that the previous check has found already.
        """
        if self._setup.state.is_draining or self._figures.is_draining:
            return "draining", "The server is shutting down"
        check = self._check(logs_again=logs_again)
        await asyncio.wait([check], timeout=MAX_CHECK_WAIT)
        if not self._has_stored_recently():
            await asyncio.wait([check])
        self._figures.set(ALIVE_AT, time.monotonic())
        reason = self._reason()
        return ("unhealthy" if reason else "healthy"), reason

    async def show(self, request: Request) -> Response:
        """Respond with status, number of modules and uptime, or with 503 and a fixed reason."""
        status, reason = await self.status(logs_again=True)
        if reason:
            headers = {"connection": "close"} if status == "draining" else None
            return JSONResponse({"status": status, "reason": reason}, 503, headers)
        uptime = round(time.monotonic() - self._figures.started_monotonic, 3)
        healthy = {"status": status, "module_count": len(self._setup.skills)}
        workers = {"workers": self._figures.count_alive()} if self._figures.workers > 1 else {}
        companions = self._companions.health()
        return JSONResponse({**healthy, **workers, "uptime_seconds": uptime, **companions})

    def _check(self, *, logs_again: bool) -> "asyncio.Task[None]":
        """Return the running check of the store, which all requests share, or start one."""
        if self._running_check is None or self._running_check.done():
            self._running_check = asyncio.create_task(self._check_store(logs_again=logs_again))
        return self._running_check

    async def _check_store(self, *, logs_again: bool) -> None:
        problem = 0
        timeout = asyncio.timeout(PROBE_TIMEOUT)
        try:
            async with timeout:
                await self._setup.tasks.store.check()
        except Exception as error:  # a user's store may raise anything; the log has the details
            if not timeout.expired() or not self._has_stored_recently():
                problem = PROBLEMS.index(DISK_FULL) if isinstance(error, DiskFullError) else 1
                if logs_again or problem != self._last_problem:
                    logger.exception(PROBLEMS[problem], extra={"event": "health_check_failed"})
        self._last_problem = problem
        self._figures.set(STORE_PROBLEM, problem)

    def _has_stored_recently(self) -> bool:
        return time.monotonic() < self._setup.tasks.stored_at + MAX_WRITE_AGE

    def _reason(self) -> str:
        """Return why the agent is unhealthy; "" if it is healthy."""
        alive_at = min(moment for moment in self._figures.by_worker(ALIVE_AT) if moment)
        if alive_at < time.monotonic() - WORKER_TIMEOUT:
            return "A worker does not answer"
        return PROBLEMS[int(max(self._figures.by_worker(STORE_PROBLEM)))]
