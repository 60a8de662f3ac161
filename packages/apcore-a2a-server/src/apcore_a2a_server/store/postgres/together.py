"""What is asked for at the same time shares a round trip, and a commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from apcore_a2a_server.store.errors import UnavailableError

Values: TypeAlias = tuple[Any, ...]
Run: TypeAlias = Callable[[Sequence[Values]], Awaitable[Sequence[Any]]]
Asked: TypeAlias = "tuple[Values, asyncio.Future[Any]]"

MOST = 100
"""How many share a commit at most."""


class Together:
    """One statement, for all who ask for it: those that come while it runs are next, together.

    When it fails for one, it is run for each alone.

    Args:
        run: Runs the statement for each of several values in one transaction, and gives all
            rows. The last of the values is a number; a row has it as its `place`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: list[Asked] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, *values: Any) -> Any:
        """The row for these values, of which the first is the task's id; None without one."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((values, future))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            # in the order of tasks, so that no two processes wait for each other
            asked = sorted(self._waiting[:MOST], key=lambda each: each[0][0])
            del self._waiting[:MOST]
            await self._settle(asked)
        self._working = None

    async def _settle(self, asked: Sequence[Asked]) -> None:
        try:
            rows = await self._run([(*values, n) for n, (values, _) in enumerate(asked)])
        except Exception as error:  # it is for who has asked
            if len(asked) > 1 and not isinstance(error, UnavailableError):
                await asyncio.gather(*(self._settle([each]) for each in asked))
                return
            for _, future in asked:
                if not future.done():
                    future.set_exception(error)
            return
        found = {row["place"]: row for row in rows}
        for n, (_, future) in enumerate(asked):
            if not future.done():  # who has waited for it waits no more
                future.set_result(found.get(n))
