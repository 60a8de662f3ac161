"""Clients: who sent a request, whether they are still there, and what they wait for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from apcore_a2a_core import Identity
from starlette.types import Receive

from apcore_a2a_server.errors import TooMuchError

from .process import Background

PATIENCE = 0.5
"""Seconds after which a request begins to watch for a lost client; most end sooner."""


class HungUpError(BaseException):
    """The client has gone before it had its answer.

    Like the cancellation that it is made of, it is not for those who catch every `Exception`.
    """


class Connection:
    """Knows whether the client of a request is still there, and what the request holds.

    Used as a context manager around the whole request; what it holds is given back at its end.

    Args:
        receive: ASGI's, once the body has been read; None when there is no client to hang up.
        host: The address that the client has.

    Attributes:
        gone: Whether the client has hung up.
    """

    def __init__(self, receive: Receive | None = None, host: str = "") -> None:
        self.gone = False
        self.host = host
        self._receive = receive
        self._held: list[Callable[[], None]] = []

    def hold(self, give_back: Callable[[], None]) -> None:
        """Have *give_back* called when the request is over."""
        self._held.append(give_back)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *raised: Any) -> None:
        while self._held:
            self._held.pop()()

    def watched(self) -> "Watch":
        """A context manager that ends what is done inside when the client hangs up.

        Raises:
            HungUpError: It has.
        """
        return Watch(self)

    @contextmanager
    def losing(self) -> Generator[None]:
        """Take an OSError while sending for the client's end (ASGI 2.4).

        Raises:
            HungUpError: There was one.
        """
        try:
            yield
        except OSError:
            self.gone = True
            raise HungUpError from None

    async def until_gone(self) -> None:
        """Wait until the client hangs up."""
        if self._receive is not None:
            while (await self._receive())["type"] != "http.disconnect":
                continue
            self.gone = True


class Watch:
    """Watches for the client of a connection, once its request has gone on for a while."""

    __slots__ = ("_connection", "_task", "_timer", "_watching")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._task = asyncio.current_task()
        self._watching: asyncio.Future[None] | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._begin)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        ours = self._connection.gone and isinstance(error, asyncio.CancelledError)
        if ours and self._task is not None and self._task.uncancel() == 0:
            raise HungUpError from None

    def _begin(self) -> None:
        self._watching = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        await self._connection.until_gone()
        if self._connection.gone and self._task is not None:
            self._task.cancel()


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: the principal that owns its tasks, and the request's headers."""

    owner: str = ""
    identity: Identity | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    connection: Connection = field(default_factory=Connection)
    root_path: str = ""
    """The path that the agent is mounted at, as far as the request tells."""

    @property
    def client(self) -> str:
        """Rate-limit key: the principal, or the client's address if anonymous."""
        return self.owner or self.connection.host


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
