"""Who sent a request, and whether they are still there."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from apcore_a2a_core import Identity
from starlette.types import Receive

PATIENCE = 0.5
"""Seconds that a request goes on before somebody watches for its client; most end sooner."""


class HungUpError(BaseException):
    """The client has gone before it had its answer; there is nobody to tell.

    Like the cancellation that it is made of, it is not for those who catch every `Exception`.
    """


class Connection:
    """Knows whether the client of a request is still there, and what the request holds.

    Used as a context manager around the whole request; what it holds is given back at its end.

    Args:
        receive: ASGI's, once the body has been read; None when nobody can hang up.
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
    """Who sent a request: the principal its tasks belong to, and what came along."""

    owner: str = ""
    identity: Identity | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    connection: Connection = field(default_factory=Connection)
    root_path: str = ""
    """What the agent is mounted at, as far as the request tells."""

    @property
    def client(self) -> str:
        """Whom limits are for: the principal, or the address of who is unknown."""
        return self.owner or self.connection.host
