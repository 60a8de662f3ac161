"""The health check: `GET /health` (FR-OPS-001)."""

import asyncio
import logging
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apcore_a2a_server.engine.setup import Setup
from apcore_a2a_server.errors import DISK_FULL
from apcore_a2a_server.store import DiskFullError

logger = logging.getLogger(__name__)

PROBE_TIMEOUT = 0.8
"""Timeout of the task store in seconds; the whole response has one second (FR-OPS-001)."""


class HealthPage:
    """The health check (FR-OPS-001).

    Args:
        setup: The parts that it checks: modules, task store and state of the process.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._started = time.monotonic()

    async def show(self, request: Request) -> Response:
        """Respond with status, number of modules and uptime, or with 503 and a fixed reason."""
        if self._setup.state.is_draining:
            document = {"status": "draining", "reason": "The server is shutting down"}
            return JSONResponse(document, 503, {"connection": "close"})
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await self._setup.tasks.store.check()
        except Exception as error:  # a user's store may raise anything; the log has the details
            is_full = isinstance(error, DiskFullError)
            reason = DISK_FULL if is_full else "The task store does not answer"
            logger.exception(reason, extra={"event": "health_check_failed"})
            return JSONResponse({"status": "unhealthy", "reason": reason}, 503)
        uptime = round(time.monotonic() - self._started, 3)
        healthy = {"status": "healthy", "module_count": len(self._setup.skills)}
        return JSONResponse({**healthy, "uptime_seconds": uptime})
