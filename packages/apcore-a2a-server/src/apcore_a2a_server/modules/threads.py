"""Threads for synchronous modules, and for slow functions of the server itself.

Clients with waiting calls take turns.
"""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from math import inf
from queue import SimpleQueue
from typing import Any, TypeVar

from .fairness import FairQueue, Room

T = TypeVar("T")

_outer_loop: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("outer_loop", default=None)
"""The event loop that gave the current code to a thread of a pool; None outside such threads.

An asyncio task that such a thread starts in that event loop has this value, too, although the task
runs outside the threads.
"""

WINDOW = 0.02
"""Seconds over which a thread's CPU time is measured, and between attempts to start calls."""
COMPUTING_SHARE = 0.02
"""Fraction of a window for which a thread must use the CPU to count as computing."""
COMPUTING_MEMORY = 0.16
"""Seconds for which a thread counts as computing after a window in which it computed.

Threads that compute take turns of 5 ms, so one of them may get no turn in a window.
"""
SPARE_THREADS = 2
"""Threads that may compute in addition to one per core: now and then one waits for a disk."""
LATENESS = 0.008
"""Seconds by which a timer of the event loop may be late; beyond that, the loop counts as late.

One thread that computes in Python delays the loop by 5 ms whenever the loop needs the interpreter
lock, two threads by 10 ms.
"""
LATENESS_MEMORY = 0.5
"""Seconds for which the event loop counts as late after a late timer."""
LATE_LIMIT = 2
"""Threads that may compute while the event loop is late: more would not make Python faster."""
FIRST_LIMIT = 4
"""Threads that may compute before it is known whether they hold up the event loop."""
HAS_CPU_CLOCKS = hasattr(time, "pthread_getcpuclockid")


class ThreadPoolError(RuntimeError):
    """There is no thread for a synchronous module, and none is about to become free."""


@dataclass(slots=True, eq=False)
class _Call:
    """A function to call in a thread, and the future of its result.

    Attributes:
        client: The client whose call it is.
        thread: The thread that makes the call; None until the call starts.
        has_ended: Whether the function has returned or raised.
        is_abandoned: Whether the caller was cancelled, so that the result is dropped.
        computes_until: Time until which the thread counts as computing, by `time.monotonic`; later
            measurements may extend it. Infinite before the first measurement; 0 if
            `HAS_CPU_CLOCKS` is false.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    context: Context
    result: "asyncio.Future[Any]"
    client: str = ""
    thread: "_Thread | None" = None
    has_ended: bool = False
    is_abandoned: bool = False
    computes_until: float = inf if HAS_CPU_CLOCKS else 0
    _measured_at: float = 0
    _cpu_time: float = 0

    def start(self, thread: "_Thread") -> None:
        """Note the CPU time of the thread, then have it make the call."""
        self.thread = thread
        self._measured_at, self._cpu_time = time.monotonic(), thread.cpu_time()
        thread.calls.put(self)

    def measure(self, now: float) -> None:
        """Find out whether the thread computes, if a window has passed since the previous check."""
        elapsed = now - self._measured_at
        if HAS_CPU_CLOCKS and self.thread is not None and elapsed >= WINDOW:
            cpu_time = self.thread.cpu_time()
            if cpu_time - self._cpu_time > COMPUTING_SHARE * elapsed:
                self.computes_until = now + COMPUTING_MEMORY
            elif self.computes_until == inf:  # its first window
                self.computes_until = now
            self._measured_at, self._cpu_time = now, cpu_time


class _Thread(threading.Thread):
    """A daemon that makes one call after another.

    Args:
        on_end: Called in the thread after each call, with the call, its result and its error.
    """

    def __init__(self, on_end: Callable[[_Call, Any, BaseException | None], None]) -> None:
        super().__init__(name="module", daemon=True)
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self._on_end = on_end

    def cpu_time(self) -> float:
        """Return the seconds of CPU time that the thread has used.

        This is safe, since the thread never ends: the operating system may crash a process that
        reads the clock of an ended thread.
        """
        if not HAS_CPU_CLOCKS or self.ident is None:
            return 0
        return time.clock_gettime(time.pthread_getcpuclockid(self.ident))

    def run(self) -> None:
        """Make calls for as long as the process lives."""
        while True:
            call, result, error = self.calls.get(), None, None
            try:
                if not call.is_abandoned:
                    result = call.context.run(call.function, *call.args)
            except BaseException as raised:  # modules may raise anything: their caller gets it
                error = raised
            self._on_end(call, result, error)
            del call, result, error  # an idle thread keeps nothing alive


class ThreadPool:
    """A pool of threads for synchronous modules.

    Without shares, at most `limit` modules run at a time. Many of them may wait for a network or a
    disk; but if all of them computed, they would starve the event loop, as all threads share the
    interpreter lock. Therefore, another call starts only while few threads have recently used the
    CPU: fewer than `computing_limit` (at first, fewer than `FIRST_LIMIT`), or fewer than two
    while the event loop is late. Modules that release the lock while they compute do not make the
    loop late.

    Clients with waiting calls take turns, and the calls of one client start in order. While a
    client has more than its share of the places, other clients still get their shares, so more than
    `limit` modules may run: up to 1.5 times as many for a share of one half.

    A thread can't be ended from outside. A call that is canceled or times out gives its place to
    the next call and leaves its thread behind: the thread is *stuck* until its module returns, and
    the result is dropped. The limit and the shares also hold for stuck threads: when they are
    reached, calls are refused. The threads are daemons: the end of a process waits for threads of
    `concurrent.futures` or anyio, but not for these.

    Args:
        limit: How many modules may run at a time, and how many more threads may be stuck.
        computing_limit: How many threads may use the CPU before other calls wait; by default the
            number of cores + 2.
        share: The fraction of all places that each client can count on; None for no shares.

    Attributes:
        computing_limit: How many threads may use the CPU before other calls wait.
        late_limit: How many threads may use the CPU while the event loop is late.
    """

    def __init__(
        self, limit: int, computing_limit: int | None = None, *, share: float | None = None
    ) -> None:
        self._limit = limit
        self._share = share
        self.computing_limit = computing_limit or count_cores() + SPARE_THREADS
        self.late_limit = LATE_LIMIT
        self._waiting: FairQueue[_Call] = FairQueue()
        """Calls without a thread."""
        self._stuck: Counter[str] = Counter()
        self._running: set[_Call] = set()
        self._idle: list[_Thread] = []
        self._timer: asyncio.TimerHandle | None = None
        self._adapted_limit, self._late_until = FIRST_LIMIT, -inf
        self._lock = threading.Lock()

    @staticmethod
    def is_inside() -> bool:
        """Return whether the current coroutine runs in a thread of a pool."""
        return _outer_loop.get() not in (None, asyncio.get_running_loop())

    @property
    def running(self) -> int:
        """The number of calls that have a thread, without those of stuck threads."""
        return len(self._running)

    @property
    def stuck(self) -> int:
        """The number of threads that are stuck."""
        with self._lock:
            return self._stuck.total()

    def is_full(self, client: str) -> bool:
        """Return whether a call of *client* would be refused because too many threads are stuck."""
        if not self._stuck:
            return False
        with self._lock:
            room = self._room(self._limit, [*self._stuck.elements()])
        return not (room.has_place_for(client) and room.has_place())

    async def run(self, function: Callable[..., Any], *args: Any, client: str = "") -> Any:
        """Call *function* in a thread when one is free; cancellation does not stop a started call.

        Args:
            function: The function.
            args: Its arguments.
            client: The client whose call it is.

        Raises:
            ThreadPoolError: Too many threads are stuck, or the system has no more threads.
        """
        loop, outer_loop = asyncio.get_running_loop(), _outer_loop.get()
        if outer_loop is not None and outer_loop is not loop:
            return function(*args)  # a module's call of another module stays in the same thread
        context = copy_context()
        context.run(_outer_loop.set, loop)
        result = loop.create_future()
        call = _Call(function, args, context, result, client)
        self._waiting.add(client, call)
        self._start_waiting()
        try:
            return await call.result
        except asyncio.CancelledError:
            self._abandon(call)
            raise

    def _start_waiting(self) -> None:
        """Start the waiting calls, as long as there are places."""
        while (call := self._next()) is not None:
            if call.result.done():  # its caller was cancelled
                continue
            if self.is_full(call.client):
                call.result.set_exception(ThreadPoolError("Too many synchronous modules are stuck"))
                continue
            try:
                thread = self._idle_thread()
            except RuntimeError:  # a limit of the operating system
                call.result.set_exception(ThreadPoolError("The system has no more threads"))
                continue
            self._running.add(call)
            call.start(thread)
        if self._waiting and self._timer is None:
            due = time.monotonic() + WINDOW
            self._timer = asyncio.get_running_loop().call_later(WINDOW, self._retry, due)

    def _next(self) -> _Call | None:
        """Remove and return the next call that may start, or None; clients take turns."""
        rooms = self._rooms() if self._waiting else ()
        if not all(room.has_place() for room in rooms):
            return None
        entry = self._waiting.pop(lambda client: all(room.has_place_for(client) for room in rooms))
        return None if entry is None else entry[1]

    def _retry(self, due: float) -> None:
        """Adapt the limit on computing calls to the lateness of this timer; start waiting calls."""
        self._timer, now = None, time.monotonic()
        if now > due + LATENESS:
            self._adapted_limit, self._late_until = self.late_limit, now + LATENESS_MEMORY
        elif now > self._late_until and self._adapted_limit < self.computing_limit:
            self._adapted_limit += 1
        self._start_waiting()

    def _rooms(self) -> Sequence[Room]:
        """Return the rooms where a new call needs a place; empty if any client may start a call."""
        now = time.monotonic()
        computing_limit = min(self._adapted_limit, self.computing_limit)
        if len(self._running) < min(computing_limit, self._limit):
            return ()
        for call in self._running:
            call.measure(now)
        computing = [call.client for call in self._running if now < call.computes_until]
        if len(self._running) < self._limit and len(computing) < computing_limit:
            return ()
        running = [call.client for call in self._running]
        return self._room(self._limit, running), self._room(computing_limit, computing)

    def _room(self, limit: int, holders: Sequence[str]) -> Room:
        return Room.of(limit, self._share, holders)

    def _abandon(self, call: _Call) -> None:
        """Give up a call whose caller was cancelled; a thread that still runs it is now stuck."""
        if call in self._running:
            self._running.remove(call)
            with self._lock:
                call.is_abandoned = True
                self._stuck[call.client] += not call.has_ended
        self._waiting.discard(call.client, call)  # a queued call keeps its arguments alive
        self._start_waiting()

    def _idle_thread(self) -> _Thread:
        """Return an idle thread; start one if there is none."""
        with suppress(IndexError):
            return self._idle.pop()
        thread = _Thread(self._on_end)
        thread.start()
        return thread

    def _on_end(self, call: _Call, result: Any, error: BaseException | None) -> None:
        """Record the end of a call; this runs in the thread of the call."""
        with self._lock:
            call.has_ended = True
            if call.is_abandoned:
                self._stuck -= {call.client: 1}  # drops counts of zero, unlike `subtract`
        if call.thread is not None:
            self._idle.append(call.thread)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop = call.result.get_loop()
            loop.call_soon_threadsafe(self._settle, call, result, error)

    def _settle(self, call: _Call, result: Any, error: BaseException | None) -> None:
        """Pass a result to its caller, and start waiting calls; this runs in the event loop."""
        self._running.discard(call)
        if not call.result.done():
            if error is None:
                call.result.set_result(result)
            elif isinstance(error, StopIteration):  # a future can't raise it
                call.result.set_exception(RuntimeError("StopIteration"))
            else:
                call.result.set_exception(error)
        self._start_waiting()


class SideThreads:
    """Threads for slow functions of the server itself, beside the event loop.

    They are daemons, like the threads of `ThreadPool`. Event loops of different threads may share
    the same `SideThreads`.

    Args:
        number: Maximum number of calls that run at a time; others wait, and clients take turns.

    Attributes:
        pending: The number of calls that wait or run, without those canceled while they waited.
    """

    def __init__(self, number: int) -> None:
        self._unstarted = number
        self._waiting: FairQueue[tuple[Future[Any], Callable[[], Any]]] = FairQueue()
        self._added = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.pending = 0

    async def call(self, function: Callable[..., T], *args: Any, client: str = "") -> T:
        """Call *function* in one of the threads; cancellation does not stop a started call.

        Args:
            function: The function.
            args: Its arguments.
            client: The client whose call it is.
        """
        result: Future[T] = Future()
        call = result, partial(copy_context().run, function, *args)
        with self._lock:
            while self._unstarted:  # at the first call, since a fork keeps no threads
                threading.Thread(target=self._make_calls, name="beside-loop", daemon=True).start()
                self._unstarted -= 1
            self.pending += 1
            self._waiting.add(client, call)
        result.add_done_callback(self._on_done)
        self._added.release()
        return await asyncio.wrap_future(result)

    def _on_done(self, _: "Future[Any]") -> None:
        with self._lock:
            self.pending -= 1

    def _make_calls(self) -> None:
        """Make one call after another; clients with waiting calls take turns."""
        while True:
            self._added.acquire()
            with self._lock:
                entry = self._waiting.pop()
            if entry is not None:
                _set_result(*entry[1])
            del entry  # an idle thread keeps nothing alive


def _set_result(result: "Future[Any]", function: Callable[[], Any]) -> None:
    """Call *function* and put its outcome into *result*, unless the caller was cancelled."""
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(function())
    except StopIteration:  # an asyncio future can't raise it
        result.set_exception(RuntimeError("StopIteration"))
    except BaseException as error:  # the caller gets it, whatever it is
        result.set_exception(error)
        del result, function  # the traceback of the error would keep them alive


value_thread = SideThreads(1)
"""The thread for large values: their checks and conversions need only the CPU, so one is enough."""
check_threads = SideThreads(2)
"""The threads for checks that wait for another process."""


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
