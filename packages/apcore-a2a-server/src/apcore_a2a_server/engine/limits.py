"""Limits on memory and time, and on concurrent calls: in total, for each client, for each skill."""

import asyncio
from collections import Counter
from collections.abc import Collection
from contextvars import Context
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import Protocol

from apcore_a2a_server.errors import RetryLaterError
from apcore_a2a_server.middleware import RateLimiter
from apcore_a2a_server.modules.threads import ThreadPool
from apcore_a2a_server.store.live import LiveTasks

from .call import Call
from .clients import Caller, Connection, Slots

ROOM_DIVISOR = 32
"""Divisor: an eviction also frees a 32nd of the limit as spare room, so that evictions are rare."""

RESERVE_DIVISOR = 8
"""Divisor: a client that exceeds its share must leave an 8th of the limit free for others."""

MAX_UNCOUNTED_BODY = 4096
"""Maximum size of a body that is not counted, in bytes."""

COPIES_WHILE_PAUSED = 4
"""Number of copies of a task's inputs that its pause adds.

The request for approval has two, in the task and in the conversation; the stored pause has two,
in the call to resume and in the call to approve.
"""

CLOCK_RESOLUTION = 0.001  # seconds
"""Time by which a timer may fire early: uvloop rounds to milliseconds."""


class Memory:
    """The bytes that this process keeps for callers, and the limit on these bytes.

    `LiveTasks` and the store count the bytes of tasks; `take` counts those of request bodies.
    A client whose bodies and unfinished tasks exceed its share must leave a reserve for others.
    When there is no room, ended tasks are evicted: first those of principals whose ended tasks
    alone exceed the share. If there is still no room, the request is refused.

    Args:
        tasks: The live tasks of this process, and the store behind them.
        limit: The limit in bytes.
        share: The bytes above which a client must leave a reserve for others; None for no reserve.

    Attributes:
        limit: The limit in bytes.
        body_bytes: The bytes of request bodies that are counted now, see `BodyBytes`.
    """

    def __init__(self, tasks: LiveTasks, limit: int, share: int | None = None) -> None:
        self.limit = limit
        self.body_bytes = 0
        self._share = share
        self._body_bytes_of: Counter[str] = Counter()
        self._tasks = tasks
        self._awaited_ids: dict[Connection, str] = {}

    @property
    def running_bytes(self) -> int:
        """Bytes of the live tasks of this process, unless the store counts them."""
        return self._tasks.kept_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tasks, events, conversations and notifications of a store in memory."""
        return self._tasks.store.kept_bytes

    def keep_for(self, connection: Connection, task_id: str) -> None:
        """Protect a task from eviction until the request of *connection* ends."""
        if not connection.has_ended:
            self._awaited_ids[connection] = task_id
            connection.callback(self._awaited_ids.pop, connection, None)

    def take(self, caller: Caller, size: int) -> None:
        """Count *size* bytes of a request body for the client of *caller*.

        Raises:
            RetryLaterError: There is not enough memory, even after evicting ended tasks.
        """
        self.make_room(caller, size)
        self.body_bytes += size
        self._body_bytes_of[caller.client] += size

    def release(self, client: str, size: int) -> None:
        """Stop counting *size* bytes of a request body for a client."""
        self.body_bytes -= size
        self._body_bytes_of[client] -= size
        if not self._body_bytes_of[client]:
            del self._body_bytes_of[client]

    def make_room(self, caller: Caller, size: int = 0) -> None:
        """Make room for *size* bytes of a client, plus a reserve if the client exceeds its share.

        Raises:
            RetryLaterError: There is not enough memory, even after evicting ended tasks.
        """
        client = caller.client
        if self._excess(client, size) <= 0:
            return
        self._tasks.drop_paused()
        room = self.limit // ROOM_DIVISOR
        awaited_ids = {*self._awaited_ids.values()}
        excess = max(self._excess(client, size), 0)
        self._tasks.store.evict(excess + room, caller.owner, awaited_ids, self._share)
        if self._excess(client, size) > 0:
            raise RetryLaterError(f"The agent's memory is full; its limit is {self.limit} bytes")

    def make_room_for_pause(self, caller: Caller, size: int) -> None:
        """Make room to pause a task that a message of *size* bytes has started.

        If the pause keeps the client within its share, do nothing.

        Raises:
            RetryLaterError: There is not enough memory.
        """
        if self.exceeds_share(caller.client, COPIES_WHILE_PAUSED * size):
            self.make_room(caller, COPIES_WHILE_PAUSED * size)

    def exceeds_share(self, client: str, size: int = 0) -> bool:
        """Return whether a client's bodies and unfinished tasks exceed its share.

        Args:
            client: The client, as in `Caller.client`.
            size: More bytes to count.
        """
        # `get`, since a Counter calls a Python function for each missing key
        used_bytes = self._body_bytes_of.get(client, 0) + self._tasks.bytes_of(client)
        return self._share is not None and used_bytes + size > self._share

    def _excess(self, client: str, size: int) -> int:
        """Return the bytes above the limit if a client used *size* bytes more; may be negative."""
        reserve = self.limit // RESERVE_DIVISOR if self.exceeds_share(client, size) else 0
        kept_bytes = self._tasks.kept_bytes + self._tasks.store.kept_bytes
        return self.body_bytes + kept_bytes + size + reserve - self.limit


class BodyBytes:
    """The counted bytes of one request's body.

    Args:
        memory: The memory of the process, which counts the bytes.
        caller: The sender of the body.
        is_kept: Whether the body is kept until the request ends, even after its task is stored.
    """

    def __init__(self, memory: Memory, caller: Caller, *, is_kept: bool = False) -> None:
        self._memory = memory
        self._caller = caller
        self._is_kept = is_kept
        self._is_counted = False
        self._size = 0

    def grow(self, size: int) -> None:
        """Count the *size* bytes of the body that have arrived so far.

        Small bodies are not counted, so that tasks can be canceled even if the memory is full.

        Raises:
            RetryLaterError: There is not enough memory.
        """
        if size <= MAX_UNCOUNTED_BODY:
            return
        if not self._is_counted:
            self._is_counted = True
            if not self._is_kept:
                self._caller.connection.before_store = self.release
            self._caller.connection.callback(self.release)
        self._memory.take(self._caller, size - self._size)
        self._size = size

    def release(self) -> None:
        """Stop counting the body: it was refused, its request ended, or its task is counted now."""
        self._memory.release(self._caller.client, self._size)
        self._size = 0


class HasCall(Protocol):
    """The part of a run that limits depend on."""

    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Limits on the calls that run or wait for answers, and on how often clients call skills.

    Attributes:
        threads: The pool that runs synchronous modules.
        runs: The counter of running calls.
        paused: The counter of tasks that wait for answers.
        per_skill: Maximum number of concurrent calls of one skill; None for no limit.
        rate: Limit on how often a client may call each skill; None for no limit.
        total_rate: Limit on how often all clients together may call each skill; None for no limit.
    """

    threads: ThreadPool
    runs: Slots
    paused: Slots
    per_skill: int | None = None
    rate: RateLimiter | None = None
    total_rate: RateLimiter | None = None

    async def check(self, call: Call, running: Collection[HasCall]) -> None:
        """Refuse *call* if it would exceed a limit together with the *running* calls.

        Raises:
            RetryLaterError: A limit is reached; `retry_after` says when to try again, in seconds.
        """
        client, skill_id = call.caller.client, call.skill.id
        if self.rate is not None:
            await _count_use(self.rate, client, skill_id)
        if self.total_rate is not None:
            await _count_use(self.total_rate, skill_id)
        self.runs.check(client)
        # no timeout can end a thread: it is occupied until its module returns
        if call.skill.needs_thread and self.threads.is_full(client):
            raise RetryLaterError("Too many synchronous skills are stuck")
        if (
            self.per_skill
            and sum(run.call.skill.id == skill_id for run in running) >= self.per_skill
        ):
            raise RetryLaterError("Too many tasks of this skill are running")


async def _count_use(rate: RateLimiter, *key: str) -> None:
    if seconds := await rate.count_use(*key):
        error = RetryLaterError("The rate limit of this skill is reached")
        error.retry_after = seconds
        raise error


class TimeLimits:
    """The time limits that are in force.

    `asyncio.timeout` starts a timer for each block and cancels it again, which takes 5 percent of
    the time of a short `SendMessage`. Here, one timer is set for the earliest deadline. When it
    fires, it is set for the earliest of the remaining deadlines.

    Example:
        ```python
        import asyncio

        from apcore_a2a_server.engine.limits import TimeLimits


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
        if loop is not self._loop:  # the agent serves again, in another event loop
            self._loop, self._timer_at = loop, inf
            self._deadlines.clear()
        deadline = self._deadlines[limit] = loop.time() + seconds
        if deadline < self._timer_at:
            self._set_timer(loop, deadline)

    def remove(self, limit: "TimeLimit") -> None:
        """Remove a limit, unless the timer has removed it already."""
        self._deadlines.pop(limit, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        # in an empty context: the current one would keep a request's context variables in memory
        self._timer = loop.call_at(deadline, self._on_timer, loop, context=Context())

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._timer_at = None, inf
        now = loop.time() + CLOCK_RESOLUTION
        for limit in [limit for limit, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[limit]
            limit.cancel_block()
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

    def cancel_block(self) -> None:
        """Cancel the block, since its time is over."""
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
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._limits.remove(self)
        task, self._task = self._task, None
        if not self.is_exceeded or task is None:
            return
        # if the task was canceled for another reason too, the cancellation goes on
        if task.uncancel() <= self._cancelling and error_type is asyncio.CancelledError:
            raise TimeoutError from error
