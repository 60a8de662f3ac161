"""The state of the process, and its background tasks."""

import asyncio
import logging
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ProcessState:
    """State shared by the engine, the health check and the server of this process.

    After a drain, the process can serve again, for example when the lifespan of its application
    is entered a second time.

    Attributes:
        is_draining: Whether the process is shutting down: running tasks may end, none may start.
        has_started: Whether the lifespan of the application has started the agent.
    """

    is_draining: bool = False
    has_started: bool = False


class Done:
    """An awaitable that is done already."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class BackgroundTasks:
    """Coroutines that no caller awaits; their exceptions are logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None], description: str) -> None:
        """Run *coroutine* as an asyncio task; a failure is logged with *description*."""
        # the event loop has only weak references to its tasks, so they are held here
        background_task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(background_task)
        background_task.add_done_callback(partial(self._on_done, description))

    def _on_done(self, description: str, background_task: asyncio.Task[None]) -> None:
        self._tasks.discard(background_task)
        if not background_task.cancelled() and (error := background_task.exception()):
            event = {"event": "background_task_failed"}
            logger.error("%s failed", description, exc_info=error, extra=event)
