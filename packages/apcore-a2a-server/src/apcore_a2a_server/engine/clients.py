"""Clients: who sent a request, whether the connection is still open, and what it waits for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from apcore_a2a_core import Identity
from starlette.types import Receive

from apcore_a2a_server.errors import TooMuchError
from apcore_a2a_server.modules.tenants import Tenant, owner_of

from .process import BackgroundTasks

DISCONNECT_WATCH_DELAY = 0.5
"""Seconds after which a request starts to watch for a disconnect; most requests end sooner."""


class ClientDisconnectedError(BaseException):
    """The client disconnected before its response was complete.

    It replaces an `asyncio.CancelledError`, so it is a `BaseException` too: handlers for
    `Exception` must not catch it.
    """


class Connection(ExitStack):
    """The client's connection during one request, and the resources that the request holds.

    Use it as a context manager around the whole request; leaving it releases the resources.

    Args:
        receive: ASGI's `receive`, after the body has been read; None if the client cannot
            disconnect.
        host: The client's address.

    Attributes:
        disconnected: Whether the client has disconnected.
    """

    def __init__(self, receive: Receive | None = None, host: str = "") -> None:
        super().__init__()
        self.disconnected = False
        self.host = host
        self._receive = receive

    @contextmanager
    def watched(self) -> Generator[None]:
        """Cancel the block when the client disconnects.

        Raises:
            ClientDisconnectedError: The client disconnected.
        """
        request_task, receive = asyncio.current_task(), self._receive
        if request_task is None or receive is None:
            yield
            return
        watch_tasks: list[asyncio.Task[None]] = []

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                continue
            self.disconnected = True
            request_task.cancel()

        def start_watch() -> None:
            watch_tasks.append(asyncio.create_task(watch()))

        # a task per request is costly, so the watch starts only for requests that take long
        watch_timer = asyncio.get_running_loop().call_later(DISCONNECT_WATCH_DELAY, start_watch)
        try:
            yield
        except asyncio.CancelledError:
            # `uncancel` returns the cancellations left: above 0, another one came from outside
            if self.disconnected and request_task.uncancel() == 0:
                raise ClientDisconnectedError from None
            raise
        finally:
            watch_timer.cancel()
            for watch_task in watch_tasks:
                watch_task.cancel()

    @contextmanager
    def sending(self) -> Generator[None]:
        """Treat an OSError while sending as a disconnect (ASGI 2.4).

        Raises:
            ClientDisconnectedError: Sending raised an OSError.
        """
        try:
            yield
        except OSError:
            self.disconnected = True
            raise ClientDisconnectedError from None


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        principal: The authenticated principal; empty if anonymous.
        identity: The apcore Identity of the principal.
        headers: The headers of the request.
        connection: The connection of the request.
        root_path: The path at which the agent is mounted, if the request has one.
        tenant: The tenant that the request is for; None if it is for the whole agent.
    """

    principal: str = ""
    identity: Identity | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    connection: Connection = field(default_factory=Connection)
    root_path: str = ""
    tenant: Tenant | None = None

    @property
    def owner(self) -> str:
        """The owner of the caller's tasks, which tenants do not share."""
        return self.principal if self.tenant is None else owner_of(self.tenant, self.principal)

    @property
    def client(self) -> str:
        """Key for limits per client: the principal, or the client address if anonymous."""
        return self.principal or self.connection.host


OnAbandoned: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]
"""Takes the id of a task whose last client has disconnected."""


class Watchers:
    """The clients that wait for each task; reports tasks that have lost all of them.

    Only a disconnect makes a task abandoned. A client that got its response, or that the server
    itself disconnects, does not count (FR-MSG-005). Nor does an observer, which has subscribed to
    a task that is or was paused: it keeps a task that other clients have left, but if it is the
    only one to disconnect, the task goes on.

    Args:
        on_abandoned: Callback for a task whose last client disconnected and did not return.
        grace: Seconds in which a client may return; None if tasks need no clients.
    """

    def __init__(self, on_abandoned: OnAbandoned, grace: float | None) -> None:
        self._on_abandoned = on_abandoned
        self._grace = grace
        self._watchers: dict[str, int] = {}
        self._observers: set[Connection] = set()
        self._lost_tasks: set[str] = set()  # still watched, but a client that waited is gone
        self._grace_timers: dict[str, asyncio.TimerHandle] = {}
        self._background = BackgroundTasks()

    def enter(self, task_id: str, connection: Connection) -> None:
        """Count the client of *connection* as waiting for a task until its request ends."""
        self._watchers[task_id] = self._watchers.get(task_id, 0) + 1
        if self._grace_timers and task_id in self._grace_timers:
            self._grace_timers.pop(task_id).cancel()
        connection.callback(self._leave, task_id, connection)

    def observe(self, task_id: str, connection: Connection) -> None:
        """Count the client of *connection* as an observer, since the task is paused."""
        self._observers.add(connection)
        self._lost_tasks.discard(task_id)

    def _leave(self, task_id: str, connection: Connection) -> None:
        self._watchers[task_id] -= 1
        if connection in self._observers:
            self._observers.discard(connection)
        elif connection.disconnected:
            self._lost_tasks.add(task_id)
        if self._watchers[task_id]:
            return
        del self._watchers[task_id]
        is_lost = task_id in self._lost_tasks
        self._lost_tasks.discard(task_id)
        if is_lost and connection.disconnected and self._grace is not None:
            running_loop = asyncio.get_running_loop()
            timer = running_loop.call_later(self._grace, self._abandon, task_id)
            self._grace_timers[task_id] = timer

    def _abandon(self, task_id: str) -> None:
        del self._grace_timers[task_id]
        self._background.start(self._on_abandoned(task_id), f"Canceling abandoned task {task_id}")


class Streams:
    """Counts open streams and limits them, in total and for each client.

    Args:
        limit: Maximum number of open streams.
        limit_per_client: Maximum for one principal or anonymous client address.
    """

    def __init__(self, limit: int, limit_per_client: int) -> None:
        self._limit = limit
        self._limit_per_client = limit_per_client
        self._open_streams: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open_streams.total()

    def enter(self, client: str, connection: Connection) -> None:
        """Count one more stream of *client* until the request of *connection* ends.

        Raises:
            TooMuchError: A limit is reached.
        """
        if self._open_streams[client] >= self._limit_per_client or len(self) >= self._limit:
            raise TooMuchError("Too many streams are open")
        self._open_streams[client] += 1
        connection.callback(self._leave, client)

    def _leave(self, client: str) -> None:
        self._open_streams -= {client: 1}  # drops counts of zero, unlike `subtract`
