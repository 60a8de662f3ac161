"""Threads for synchronous modules, in bounded number."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter, to_thread


class ThreadsError(RuntimeError):
    """There is no thread for a synchronous module, and none to be hoped for soon."""


class Threads:
    """Runs synchronous modules, so many at a time.

    A thread can't be ended from outside. A call that is canceled or out of time gives its place
    to the next and leaves its thread behind: it is *stuck* until its module returns, and what
    that returns goes nowhere. When as many are stuck as may run, no more calls are taken.

    Args:
        limit: How many modules run at a time, and how many threads may be stuck beside them.
    """

    def __init__(self, limit: int) -> None:
        self.stuck = 0
        self._limit = limit
        self._limiter = CapacityLimiter(limit)
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether so many threads are stuck that no more calls are taken."""
        return self.stuck >= self._limit

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call *function* in a thread, as soon as there is one; cancellation leaves it there.

        Raises:
            ThreadsError: Too many threads are stuck.
        """
        if self.full:
            raise ThreadsError("Too many synchronous modules do not end")
        works = left = False

        def work() -> Any:
            nonlocal works
            works = True
            try:
                return function(*args)
            finally:
                with self._lock:
                    works = False
                    self.stuck -= left

        try:
            return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
        except asyncio.CancelledError:
            with self._lock:
                left = works
                self.stuck += left
            raise
