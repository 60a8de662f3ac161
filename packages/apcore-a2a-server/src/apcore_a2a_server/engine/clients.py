"""The clients that send requests, their connections, and the verdicts and tasks they wait for."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from apcore import Identity as ApcoreIdentity
from apcore_a2a_core import Identity
from msgspec import Struct, field
from starlette.types import Receive

from apcore_a2a_server.errors import RetryLaterError
from apcore_a2a_server.modules.tenants import Tenant, owner_of
from apcore_a2a_server.trace_context import Trace

from .process import BackgroundTasks

DISCONNECT_WATCH_DELAY = 0.5
"""Seconds after which a request starts to watch for a disconnect; most requests end sooner."""


class ClientDisconnectedError(BaseException):
    """The client disconnected before its response was complete.

    It replaces an `asyncio.CancelledError`, so it is a `BaseException` too: handlers for
    `Exception` must not catch it.
    """


def _ignore() -> None:
    """Do nothing."""


class Connection:
    """The client's connection during one request, and the resources that the request holds.

    Use it as a context manager around the whole request; leaving it releases the resources.

    Args:
        receive: ASGI's `receive`, which reports a disconnect; None over gRPC, which cancels the
            request instead.

    Attributes:
        disconnected: Whether the client has disconnected.
        has_ended: Whether the request has ended.
        before_store: Called just before the task of the request's message is stored or resumed.
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "before_store",
        "disconnected",
        "has_ended",
        "receive",
    )

    def __init__(self, receive: Receive | None = None) -> None:
        self.disconnected = self.has_ended = False
        self.before_store: Callable[[], None] = _ignore
        self.receive = receive
        # not an ExitStack, which takes two kilobytes: each open stream has a connection
        self._callbacks: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.has_ended = True
        while self._callbacks:
            function, arguments = self._callbacks.pop()
            try:
                function(*arguments)
            except BaseException:  # the other resources must be released too
                self.__exit__()
                raise

    def callback(self, function: Callable[..., object], *arguments: object) -> None:
        """Call *function* when the request ends; the function added last is called first."""
        self._callbacks.append((function, arguments))

    def watched(self) -> "Watch":
        """Return a context manager that cancels its block when the client disconnects.

        The block then ends with `ClientDisconnectedError`.
        """
        return Watch(self)


class Watch:
    """A context manager that cancels its block when the client disconnects.

    Args:
        connection: The connection of the client.
    """

    __slots__ = ("_connection", "_request_task", "_timer", "_watch_task")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._request_task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch_task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._request_task = asyncio.current_task()
        if self._request_task is not None and self._connection.receive is not None:
            # only requests that take long are watched: an asyncio task for each request is costly
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(DISCONNECT_WATCH_DELAY, self._start)

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watch_task is None:
            return
        self._watch_task.cancel()
        is_disconnect = isinstance(error, asyncio.CancelledError) and self._connection.disconnected
        # `uncancel` returns the number of cancellations left, which came from other code
        if is_disconnect and self._request_task is not None and self._request_task.uncancel() == 0:
            raise ClientDisconnectedError from None

    def _start(self) -> None:
        self._timer = None
        self._watch_task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        receive, request_task = self._connection.receive, self._request_task
        if receive is not None and request_task is not None:
            while (await receive())["type"] != "http.disconnect":
                continue
            self._connection.disconnected = True
            request_task.cancel()


class Caller(Struct, frozen=True):
    """The sender of a request.

    Attributes:
        principal: The authenticated principal; empty if anonymous.
        identity: The identity of the principal, an apcore `Identity` or another object; None if
            anonymous.
        headers: The headers of the request.
        connection: The connection of the request.
        root_path: The path at which the agent is mounted; empty if at the root.
        tenant: The tenant that the request is for; None if it is for the whole agent.
        client: The key by which limits tell clients apart: the principal, the client address of
            an anonymous caller, or the value of `client_key`.
        scheme: The scheme of the request's URL.
        trace: The position of the request in its trace; None if the client names no trace.
    """

    principal: str = ""
    identity: Identity | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    connection: Connection = field(default_factory=Connection)
    root_path: str = ""
    tenant: Tenant | None = None
    client: str = ""
    scheme: str = "http"
    trace: Trace | None = None

    def packed_identity(self) -> dict[str, Any] | None:
        """Return the identity as JSON; None if it is not apcore's, or can't be written as JSON."""
        if not isinstance(self.identity, ApcoreIdentity):
            return None
        try:
            packed: dict[str, Any] = json.loads(json.dumps(asdict(self.identity)))
        except (TypeError, ValueError):  # attributes of an identity can have any type
            return None
        return packed

    @property
    def owner(self) -> str:
        """The owner of the caller's tasks: the principal, with the tenant if there is one."""
        return self.principal if self.tenant is None else owner_of(self.tenant, self.principal)


OnClientsLost: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]
"""Callback that takes the id of a task whose last client has disconnected."""


class Watchers:
    """The clients that wait for each task; tasks that have lost all their clients are reported.

    A client is lost if it disconnects, not if it gets its response or the server disconnects it
    (FR-MSG-005). Observers, clients that were subscribed to the task while it was paused, are never
    lost. While an observer is connected, the task continues without its other clients. If only
    observers disconnect, the task is not reported.

    Args:
        on_clients_lost: Callback for a task whose last client disconnected and did not return.
        grace: Seconds in which a client may return; None if tasks need no clients.
    """

    def __init__(self, on_clients_lost: OnClientsLost, grace: float | None) -> None:
        self._on_clients_lost = on_clients_lost
        self._grace = grace
        self._watchers: dict[str, int] = {}
        self._observers: set[Connection] = set()
        # the ids of tasks that have lost a client, while other clients still wait for them
        self._tasks_with_lost_client: set[str] = set()
        self._grace_timers: dict[str, asyncio.TimerHandle] = {}
        self._background = BackgroundTasks()

    def enter(self, task_id: str, connection: Connection) -> None:
        """Count the client of *connection* as waiting for a task until its request ends."""
        self._watchers[task_id] = self._watchers.get(task_id, 0) + 1
        if self._grace_timers and task_id in self._grace_timers:
            self._grace_timers.pop(task_id).cancel()
        connection.callback(self._leave, task_id, connection)

    def observe(self, task_id: str, connection: Connection) -> None:
        """Count the client of *connection* as an observer, because the task is paused.

        Clients that the task lost before the pause no longer count as lost.
        """
        self._observers.add(connection)
        self._tasks_with_lost_client.discard(task_id)

    def _leave(self, task_id: str, connection: Connection) -> None:
        self._watchers[task_id] -= 1
        if connection in self._observers:
            self._observers.discard(connection)
        elif connection.disconnected:
            self._tasks_with_lost_client.add(task_id)
        if self._watchers[task_id]:
            return
        del self._watchers[task_id]
        has_lost_client = task_id in self._tasks_with_lost_client
        self._tasks_with_lost_client.discard(task_id)
        if has_lost_client and connection.disconnected and self._grace is not None:
            running_loop = asyncio.get_running_loop()
            timer = running_loop.call_later(self._grace, self._report, task_id)
            self._grace_timers[task_id] = timer

    def _report(self, task_id: str) -> None:
        del self._grace_timers[task_id]
        coroutine = self._on_clients_lost(task_id)
        self._background.start(coroutine, f"Canceling abandoned task {task_id}")


class Slots:
    """A counter of things in use, with a limit in total and one for each client.

    Args:
        words: The things and their state, for error messages: "tasks" and "are running".
        total: Maximum for all clients.
        per_client: Maximum for one client; None for no limit.

    Example:
        ```python
        from apcore_a2a_server.engine.clients import Slots
        from apcore_a2a_server.errors import RetryLaterError

        streams = Slots(("streams", "are open"), 10, per_client=5)
        for _ in range(5):
            streams.take("ada")
        try:
            streams.take("ada")
        except RetryLaterError as error:
            print(error.message)
            #> Too many streams of this client are open
        streams.take("bob")
        ```
    """

    def __init__(self, words: tuple[str, str], total: int, per_client: int | None = None) -> None:
        self._things, self._state = words
        self._total = total
        self._per_client = per_client
        self._counts: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def check(self, client: str) -> None:
        """Refuse one more for *client* if a limit is reached.

        Raises:
            RetryLaterError: A limit is reached.
        """
        if self._count >= self._total:
            raise RetryLaterError(f"Too many {self._things} {self._state}")
        if self._per_client is not None and self._counts.get(client, 0) >= self._per_client:
            raise RetryLaterError(f"Too many {self._things} of this client {self._state}")

    def enter(self, client: str) -> None:
        """Count one more for *client*, without a check."""
        self._count += 1
        self._counts[client] = self._counts.get(client, 0) + 1

    def leave(self, client: str) -> None:
        """Count one less for *client*."""
        self._count -= 1
        self._counts[client] -= 1
        if not self._counts[client]:  # else there would be a count for every client ever seen
            del self._counts[client]

    def take(self, client: str) -> None:
        """Count one more for *client*.

        Raises:
            RetryLaterError: A limit is reached.
        """
        self.check(client)
        self.enter(client)


class Streams(Slots):
    """The counter of open streams, with a limit in total and one for each client.

    Args:
        total: Maximum number of open streams.
        per_client: Maximum for one client; None for no limit.
    """

    def __init__(self, total: int, per_client: int | None = None) -> None:
        super().__init__(("streams", "are open"), total, per_client)

    def hold(self, client: str, connection: Connection) -> None:
        """Count one more stream of *client* until the request of *connection* ends.

        Raises:
            RetryLaterError: A limit is reached.
        """
        self.take(client)
        connection.callback(self.leave, client)


class Verdict:
    """The verdict on a call: whether it is admitted or refused. Requests can wait for the verdict.

    A request that is canceled while it awaits a future cancels the future, too. Therefore, each
    request awaits a separate future, which costs less than `asyncio.shield`.

    Attributes:
        is_known: Whether the verdict was given.
        refusal: The error for the client of a refused call; else None.

    Example:
        ```python
        import asyncio

        from apcore_a2a_server.engine.clients import Verdict


        async def main() -> None:
            verdict = Verdict()
            asyncio.get_running_loop().call_soon(verdict.give, None)
            print(await verdict.wait(), verdict.is_known)
            #> None True


        asyncio.run(main())
        ```
    """

    __slots__ = ("_waiters", "is_known", "refusal")

    def __init__(self) -> None:
        self.is_known = False
        self.refusal: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def give(self, refusal: Exception | None) -> None:
        """Set the verdict: the error for the client if the call is refused, else None."""
        self.is_known, self.refusal = True, refusal
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> Exception | None:
        """Wait until the verdict is known; return the error of a refused call, else None."""
        if not self.is_known:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self.refusal
