"""The client's end of a request."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive

PATIENCE = 0.5
"""Seconds that a request goes on before somebody watches for its client; most end sooner."""


class HungUpError(Exception):
    """The client has gone before it had its answer; there is nobody to tell."""


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
        self._watching: asyncio.Future[None] | None = None

    def hold(self, give_back: Callable[[], None]) -> None:
        """Have *give_back* called when the request is over."""
        self._held.append(give_back)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *raised: Any) -> None:
        while self._held:
            self._held.pop()()

    @contextmanager
    def watched(self) -> Generator[None]:
        """End what is done inside when the client hangs up.

        Raises:
            HungUpError: It has.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        timer = loop.call_later(PATIENCE, self._watch, task)
        try:
            yield
        except asyncio.CancelledError:
            if self.gone and task is not None and task.uncancel() == 0:
                raise HungUpError from None
            raise
        finally:
            timer.cancel()
            if self._watching is not None:
                self._watching.cancel()

    def _watch(self, task: asyncio.Task[Any] | None) -> None:
        if self._receive is not None and task is not None:
            self._watching = asyncio.ensure_future(self._until_gone(self._receive, task))

    async def _until_gone(self, receive: Receive, task: asyncio.Task[Any]) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        self.gone = True
        task.cancel()
