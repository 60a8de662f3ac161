"""Time limits of runs, compared with `asyncio.timeout` where both must do the same."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeAlias

import pytest
from apcore_a2a_server.engine.limits import TimeLimits

from .inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

Limit: TypeAlias = Callable[[float], AbstractAsyncContextManager[Any]]


def own_limit() -> Limit:
    time_limits = TimeLimits()

    @asynccontextmanager
    async def limit(seconds: float) -> Any:
        with time_limits.limit(seconds):
            yield

    return limit


@pytest.fixture(params=["own", "asyncio"])
def limit(request: pytest.FixtureRequest) -> Limit:
    return own_limit() if request.param == "own" else asyncio.timeout


class Timers:
    """The timers that the event loop has been asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deadlines: list[float] = []
        loop = asyncio.get_running_loop()
        call_at = loop.call_at

        def counted(when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
            self.deadlines.append(when)
            return call_at(when, *args, **options)

        monkeypatch.setattr(loop, "call_at", counted)


async def test_a_block_that_takes_too_long_is_canceled(limit: Limit) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("canceled")
            raise

    with pytest.raises(TimeoutError):
        async with limit(0.01):
            await hang()
    assert ended == ["canceled"]
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]  # in a task
    await asyncio.sleep(0)  # no second cancellation


async def test_a_block_that_ends_in_time_is_not_canceled(limit: Limit) -> None:
    async with limit(0.02):
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)


async def test_a_block_may_end_although_its_time_is_over(limit: Limit) -> None:
    async with limit(0.01):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]  # in a task


async def test_an_error_after_the_cancellation_is_raised(limit: Limit) -> None:
    async def fail_late() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("not in time")

    with pytest.raises(ValueError, match="not in time"):
        async with limit(0.01):
            await fail_late()


async def test_a_cancellation_not_by_the_limit_is_raised(limit: Limit) -> None:
    async def work() -> None:
        async with limit(0.01):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                task.cancel()
                raise

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_limit_without_time_left_cancels_the_first_wait(
    limit: Limit, seconds: float
) -> None:
    with pytest.raises(TimeoutError):
        async with limit(seconds):
            await asyncio.sleep(60)


async def test_limits_end_in_the_order_of_their_times(limit: Limit) -> None:
    ended: list[float] = []

    async def work(seconds: float) -> None:
        with suppress(TimeoutError):
            async with limit(seconds):
                await asyncio.sleep(60)
        ended.append(seconds)

    times = [0.3, 0.1, 0.4, 0.2]
    await asyncio.gather(*map(work, times))
    assert ended == sorted(times)


async def test_blocks_in_sequence_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, time_limits = Timers(monkeypatch), TimeLimits()
    for _ in range(100):
        with time_limits.limit(60):
            await asyncio.sleep(0)
    assert len(timers.deadlines) == 1


async def test_the_timer_is_set_anew_for_an_earlier_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, time_limits = Timers(monkeypatch), TimeLimits()
    with time_limits.limit(60), pytest.raises(TimeoutError), time_limits.limit(0.01):
        await asyncio.Event().wait()
    first, second, third = timers.deadlines
    assert second < first == third


def test_limits_hold_in_each_event_loop() -> None:
    time_limits = TimeLimits()

    async def work(seconds: float) -> None:
        with time_limits.limit(seconds):
            await asyncio.sleep(30)

    async def leave_open() -> None:
        task = asyncio.create_task(work(60))
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(leave_open())
    with pytest.raises(TimeoutError):
        asyncio.run(work(0.01))
