"""Whether the server works: `GET /health` (FR-OPS-001)."""

import asyncio
import logging
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apcore_a2a_server.engine.setup import Setup

logger = logging.getLogger(__name__)

PROBE_TIMEOUT = 0.8
"""Seconds that the task store has to answer in; the page itself has one (FR-OPS-001)."""


class HealthPage:
    """Whether the server works (FR-OPS-001).

    Args:
        setup: What is asked: the modules, the task store, the state of the process.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._started = time.monotonic()

    async def show(self, request: Request) -> Response:
        """`{"status", "module_count", "uptime_seconds"}`, or 503 and a fixed reason."""
        if self._setup.state.is_draining:
            document = {"status": "draining", "reason": "The server is shutting down"}
            return JSONResponse(document, 503, {"connection": "close"})
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await self._setup.tasks.store.check()
        except Exception:  # a user's store may raise anything; what it says is for the log alone
            logger.exception("The task store does not answer")
            reason = "The task store does not answer"
            return JSONResponse({"status": "unhealthy", "reason": reason}, 503)
        uptime = round(time.monotonic() - self._started, 3)
        healthy = {"status": "healthy", "module_count": len(self._setup.skills)}
        return JSONResponse({**healthy, "uptime_seconds": uptime})
