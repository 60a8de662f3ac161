"""Batches of concurrent statements: one round trip and one commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from apcore_a2a_server.store.errors import UnavailableError

Values: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[Sequence[Values]], Awaitable[Sequence[Any]]]
Call: TypeAlias = "tuple[Values, asyncio.Future[Any]]"

LARGEST_BATCH = 100  # calls


class BatchedStatement:
    """One statement, run in batches: calls that come while a batch runs are the next one.

    When a batch fails, each of its calls is run alone.

    Args:
        run: Runs the statement for each of several sets of values in one transaction, and returns
            all rows. Each set has a number, `place`, and its row has the same.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: list[Call] = []
        self._working: asyncio.Task[None] | None = None

    async def fetch_row(self, values: Values) -> Any:
        """Return the row for these values, of which `task_id` is one; None if there is none."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((values, future))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            # in the order of tasks, so that no two replicas deadlock on their rows
            calls = sorted(self._waiting[:LARGEST_BATCH], key=lambda call: call[0]["task_id"])
            del self._waiting[:LARGEST_BATCH]
            await self._run_batch(calls)
        self._working = None

    async def _run_batch(self, calls: Sequence[Call]) -> None:
        try:
            rows = await self._run(
                [{**values, "place": place} for place, (values, _) in enumerate(calls)]
            )
        except Exception as error:  # whatever it is, the callers get it
            if len(calls) > 1 and not isinstance(error, UnavailableError):
                await asyncio.gather(*(self._run_batch([call]) for call in calls))
                return
            for _, future in calls:
                if not future.done():
                    future.set_exception(error)
            return
        found = {row["place"]: row for row in rows}
        for place, (_, future) in enumerate(calls):
            if not future.done():  # the caller may have been cancelled
                future.set_result(found.get(place))
