"""Time limits of runs, with one timer for all of them."""

import asyncio
from contextvars import Context
from math import inf
from types import TracebackType

CLOCK_RESOLUTION = 0.001  # seconds
"""Time by which a timer may fire early: uvloop rounds to milliseconds."""


class TimeLimits:
    """The time limits that are in force.

    `asyncio.timeout` starts a timer for each block and cancels it again, which takes 5 percent of
    a short send. This timer is set for one of the earliest limits, and then for the next one that
    is still in force.

    Example:
        ```python
        import asyncio

        from apcore_a2a_server.engine.time_limits import TimeLimits


        async def main() -> None:
            time_limits = TimeLimits()
            try:
                with time_limits.limit(0.01):
                    await asyncio.sleep(60)
            except TimeoutError:
                print("too long")
                #> too long


        asyncio.run(main())
        ```
    """

    def __init__(self) -> None:
        self._deadlines: dict[TimeLimit, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def limit(self, seconds: float) -> "TimeLimit":
        """Return a context manager that limits the time of its block."""
        return TimeLimit(self, seconds)

    def add(self, limit: "TimeLimit", seconds: float) -> None:
        """Put a limit into force."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the application is served once more
            self._loop, self._timer_at = loop, inf
            self._deadlines.clear()
        deadline = self._deadlines[limit] = loop.time() + seconds
        if deadline < self._timer_at:
            self._set_timer(loop, deadline)

    def remove(self, limit: "TimeLimit") -> None:
        """End a limit, unless its time is over."""
        self._deadlines.pop(limit, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        # in a context of its own: the current one has the facts about the request
        self._timer = loop.call_at(deadline, self._on_timer, loop, context=Context())

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._timer_at = None, inf
        now = loop.time() + CLOCK_RESOLUTION
        for limit in [limit for limit, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[limit]
            limit.exceed()
        if self._deadlines:
            self._set_timer(loop, min(self._deadlines.values()))


class TimeLimit:
    """The time limit of one block, as a context manager for a coroutine.

    When the time is over, the asyncio task is canceled, and its `CancelledError` becomes a
    `TimeoutError` at the end of the block.

    Args:
        limits: The limits in force.
        seconds: The time for the block.

    Attributes:
        is_exceeded: Whether the time was over before the block ended.
    """

    __slots__ = ("_cancelling", "_limits", "_seconds", "_task", "is_exceeded")

    def __init__(self, limits: TimeLimits, seconds: float) -> None:
        self.is_exceeded = False
        self._limits = limits
        self._seconds = seconds
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def exceed(self) -> None:
        """Cancel the block."""
        self.is_exceeded = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> "TimeLimit":
        self._task = task = asyncio.current_task()
        assert task is not None, "A time limit needs an asyncio task"
        self._cancelling = task.cancelling()
        self._limits.add(self, self._seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._limits.remove(self)
        task, self._task = self._task, None
        if not self.is_exceeded or task is None:
            return
        # if the task was canceled for another reason too, the cancellation goes on
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
