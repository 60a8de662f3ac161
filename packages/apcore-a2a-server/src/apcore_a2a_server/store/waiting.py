"""Who waits for more to happen to which task."""

import asyncio
from collections.abc import Mapping
from typing import TypeAlias

Waiter: TypeAlias = "asyncio.Future[bool]"


class Waiters:
    """Futures by task, each with the version that its reader has."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Waiter, int]] = {}

    async def wait(self, task_id: str, after: int, seconds: float) -> bool:
        """Wait until the task is beyond version *after*; False when *seconds* were not enough."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        known = self._waiting.setdefault(task_id, {})
        known[waiter] = after
        timer = loop.call_later(seconds, _settle, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            del known[waiter]
            if not known and self._waiting.get(task_id) is known:
                del self._waiting[task_id]

    def wake(self, task_id: str, version: int) -> None:
        """The task has come to *version*: tell those who have an earlier one."""
        for waiter, after in self._waiting.get(task_id, _NOBODY).items():
            if version > after:
                _settle(waiter, True)

    def tasks(self) -> list[str]:
        """The tasks that somebody waits for."""
        return [*self._waiting]


_NOBODY: Mapping[Waiter, int] = {}


def _settle(waiter: Waiter, more: bool) -> None:
    if not waiter.done():
        waiter.set_result(more)
