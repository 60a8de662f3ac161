"""Operations on an unavailable store are retried with growing pauses."""

from types import SimpleNamespace

import pytest
from apcore_a2a_server.store import UnavailableError
from apcore_a2a_server.store.retry import retry_while_unavailable

pytestmark = pytest.mark.anyio


async def test_a_retried_attempt_knows_that_it_is_a_repetition() -> None:
    repetitions: list[bool] = []

    async def attempt(is_repetition: bool) -> str:
        repetitions.append(is_repetition)
        if len(repetitions) < 3:
            raise UnavailableError("not yet")
        return "done"

    assert await retry_while_unavailable(attempt, 60) == "done"
    assert repetitions == [False, True, True]


async def test_pauses_grow_and_retries_end_after_half_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    times: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def attempt(is_repetition: bool) -> None:
        times.append(now)
        raise UnavailableError("gone")

    loop = SimpleNamespace(time=lambda: now)
    clock = SimpleNamespace(sleep=sleep, get_running_loop=lambda: loop)
    monkeypatch.setattr("apcore_a2a_server.store.retry.asyncio", clock)
    with pytest.raises(UnavailableError):
        await retry_while_unavailable(attempt, 6)
    assert 3 <= times[-1] < 4.5  # the last pause may take 1.5 seconds more than 3
    assert 4 <= len(times) <= 12  # there would be 30 if all pauses were as long as the first
