"""Work that nobody waits for."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

logger = logging.getLogger(__name__)


class Background:
    """Keeps asyncio tasks that nobody waits for, and logs what they raise."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Do *work*, which is *what* in the log should it fail."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_done, what))

    def _on_done(self, what: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s failed", what, exc_info=error)
