"""Operations on an unavailable store are retried with growing pauses."""

import time

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


@pytest.mark.clock
@pytest.mark.smoke
async def test_pauses_grow_and_retries_end_after_half_a_lease() -> None:
    times: list[float] = []

    async def attempt(is_repetition: bool) -> None:
        times.append(time.monotonic())
        raise UnavailableError("gone")

    with pytest.raises(UnavailableError):
        await retry_while_unavailable(attempt, 6)
    assert 3 <= times[-1] - times[0] < 6  # the last pause may take 1.5 seconds more than 3
    assert 4 <= len(times) <= 12  # there would be 30 if all pauses were as long as the first
