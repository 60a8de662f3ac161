"""Batches of concurrent statements, which share one round trip and one commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from apcore_a2a_server.store.exceptions import UnavailableError

Parameters: TypeAlias = dict[str, Any]
RunBatch: TypeAlias = Callable[[Sequence[Parameters]], Awaitable[Sequence[Any]]]
PendingCall: TypeAlias = "tuple[Parameters, asyncio.Future[Any]]"

MAX_BATCH = 100  # calls
MAX_BATCH_BYTES = 4 * 1024 * 1024  # of tasks, events and messages; a larger call runs alone


class BatchedStatement:
    """A statement that is run in batches: calls made while a batch runs form the next batch.

    When a batch fails although the database is available, each of its calls is run alone, so that
    only the faulty one fails.

    Args:
        run_batch: Runs the statement for each of several sets of parameters in one transaction,
            and returns all rows. The parameter `call_index` numbers the sets, and each row has
            the `call_index` of its set.
    """

    def __init__(self, run_batch: RunBatch) -> None:
        self._run_batch = run_batch
        self._pending: list[PendingCall] = []
        self._running: asyncio.Task[None] | None = None

    async def fetch_row(self, parameters: Parameters) -> Any:
        """Return the row for these parameters, which include `task_id`; None if there is none."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append((parameters, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run_pending())
        return await future

    async def _run_pending(self) -> None:
        while self._pending:
            count = _calls_in_next_batch(
                [parameters for parameters, _ in self._pending[:MAX_BATCH]]
            )
            # Each call locks the row of its task until the commit. All replicas take the locks in
            # the order of task ids, so that no two batches can deadlock.
            calls = sorted(self._pending[:count], key=lambda call: call[0]["task_id"])
            del self._pending[:count]
            await self._run_calls(calls)
        self._running = None

    async def _run_calls(self, calls: Sequence[PendingCall]) -> None:
        try:
            rows = await self._run_batch(
                [{**parameters, "call_index": i} for i, (parameters, _) in enumerate(calls)]
            )
        except Exception as error:  # any error is passed on to the callers
            # One call may have made all fail: run each alone, unless the database is unavailable.
            if len(calls) > 1 and not isinstance(error, UnavailableError):
                await asyncio.gather(*(self._run_calls([call]) for call in calls))
                return
            for _, future in calls:
                if not future.done():
                    future.set_exception(error)
            return
        rows_by_call = {row["call_index"]: row for row in rows}
        for call_index, (_, future) in enumerate(calls):
            if not future.done():  # the caller may have been cancelled
                future.set_result(rows_by_call.get(call_index))


def _calls_in_next_batch(calls: Sequence[Parameters]) -> int:
    """Return how many of the first calls form a batch of at most `MAX_BATCH_BYTES`.

    The bytes are those of `body`, `resume`, `event_bodies` and `message_bodies`. In a larger batch,
    the commit would take too long.
    """
    total = 0
    for count, parameters in enumerate(calls):
        total += len(parameters.get("body", b"")) + len(parameters.get("resume") or b"")
        for bodies in ("event_bodies", "message_bodies"):
            total += sum(map(len, parameters.get(bodies, ())))
        if total > MAX_BATCH_BYTES:
            return max(count, 1)
    return len(calls)
