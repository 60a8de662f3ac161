"""Who waits for what: the watchers of a task, and the streams of a client."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from apcore_a2a_server.engine.process import Background
from apcore_a2a_server.errors import TooMuchError

from .caller import Connection

OnLost: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]


class Watchers:
    """Counts the clients that wait for each task, and tells when the last one is lost.

    A client is lost when it hangs up; one that has its answer, or that the server itself cuts
    off, is not (FR-MSG-005).

    Args:
        on_lost: Is told the id of a task whose last watcher was lost, and did not come back.
        grace: Seconds in which a watcher may come back; None when it does not matter.
    """

    def __init__(self, on_lost: OnLost, grace: float | None) -> None:
        self._on_lost = on_lost
        self._grace = grace
        self._watchers: dict[str, int] = {}
        self._lost: dict[str, asyncio.TimerHandle] = {}
        self._background = Background()

    def enter(self, task_id: str, connection: Connection) -> None:
        """The client of *connection* waits for a task, until its request is over."""
        self._watchers[task_id] = self._watchers.get(task_id, 0) + 1
        if self._lost and task_id in self._lost:
            self._lost.pop(task_id).cancel()
        connection.hold(partial(self._leave, task_id, connection))

    def _leave(self, task_id: str, connection: Connection) -> None:
        self._watchers[task_id] -= 1
        if self._watchers[task_id]:
            return
        del self._watchers[task_id]
        if connection.gone and self._grace is not None:
            loop = asyncio.get_running_loop()
            self._lost[task_id] = loop.call_later(self._grace, self._give_up, task_id)

    def _give_up(self, task_id: str) -> None:
        del self._lost[task_id]
        self._background.start(self._on_lost(task_id), "Canceling a task whose client is gone")


class Streams:
    """Counts the streams that are open, all in all and of each client, and limits them.

    Args:
        limit: How many there may be in all.
        limit_per_client: How many a client may have.
    """

    def __init__(self, limit: int, limit_per_client: int) -> None:
        self._limit = limit
        self._limit_per_client = limit_per_client
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of.total()

    def enter(self, client: str, connection: Connection) -> None:
        """One more for *client*, until the request of *connection* is over.

        Raises:
            TooMuchError: It has too many, or there are too many in all.
        """
        if self._of[client] >= self._limit_per_client or len(self) >= self._limit:
            raise TooMuchError("Too many streams")
        self._of[client] += 1
        connection.hold(partial(self._leave, client))

    def _leave(self, client: str) -> None:
        self._of[client] -= 1
        if not self._of[client]:
            del self._of[client]
