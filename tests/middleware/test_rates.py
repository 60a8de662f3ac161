"""How often somebody may ask, and what who asks too often is told."""

import asyncio
import json
import time
from itertools import product
from random import Random
from typing import Any

import pytest
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware import Authentication, RateLimit, RateLimiter
from limits.aio.storage import MemoryStorage
from starlette.responses import Response
from starlette.types import ASGIApp

from tests.server.inloop import Does, give_back, registry_of, serving
from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

from .byhand import KEY, OTHER_KEY, Answer, ask, body, keys

pytestmark = pytest.mark.anyio

STORAGES = ["memory://", "async+memory://"]
NOON = 1_800_000_000.25
"""Just after the beginning of an hour, a minute and a second."""
HERE, THERE = ("192.0.2.1", 1), ("192.0.2.2", 1)


class Clock:
    """The time of day, which goes on when a test says so."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


async def statuses(app: ASGIApp, count: int, **request: Any) -> list[int]:
    """The statuses of so many answers, one after the other."""
    return [(await ask(app, **request)).status for _ in range(count)]


def limited(rate: str, storage: str = STORAGES[0]) -> ASGIApp:
    return RateLimit(Response(), RateLimiter(rate, storage), public=["/health"])


async def refused(app: ASGIApp) -> Answer:
    """The first answer that says to come again later."""
    while (answer := await ask(app)).status == 200:
        continue
    return answer


@pytest.mark.parametrize("storage", STORAGES)
async def test_who_asks_too_often_is_told_when_to_come_again(clock: Clock, storage: str) -> None:
    app = limited("2/minute", storage)
    answer = await refused(app)
    assert answer.status == 429
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert answer.json["error"]["status"] == "RESOURCE_EXHAUSTED"
    clock.now += int(answer.headers["retry-after"])
    assert await statuses(app, 1) == [200]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("rate", ["1/second", "3/second", "7/minute", "5/10 second", "2/hour"])
async def test_who_comes_when_told_is_let_in(clock: Clock, storage: str, rate: str) -> None:
    limiter, random = RateLimiter(rate, storage), Random(rate)
    waits = 0
    for _ in range(200):
        clock.now += random.random() / 4
        if seconds := await limiter.wait("ada"):
            clock.now += seconds
            waits += 1
            assert await limiter.wait("ada") == 0
    assert waits


@pytest.mark.parametrize("storage", STORAGES)
async def test_in_no_window_is_there_more_than_twice_the_rate(clock: Clock, storage: str) -> None:
    limiter, random, let_in = RateLimiter("5/minute", storage), Random(1), list[float]()
    while clock.now < NOON + 3600:
        clock.now += random.random() * 8
        if not await limiter.wait("ada"):
            let_in.append(clock.now)
    most = max(sum(begin <= one < begin + 60 for one in let_in) for begin in let_in)
    assert most <= 10
    assert 250 <= len(let_in) <= 5 * 61


async def test_a_window_passes_by_the_clock_on_the_wall() -> None:
    limiter = RateLimiter("2/second")
    begun = time.monotonic()
    while not await limiter.wait("ada"):
        continue
    while await limiter.wait("ada"):  # nobody sends word of the time
        assert time.monotonic() - begun < PATIENCE


@pytest.mark.parametrize("storage", STORAGES)
async def test_each_address_has_its_own_rate(clock: Clock, storage: str) -> None:
    app = limited("2/minute", storage)
    assert await statuses(app, 3, client=HERE) == [200, 200, 429]
    assert await statuses(app, 1, client=("192.0.2.1", 2)) == [429]
    assert await statuses(app, 3, client=THERE) == [200, 200, 429]
    assert await statuses(app, 3, client=None) == [200, 200, 429]


@pytest.mark.parametrize("storage", STORAGES)
async def test_each_principal_has_its_own_rate_wherever_it_is(clock: Clock, storage: str) -> None:
    app = Authentication(limited("3/minute", storage), keys())
    ada, bob = ([("X-API-Key", key)] for key in (KEY, OTHER_KEY))
    assert await statuses(app, 2, headers=ada, client=HERE) == [200, 200]
    assert await statuses(app, 2, headers=ada, client=THERE) == [200, 429]
    assert await statuses(app, 4, headers=bob, client=HERE) == [200, 200, 200, 429]


async def test_a_principal_named_as_an_address_is_not_that_address(clock: Clock) -> None:
    limiter = RateLimiter("1/minute")
    assert await limiter.wait("principal", "192.0.2.1") == 0
    assert await limiter.wait("address", "192.0.2.1") == 0


async def test_public_pages_may_be_read_as_often_as_one_likes(clock: Clock) -> None:
    app = limited("2/minute")
    assert await statuses(app, 9, path="/health") == [200] * 9
    assert await statuses(app, 3) == [200, 200, 429]
    assert await statuses(app, 2, path="/health", method="HEAD") == [200, 200]
    for method, path in product(("POST", "OPTIONS"), ("/health", "/health/")):
        assert await statuses(app, 1, path=path, method=method) == [429]


@pytest.mark.parametrize("storage", STORAGES)
async def test_of_several_rates_each_holds(clock: Clock, storage: str) -> None:
    app = limited("2/second;3/minute", storage)
    assert await statuses(app, 3) == [200, 200, 429]
    clock.now += 2
    assert await statuses(app, 1) == [200]
    answer = await ask(app)
    assert (answer.status, int(answer.headers["retry-after"]) > 2) == (429, True)
    clock.now += 120
    assert await statuses(app, 2) == [200, 200]


async def test_who_is_refused_has_not_used_up_another_rate(clock: Clock) -> None:
    limiter = RateLimiter("3/minute;1/second")
    waits = [await limiter.wait("ada") for _ in range(3)]
    assert waits == [0, 1, 1]
    clock.now += 2
    assert await limiter.wait("ada") == 0


class FarStorage(MemoryStorage):
    """A store that answers after others have asked, too."""

    STORAGE_SCHEME = ["async+far"]  # noqa: RUF012  # as its base class has it

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        found = await super().get_sliding_window(key, expiry)
        await asyncio.sleep(0)
        return found

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        await asyncio.sleep(0)
        return await super().acquire_sliding_window_entry(key, limit, expiry, amount)


async def test_who_asks_many_times_at_once_is_let_in_no_more_often(clock: Clock) -> None:
    app = limited("2/minute;3/hour", "async+far://")
    answers = await asyncio.gather(*(ask(app) for _ in range(20)))
    assert [answer.status for answer in answers].count(200) == 2
    later = [answer.headers["retry-after"] for answer in answers if answer.status == 429]
    assert all(0 < int(seconds) <= 3600 for seconds in later)


@pytest.mark.parametrize(
    "rate", ["", "often", "100", "-1/minute", "0/minute", "1/minute;", "1/fortnight"]
)
def test_what_is_no_rate_is_refused_at_once(rate: str) -> None:
    with pytest.raises(ValueError, match="100/minute"):
        RateLimiter(rate)
    for option in ("rate_limit", "skill_rate_limit"):
        options: Any = {option: rate or "x"}
        with pytest.raises(ValueError, match="100/minute"):
            create_app(registry_of({"work": Does(give_back)}), **options)


@pytest.mark.parametrize("storage", ["", "memory", "nowhere://", "async+nowhere://"])
def test_what_is_no_storage_is_refused_at_once(storage: str) -> None:
    with pytest.raises(ValueError, match="storage"):
        RateLimiter("1/minute", storage)


# In an agent


@pytest.mark.parametrize("storage", STORAGES)
async def test_an_agent_counts_who_calls_it(clock: Clock, storage: str) -> None:
    modules = registry_of({"work": Does(give_back)})
    options: Any = {"rate_limit": "2/minute", "rate_limit_storage": storage}
    app = create_app(modules, url="http://x", auth=keys(), **options)
    ada, bob = ([("X-API-Key", key)] for key in (KEY, OTHER_KEY))
    for who in (ada, bob):
        found = [(await ask(app, "GET", "/tasks", who, body())).status for _ in range(3)]
        assert found == [200, 200, 429]
    assert (await ask(app, "POST", "/", ada)).status == 429  # whose body nobody has read
    assert await statuses(app, 3, path="/health") == [200] * 3


async def test_a_page_that_may_call_can_read_that_it_is_too_much(clock: Clock) -> None:
    modules = registry_of({"work": Does(give_back)})
    app = create_app(modules, url="http://x", rate_limit="1/day", cors_origins=["http://page"])
    page = [("Origin", "http://page")]
    await ask(app, "GET", "/tasks", page, body())
    answer = await ask(app, "GET", "/tasks", page)
    assert answer.status == 429
    assert answer.headers["access-control-allow-origin"] == "http://page"


@pytest.mark.parametrize("way", ["0.3", "1.0", "REST"])
async def test_each_skill_has_its_own_rate(way: str) -> None:
    modules = {"work": Does(give_back), "other": Does(give_back)}
    async with serving(modules, way, skill_rate_limit="1/hour") as peer:
        assert (await peer.send("work")).state == "completed"
        refused = await peer.client.send(peer.request("send", peer.wire.params("work")))
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 3600
        assert json.loads(refused.text)["error"]["code"] in (-32029, 429)
        assert (await peer.send("other")).state == "completed"
