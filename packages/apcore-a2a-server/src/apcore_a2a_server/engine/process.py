"""The state of the process, and its background work."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ProcessState:
    """The state of the process: one for the engine, the health check and the server.

    A process that has drained may start again, as an application does whose lifespan is entered
    a second time.

    Attributes:
        is_draining: Whether running tasks may end, and none may start.
    """

    is_draining: bool = False


class Background:
    """Runs coroutines that no caller awaits, and logs what they raise."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Run *work*; the log calls it *what* if it fails."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_done, what))

    def _on_done(self, what: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s failed", what, exc_info=error)
