"""ThreadPool for synchronous modules, in bounded number."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, TypeAlias

_inside: ContextVar[bool] = ContextVar("apcore_a2a_in_thread", default=False)

Jobs: TypeAlias = "SimpleQueue[Callable[[], None]]"


class ThreadPoolError(RuntimeError):
    """There is no thread for a synchronous module, and none to be hoped for soon."""


class ThreadPool:
    """Runs synchronous modules, so many at a time.

    A thread can't be ended from outside. A call that is canceled or out of time gives its place
    to the next and leaves its thread behind: it is *stuck* until its module returns, and what
    that returns goes nowhere. When as many are stuck as may run, no more calls are taken. The
    threads are daemons: a process that ends does not wait for them, as it would for those of
    `concurrent.futures` or anyio.

    Args:
        limit: How many modules run at a time, and how many threads may be stuck beside them.

    Attributes:
        stuck: How many threads are stuck.
    """

    def __init__(self, limit: int) -> None:
        self.stuck = 0
        self._limit = limit
        self._places = asyncio.Semaphore(limit)
        self._idle: list[Jobs] = []
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether so many threads are stuck that no more calls are taken."""
        return self.stuck >= self._limit

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call *function* in a thread, as soon as there is one; cancellation leaves it there.

        Raises:
            ThreadPoolError: Too many threads are stuck.
        """
        if _inside.get():  # a module that another calls in its thread runs there, too
            return function(*args)
        async with self._places:
            if self.full:
                raise ThreadPoolError("Too many synchronous modules do not end")
            loop = asyncio.get_running_loop()
            done, context = loop.create_future(), copy_context()
            works, left = True, False

            context.run(_inside.set, True)

            def work() -> None:
                nonlocal works
                result, error = (None, None) if left else _outcome(context.run, function, *args)
                with self._lock:
                    works = False
                    self.stuck -= left
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(_settle, done, result, error)

            self._thread().put(work)
            try:
                return await done
            except asyncio.CancelledError:
                with self._lock:
                    left = works
                    self.stuck += left
                raise

    def _thread(self) -> Jobs:
        """The jobs of a thread that has none."""
        with suppress(IndexError):
            return self._idle.pop()
        jobs: Jobs = SimpleQueue()
        threading.Thread(target=self._serve, args=(jobs,), name="module", daemon=True).start()
        return jobs

    def _serve(self, jobs: Jobs) -> None:
        while True:
            jobs.get()()
            self._idle.append(jobs)


def _outcome(function: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    try:
        return function(*args), None
    except BaseException as error:  # modules raise what they like; it is raised where it is awaited
        return None, error


def _settle(done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    elif isinstance(error, StopIteration):  # a future can't raise it
        done.set_exception(RuntimeError("StopIteration"))
    else:
        done.set_exception(error)
