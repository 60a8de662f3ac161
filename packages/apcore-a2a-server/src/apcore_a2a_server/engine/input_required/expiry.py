"""Paused tasks that nobody answers in time."""

import asyncio
import time
from contextlib import suppress

from a2a.types import Message
from apcore_a2a_core.states import FAILED, PAUSED

from apcore_a2a_server.engine.change import NewState, change
from apcore_a2a_server.engine.messages import say
from apcore_a2a_server.engine.process import Background
from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.store.live import LiveTasks

from .pause import Pause


class Expiries:
    """Fails tasks whose question has not been answered when its time is over.

    A task that was paused by an earlier process is failed when somebody answers too late.

    Args:
        tasks: Where tasks live.
    """

    def __init__(self, tasks: LiveTasks) -> None:
        self._tasks = tasks
        self._timers: dict[str, tuple[str, asyncio.TimerHandle]] = {}
        self._background = Background()

    def expect(self, about: Message, pause: Pause) -> None:
        """Wait for the answer to *pause* in the task of *about*, as long as it may take."""
        self.forget(about.task_id)
        seconds = max(pause.expires - time.time(), 0)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._on_time, about, pause)
        self._timers[about.task_id] = pause.id, timer

    def forget(self, task_id: str, pause_id: str | None = None) -> None:
        """The task has ended, or the pause with this id has been answered."""
        known, timer = self._timers.get(task_id, (None, None))
        if timer is not None and pause_id in (None, known):
            timer.cancel()
            del self._timers[task_id]

    def forget_all(self) -> None:
        """The server ends; what is paused stays so."""
        for task_id in [*self._timers]:
            self.forget(task_id)

    async def end(self, about: Message, pause: Pause) -> None:
        """Fail the task, if it still waits for the answer to *pause*."""
        self.forget(about.task_id)
        update = NewState(FAILED, say(about, pause.over()))
        with suppress(StaleTaskError):
            packed = pause.pack()
            await change(self._tasks, about.task_id, update, expect=PAUSED, pause=packed)

    def _on_time(self, about: Message, pause: Pause) -> None:
        self._background.start(self.end(about, pause), "Failing a task that was not answered")
