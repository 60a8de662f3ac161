"""Rate limits, and the answers to callers who exceed them."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

import pytest
from apcore import Identity
from apcore_a2a_auth import JWTAuthenticator
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware import (
    Authentication,
    FrontMiddleware,
    RateLimit,
    RateLimiter,
    principal_of,
)
from apcore_a2a_server.middleware.auth import CALLER, named_client
from apcore_a2a_server.middleware.errors import TENANT
from limits.aio.storage import MemoryStorage
from limits.storage import MemoryStorage as SyncMemoryStorage
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.server.inloop import ActionModule, echo, registry_of, serving
from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

from .byhand import KEY, OTHER_KEY, Answer, ask, authenticator, body

pytestmark = pytest.mark.anyio

STORAGES = ["memory://", "async+memory://"]
START = 1_800_000_000.25
"""Seconds since the epoch, just after the start of an hour, a minute and a second."""
HERE, THERE = ("192.0.2.1", 1), ("192.0.2.2", 1)


class Clock:
    """Clock that only moves when a test advances it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


async def statuses(app: ASGIApp, count: int, **request: Any) -> list[int]:
    """Return the statuses of *count* requests in sequence."""
    return [(await ask(app, **request)).status for _ in range(count)]


def limited_app(rate: str, storage: str = STORAGES[0]) -> ASGIApp:
    return RateLimit(Response(), RateLimiter(rate, storage), public=["/health"])


async def first_refusal(app: ASGIApp) -> Answer:
    """Return the first answer that refuses a request."""
    while (answer := await ask(app)).status == 200:
        continue
    return answer


@pytest.mark.parametrize("storage", STORAGES)
async def test_a_caller_over_the_limit_is_refused_with_a_retry_after(
    clock: Clock, storage: str
) -> None:
    app = limited_app("2/minute", storage)
    answer = await first_refusal(app)
    assert answer.status == 429
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert answer.json["error"]["status"] == "RESOURCE_EXHAUSTED"
    clock.now += int(answer.headers["retry-after"])
    assert await statuses(app, 1) == [200]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("rate", ["1/second", "3/second", "7/minute", "5/10 second", "2/hour"])
async def test_a_caller_that_waits_for_the_given_time_is_accepted(
    clock: Clock, storage: str, rate: str
) -> None:
    limiter, random = RateLimiter(rate, storage), Random(rate)
    waits = 0
    for _ in range(200):
        clock.now += random.random() / 4
        # `wait` does not sleep: it counts a use and returns 0, or returns the seconds to wait
        if seconds := await limiter.count_use("ada"):
            clock.now += seconds
            waits += 1
            assert await limiter.count_use("ada") == 0
    assert waits


@pytest.mark.parametrize("storage", STORAGES)
async def test_no_window_has_more_than_twice_the_rate(clock: Clock, storage: str) -> None:
    limiter, random, accepted = RateLimiter("5/minute", storage), Random(1), list[float]()
    while clock.now < START + 3600:
        clock.now += random.random() * 8
        if not await limiter.count_use("ada"):
            accepted.append(clock.now)
    most_in_a_minute = max(
        sum(begin <= moment < begin + 60 for moment in accepted) for begin in accepted
    )
    assert most_in_a_minute <= 10
    assert 250 <= len(accepted) <= 5 * 61


async def test_windows_follow_the_wall_clock() -> None:
    limiter = RateLimiter("2/second")
    started = time.monotonic()
    while not await limiter.count_use("ada"):
        continue
    while await limiter.count_use("ada"):  # no event says when the window has passed
        assert time.monotonic() - started < PATIENCE


@pytest.mark.parametrize("storage", STORAGES)
async def test_each_client_address_has_its_own_limit(clock: Clock, storage: str) -> None:
    app = limited_app("2/minute", storage)
    assert await statuses(app, 3, client=HERE) == [200, 200, 429]
    assert await statuses(app, 1, client=("192.0.2.1", 2)) == [429]
    assert await statuses(app, 3, client=THERE) == [200, 200, 429]
    assert await statuses(app, 3, client=None) == [200, 200, 429]


@pytest.mark.parametrize("storage", STORAGES)
async def test_each_principal_has_one_limit_for_all_its_addresses(
    clock: Clock, storage: str
) -> None:
    app = Authentication(limited_app("3/minute", storage), authenticator())
    ada, bob = ([("X-API-Key", key)] for key in (KEY, OTHER_KEY))
    assert await statuses(app, 2, headers=ada, client=HERE) == [200, 200]
    assert await statuses(app, 2, headers=ada, client=THERE) == [200, 429]
    assert await statuses(app, 4, headers=bob, client=HERE) == [200, 200, 200, 429]


async def test_a_principal_named_like_an_address_has_its_own_limit(clock: Clock) -> None:
    app = limited_app("1/minute")
    principal = {CALLER: (HERE[0], Identity(HERE[0]))}
    assert await statuses(app, 2, client=THERE, **principal) == [200, 429]
    assert await statuses(app, 2, client=HERE) == [200, 429]


async def test_only_reads_of_public_pages_have_no_limit(clock: Clock) -> None:
    app = limited_app("2/minute")
    assert await statuses(app, 9, path="/health") == [200] * 9
    assert await statuses(app, 3) == [200, 200, 429]
    assert await statuses(app, 2, path="/health", method="HEAD") == [200, 200]
    for method, path in product(("POST", "OPTIONS"), ("/health", "/health/")):
        assert await statuses(app, 1, path=path, method=method) == [429]


@pytest.mark.parametrize("storage", STORAGES)
async def test_several_limits_apply_together(clock: Clock, storage: str) -> None:
    app = limited_app("2/second;3/minute", storage)
    assert await statuses(app, 3) == [200, 200, 429]
    clock.now += 2
    assert await statuses(app, 1) == [200]
    answer = await ask(app)
    assert (answer.status, int(answer.headers["retry-after"]) > 2) == (429, True)
    clock.now += 120
    assert await statuses(app, 2) == [200, 200]


async def test_a_refused_request_does_not_count_towards_another_limit(clock: Clock) -> None:
    limiter = RateLimiter("3/minute;1/second")
    waits = [await limiter.count_use("ada") for _ in range(3)]
    assert waits == [0, 1, 1]
    clock.now += 2
    assert await limiter.count_use("ada") == 0


class SlowStorage(MemoryStorage):
    """Storage that answers after other requests have arrived; `limits` finds it by its scheme."""

    STORAGE_SCHEME = ["async+far"]  # noqa: RUF012  # as in its base class

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        window = await super().get_sliding_window(key, expiry)
        await asyncio.sleep(0)
        return window

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        await asyncio.sleep(0)
        return await super().acquire_sliding_window_entry(key, limit, expiry, amount)


class LostStorage(MemoryStorage):
    """Storage that can't be reached; `limits` finds it by its scheme."""

    STORAGE_SCHEME = ["async+lost"]  # noqa: RUF012  # as in its base class

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        raise ConnectionError("down")


class NearStorage(SyncMemoryStorage):
    """Synchronous storage that is not the library's own; `limits` finds it by its scheme."""

    STORAGE_SCHEME = ["near"]  # noqa: RUF012  # as in its base class


async def test_concurrent_requests_do_not_exceed_the_limit(clock: Clock) -> None:
    app = limited_app("2/minute;3/hour", "async+far://")
    answers = await asyncio.gather(*(ask(app) for _ in range(20)))
    assert [answer.status for answer in answers].count(200) == 2
    delays = [answer.headers["retry-after"] for answer in answers if answer.status == 429]
    assert all(0 < int(seconds) <= 3600 for seconds in delays)


async def test_requests_that_cannot_be_counted_are_refused_with_a_retry_after(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limiter = RateLimiter("2/minute", "async+lost://")
    counted = FrontMiddleware(RateLimit(Response(), limiter))
    refused = FrontMiddleware(Authentication(Response(), authenticator(), auth_limiter=limiter))
    for app in (counted, refused):
        answer = await ask(app, headers=[("X-API-Key", "a wrong key")])
        assert (answer.status, answer.json["error"]["status"]) == (503, "UNAVAILABLE")
        assert int(answer.headers["retry-after"]) > 0
    assert {record.__dict__["event"] for record in caplog.records} == {"rate_limits_failed"}


@pytest.mark.parametrize("dialect", ["0.3", "1.0", "REST"])
async def test_calls_that_cannot_be_counted_are_refused_with_a_retry_after(dialect: str) -> None:
    options: Any = {"skill_rate_limit": "1/hour", "rate_limit_storage": "async+lost://"}
    async with serving({"work": ActionModule(echo)}, dialect, **options) as peer:
        refusal = await peer.client.send(peer.request("send", peer.wire.params("work")))
        assert refusal.status_code == 503
        assert int(refusal.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    "rate", ["", "often", "100", "-1/minute", "0/minute", "1/minute;", "1/fortnight"]
)
def test_an_invalid_rate_is_refused_at_once(rate: str) -> None:
    with pytest.raises(ValueError, match="100/minute"):
        RateLimiter(rate)
    for option in ("rate_limit", "skill_rate_limit", "total_skill_rate_limit", "auth_rate_limit"):
        options: Any = {option: rate or "x"}  # an empty option means no limit
        with pytest.raises(ValueError, match="100/minute"):
            create_app(registry_of({"work": ActionModule(echo)}), **options)


@pytest.mark.parametrize("storage", ["", "memory", "nowhere://", "async+nowhere://"])
def test_an_invalid_storage_is_refused_at_once(storage: str) -> None:
    with pytest.raises(ValueError, match="storage"):
        RateLimiter("1/minute", storage)


@pytest.mark.parametrize("storage", ["redis://127.0.0.1", "memcached://127.0.0.1", "near://"])
def test_a_storage_that_would_block_the_event_loop_is_refused(storage: str) -> None:
    with pytest.raises(ValueError, match=r"async\+redis://"):
        RateLimiter("1/minute", storage)


# Rate limits of an agent


@pytest.mark.parametrize("storage", STORAGES)
async def test_an_agent_limits_its_callers(clock: Clock, storage: str) -> None:
    modules = registry_of({"work": ActionModule(echo)})
    options: Any = {"rate_limit": "2/minute", "rate_limit_storage": storage}
    app = create_app(modules, url="http://x", auth=authenticator(), **options)
    ada, bob = ([("X-API-Key", key)] for key in (KEY, OTHER_KEY))
    for headers in (ada, bob):
        answers = [(await ask(app, "GET", "/tasks", headers, body())).status for _ in range(3)]
        assert answers == [200, 200, 429]
    assert (await ask(app, "POST", "/", ada)).status == 429  # its body was not read
    assert await statuses(app, 3, path="/health") == [200] * 3


async def test_a_web_page_of_an_allowed_origin_can_read_the_refusal(clock: Clock) -> None:
    modules = registry_of({"work": ActionModule(echo)})
    app = create_app(modules, url="http://x", rate_limit="1/day", cors_origins=["http://page"])
    page = [("Origin", "http://page")]
    await ask(app, "GET", "/tasks", page, body())
    answer = await ask(app, "GET", "/tasks", page)
    assert answer.status == 429
    assert answer.headers["access-control-allow-origin"] == "http://page"


@pytest.mark.parametrize("dialect", ["0.3", "1.0", "REST"])
async def test_each_skill_has_its_own_limit(dialect: str) -> None:
    modules = {"work": ActionModule(echo), "other": ActionModule(echo)}
    async with serving(modules, dialect, skill_rate_limit="1/hour") as peer:
        assert (await peer.send("work")).state == "completed"
        refusal = await peer.client.send(peer.request("send", peer.wire.params("work")))
        assert refusal.status_code == 429
        assert 0 < int(refusal.headers["retry-after"]) <= 3600
        assert json.loads(refusal.text)["error"]["code"] in (-32029, 429)
        assert (await peer.send("other")).state == "completed"


async def test_all_clients_together_have_a_limit_per_skill() -> None:
    modules = {"work": ActionModule(echo), "other": ActionModule(echo)}
    options: Any = {"total_skill_rate_limit": "2/hour", "auth": authenticator()}
    async with serving(modules, **options) as peer:
        for key, status in ((KEY, 200), (OTHER_KEY, 200), (KEY, 429), (OTHER_KEY, 429)):
            peer.client.headers["X-API-Key"] = key
            answer = await peer.client.send(peer.request("send", peer.wire.params("work")))
            assert answer.status_code == status
        assert 0 < int(answer.headers["retry-after"]) <= 3600
        assert (await peer.send("other")).state == "completed"


# Addresses


V6 = "2001:db8:0:1::"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (V6 + "1", V6 + "2:3:4"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0:1:0:0:0:9", V6 + "1"),
    ],
)
async def test_the_addresses_that_one_machine_may_have_are_one_client(
    first: str, second: str
) -> None:
    app = limited_app("1/minute")
    assert await statuses(app, 1, client=(first, 1)) == [200]
    assert await statuses(app, 1, client=(second, 1)) == [429]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (V6 + "1", "2001:db8:0:2::1"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2"),
        ("testclient", "192.0.2.1"),
    ],
)
async def test_addresses_of_different_machines_are_different_clients(
    first: str, second: str
) -> None:
    app = limited_app("1/minute")
    assert await statuses(app, 1, client=(first, 1)) == [200]
    assert await statuses(app, 1, client=(second, 1)) == [200]


@pytest.mark.parametrize(("trusted", "status"), [("127.0.0.1", 200), ("192.0.2.9", 429)])
async def test_the_address_of_a_proxys_client_counts_where_the_proxy_is_trusted(
    monkeypatch: pytest.MonkeyPatch, trusted: str, status: int
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    async with serving({"work": ActionModule(echo)}, rate_limit="1/hour") as peer:
        for client, expected in (("192.0.2.1", 200), ("192.0.2.2", status), ("192.0.2.1", 429)):
            answer = await peer.client.get("/tasks", headers={"X-Forwarded-For": client})
            assert answer.status_code == expected


# Refused credentials


WRONG = [("X-API-Key", "a wrong key")]


def app_with_refusal_limit(rate: str = "3/minute") -> ASGIApp:
    return Authentication(
        Response(), authenticator(), public=["/health"], auth_limiter=RateLimiter(rate)
    )


async def test_an_address_whose_credentials_are_refused_too_often_has_to_wait(clock: Clock) -> None:
    app = app_with_refusal_limit()
    assert await statuses(app, 4, headers=WRONG) == [401, 401, 401, 429]
    answer = await ask(app)
    assert answer.status == 429
    assert "www-authenticate" not in answer.headers
    clock.now += int(answer.headers["retry-after"])
    assert await statuses(app, 1, headers=WRONG) == [401]


async def test_an_address_over_the_limit_still_gets_public_pages_and_may_use_valid_credentials(
    clock: Clock,
) -> None:
    app = app_with_refusal_limit()
    assert await statuses(app, 9, headers=WRONG) == [401] * 3 + [429] * 6
    assert await statuses(app, 9, headers=[("X-API-Key", KEY)]) == [200] * 9
    assert await statuses(app, 2, path="/health") == [200, 200]
    assert await statuses(app, 1, headers=WRONG, client=THERE) == [401]


async def test_a_failure_of_the_authenticator_does_not_count_as_refused_credentials(
    clock: Clock,
) -> None:
    class BrokenAuthenticator:
        def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
            raise RuntimeError("down")

    app = Authentication(
        Response(), BrokenAuthenticator(), public=["/card"], auth_limiter=RateLimiter("3/minute")
    )

    async def in_tenant(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, TENANT: "tea"}, receive, send)

    assert await statuses(in_tenant, 9, path="/card") == [503] * 9
    assert await statuses(app, 9) == [503] * 9


async def test_refused_credentials_over_the_limit_are_not_logged(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tokens = JWTAuthenticator("0123456789abcdef0123456789abcdef")
    app = Authentication(Response(), tokens, auth_limiter=RateLimiter("3/minute"))
    refused_headers = [("Authorization", "Bearer x.y.z")]
    assert await statuses(app, 50, headers=refused_headers) == [401] * 3 + [429] * 47
    assert [record.getMessage() for record in caplog.records] == ["Token refused: malformed"] * 3


async def test_refusals_from_any_number_of_addresses_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apcore_a2a_server.middleware.auth.ADDRESS_BUCKETS", 16)
    limiter = RateLimiter("1000/minute")
    app = Authentication(Response(), authenticator(), auth_limiter=limiter)
    for number in range(500):
        address = f"198.51.{number // 256}.{number % 256}"
        assert await statuses(app, 1, headers=WRONG, client=(address, 1)) == [401]
    storage: Any = limiter._strategy.storage
    assert len(storage.storage) <= 2 * 16  # a sliding window has two counters


@pytest.mark.parametrize(("options", "later_status"), [({}, 429), ({"auth_rate_limit": None}, 401)])
async def test_an_agent_limits_refusals_unless_the_limit_is_turned_off(
    clock: Clock, options: Any, later_status: int
) -> None:
    modules = registry_of({"work": ActionModule(echo)})
    app = create_app(modules, url="http://x", auth=authenticator(), **options)
    refusals = await statuses(app, 200, path="/tasks", headers=WRONG)
    assert refusals == [401] * 100 + [later_status] * 100
    assert (await ask(app, "GET", "/tasks", [("X-API-Key", KEY)], body())).status == 200


# Gateways


def user_of(headers: Any, identity: Any) -> str | None:
    user: str | None = headers.get("x-user")
    return user and f"{identity.id if identity else 'anonymous'} for {user}"


@pytest.mark.parametrize("auth", [None, authenticator()])
async def test_a_gateway_may_speak_for_many_clients(auth: Any) -> None:
    modules = registry_of({"work": ActionModule(echo)})
    options: Any = {"auth": auth, "client_key": user_of, "rate_limit": "2/hour"}
    app = create_app(modules, url="http://x", **options)
    for user in ("one", "two"):
        headers = [("X-API-Key", KEY), ("X-User", user)]
        answers = [(await ask(app, "GET", "/tasks", headers, body())).status for _ in range(3)]
        assert answers == [200, 200, 429]
    answer = await ask(app, "GET", "/tasks", [("X-API-Key", KEY)], body())
    assert answer.status == 200


def test_client_keys_of_different_principals_never_name_the_same_client() -> None:
    def key_of(headers: Any, identity: Any) -> str | None:
        return headers.get("x-user")  # type: ignore[no-any-return]  # headers is Any

    names = ["ada", "ada b", "ada%|b", "ada%", "ada%|"]
    principals = ["", *(principal_of(Identity(name)) for name in names)]
    clients = {*principals}
    for principal, key in product(principals, ["", "b", "b c", "c", "|b", "25|b"]):
        clients.add(named_client(key_of, {"x-user": key}, principal, None))
    assert len(clients) == len(principals) + 6 * len(principals)


async def test_an_error_in_the_client_key_function_fails_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    modules = registry_of({"work": ActionModule(echo)})
    invalid_functions: list[Any] = [
        lambda headers, identity: 7,
        lambda headers: "too few parameters",
    ]
    for client_key in invalid_functions:
        app = create_app(modules, url="http://x", client_key=client_key)
        assert (await ask(app, "GET", "/tasks")).status == 500
        assert (await ask(app, "GET", "/health")).status == 200
    errors = [str(record.exc_info) for record in caplog.records]
    assert any("client_key returned int" in error for error in errors)


def test_a_client_key_that_is_not_a_function_is_refused_at_once() -> None:
    options: Any = {"client_key": "x-user"}
    with pytest.raises(TypeError, match="client_key takes a function, not str"):
        create_app(registry_of({"work": ActionModule(echo)}), **options)
