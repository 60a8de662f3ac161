"""Keys of an issuer: fetched once for all callers, cached, and expired."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from apcore_a2a_auth import (
    CardVerifier,
    ConfigurationError,
    JWTAuthenticator,
    KeysUnavailableError,
)
from apcore_a2a_auth.jwks import COOLDOWN, LIFETIME, MAX_STALE, REFRESH_AGE, RETRY_INTERVAL
from apcore_a2a_auth.key_sets import KeySets

from tests.client.raw import Request, Step, reply
from tests.serving import PATIENCE

from .issuer import (
    DISCOVERY,
    KEYS,
    Clock,
    Issuer,
    accepts,
    jwks_authenticator,
    reason_of_refusal,
    running,
    unavailable_message,
    unused_url,
    wait_for_fetches,
)
from .issuer import clock as clock
from .issuer import issuer as issuer
from .tokens import (
    ATTACKER,
    AUDIENCE,
    ED448,
    ED25519,
    MISSING,
    P256,
    PUBLISHED,
    RSA,
    UNPUBLISHED,
    KeyPair,
    base64url,
    bearer_headers,
    token,
)
from .tokens import anyio_backend as anyio_backend
from .tokens import no_secrets_logged as no_secrets_logged

pytestmark = pytest.mark.anyio


# When keys are fetched


async def test_a_hundred_concurrent_callers_cause_one_fetch(issuer: Issuer) -> None:
    authenticator = jwks_authenticator(issuer)
    assert all(await asyncio.gather(*(accepts(authenticator) for _ in range(100))))
    assert issuer.count_requests() == 1


async def test_no_second_fetch_starts_during_a_slow_one(issuer: Issuer, clock: Clock) -> None:
    authenticator = jwks_authenticator(issuer)
    issuer.open.clear()
    callers = [asyncio.create_task(accepts(authenticator))]
    assert await asyncio.to_thread(issuer.request_received.wait, PATIENCE)
    clock.advance(COOLDOWN)
    callers.append(asyncio.create_task(accepts(authenticator)))
    await asyncio.sleep(0)
    issuer.open.set()
    assert await asyncio.gather(*callers) == [True, True]
    assert issuer.count_requests() == 1


async def test_nothing_is_fetched_before_the_first_call(issuer: Issuer) -> None:
    jwks_authenticator(issuer)
    await wait_for_fetches()
    assert not issuer.connections


@pytest.mark.parametrize("key", PUBLISHED, ids=lambda key: key.kid)
async def test_each_type_of_key_is_accepted(key: KeyPair, issuer: Issuer) -> None:
    assert await accepts(jwks_authenticator(issuer), key)


async def test_ten_thousand_unknown_key_ids_cause_one_more_fetch(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    clock.advance(COOLDOWN)
    for number in range(10_000):
        unknown_token = with_unknown_key(f"key-{number}")
        reason = await reason_of_refusal(authenticator, bearer_headers(unknown_token))
        assert reason == "invalid signature"
    assert issuer.count_requests() == 2


REST = token().split(".")[1:]


def with_unknown_key(kid: str) -> str:
    """Return a token with the id of a key that does not exist."""
    return ".".join([base64url(f'{{"alg":"RS256","kid":"{kid}"}}'), *REST])


async def test_an_unknown_key_id_causes_another_fetch_after_the_cooldown(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = jwks_authenticator(issuer)
    for _ in range(3):
        assert not await accepts(authenticator, UNPUBLISHED)
        clock.advance(COOLDOWN)
    assert issuer.count_requests() == 3


async def test_a_new_key_is_accepted_after_the_cooldown(issuer: Issuer, clock: Clock) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.publish(RSA, UNPUBLISHED)
    assert not await accepts(authenticator, UNPUBLISHED)
    clock.advance(COOLDOWN)
    assert await accepts(authenticator, UNPUBLISHED)
    assert await accepts(authenticator)


async def test_a_new_key_is_accepted_from_all_concurrent_callers(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.publish(RSA, UNPUBLISHED)
    clock.advance(COOLDOWN)
    assert all(await asyncio.gather(*(accepts(authenticator, UNPUBLISHED) for _ in range(10))))


async def test_a_withdrawn_key_is_refused_within_a_minute(issuer: Issuer, clock: Clock) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.publish(P256)
    clock.advance(LIFETIME)
    assert LIFETIME == 60
    assert not await accepts(authenticator)
    assert await accepts(authenticator, P256)


@pytest.fixture
def endless_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a caller that waits for a fetch wait as long as the issuer is closed."""
    monkeypatch.setattr("apcore_a2a_auth.jwks.TIMEOUT", 10 * PATIENCE)


async def test_keys_are_refreshed_in_the_background(
    issuer: Issuer, clock: Clock, endless_fetches: None
) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.open.clear()
    clock.advance(REFRESH_AGE)
    assert await asyncio.wait_for(accepts(authenticator), PATIENCE)
    issuer.open.set()
    await wait_for_fetches()
    assert await accepts(authenticator)
    assert issuer.count_requests() == 2


async def test_a_caller_cancelled_during_a_fetch_does_not_cancel_the_others(issuer: Issuer) -> None:
    authenticator = jwks_authenticator(issuer)
    issuer.open.clear()
    callers = [asyncio.create_task(accepts(authenticator)) for _ in range(3)]
    assert await asyncio.to_thread(issuer.request_received.wait, PATIENCE)
    callers[0].cancel()
    await asyncio.wait(callers[:1])
    issuer.open.set()
    assert await asyncio.gather(*callers[1:]) == [True, True]
    assert callers[0].cancelled()
    assert issuer.count_requests() == 1


async def test_a_caller_cancelled_while_a_new_key_is_fetched_does_not_stop_the_fetch(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.publish(UNPUBLISHED)
    issuer.request_received.clear()
    issuer.open.clear()
    clock.advance(COOLDOWN)
    caller = asyncio.create_task(accepts(authenticator, UNPUBLISHED))
    assert await asyncio.to_thread(issuer.request_received.wait, PATIENCE)
    caller.cancel()
    await asyncio.wait([caller])
    issuer.open.set()
    await wait_for_fetches()
    assert await accepts(authenticator, UNPUBLISHED)


def test_an_event_loop_closed_during_a_fetch_does_not_break_the_next_fetch(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = jwks_authenticator(issuer)
    assert asyncio.run(accepts(authenticator))
    clock.advance(REFRESH_AGE)
    issuer.open.clear()
    assert asyncio.run(accepts(authenticator))
    issuer.open.set()
    clock.advance(LIFETIME)
    assert asyncio.run(accepts(authenticator))


# Selection of the key


async def test_a_token_without_a_key_id_is_verified_with_the_only_matching_key(
    issuer: Issuer,
) -> None:
    authenticator = jwks_authenticator(issuer)
    unnamed = bearer_headers(token(RSA, {"kid": MISSING}))
    assert await authenticator.authenticate(unnamed)
    issuer.publish(RSA, ATTACKER.jwk | {"kid": "another"})
    reason = await reason_of_refusal(jwks_authenticator(issuer), unnamed)
    assert reason == "invalid signature"


async def test_a_key_may_have_no_id(issuer: Issuer) -> None:
    issuer.publish({name: value for name, value in RSA.jwk.items() if name != "kid"})
    assert await jwks_authenticator(issuer).authenticate(
        bearer_headers(token(RSA, {"kid": MISSING}))
    )


MINIMAL = ("kty", "kid", "n", "e", "crv", "x", "y")


async def test_a_key_does_not_match_an_algorithm_for_another_type(issuer: Issuer) -> None:
    keys = (RSA.jwk, P256.jwk, ED25519.jwk)
    issuer.publish(*({name: key[name] for name in MINIMAL if name in key} for key in keys))
    assert await jwks_authenticator(issuer).authenticate(
        bearer_headers(token(RSA, {"kid": MISSING}))
    )


async def test_a_key_type_accepted_from_a_file_is_accepted_from_a_key_set(issuer: Issuer) -> None:
    issuer.publish(ED448)
    assert await accepts(jwks_authenticator(issuer), ED448)


@pytest.mark.parametrize("key", PUBLISHED, ids=lambda key: key.kid)
async def test_optional_members_of_a_key_may_be_missing(key: KeyPair, issuer: Issuer) -> None:
    issuer.publish({name: value for name, value in key.jwk.items() if name in MINIMAL})
    assert await accepts(jwks_authenticator(issuer), key)


async def test_a_key_may_be_listed_twice(issuer: Issuer) -> None:
    issuer.publish(RSA, RSA)
    assert await accepts(jwks_authenticator(issuer))


# Issuers that do not respond


async def test_without_keys_authentication_is_unavailable() -> None:
    url = unused_url()
    assert url in await unavailable_message(JWTAuthenticator(jwks_url=url))


async def test_a_malformed_token_is_refused_even_without_keys() -> None:
    authenticator = JWTAuthenticator(jwks_url=unused_url())
    headers = {"authorization": "Bearer abc"}
    assert await reason_of_refusal(authenticator, headers) == "malformed"


async def test_an_issuer_that_does_not_respond_is_retried_only_after_a_delay(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = jwks_authenticator(issuer)
    issuer.drop_connections()
    for count in (1, 2, 3):
        for _ in range(5):
            await unavailable_message(authenticator)
        assert issuer.count_requests() == count
        clock.advance(RETRY_INTERVAL)
    issuer.recover()
    assert await accepts(authenticator)


async def test_the_last_fetched_keys_are_used_for_an_hour(issuer: Issuer, clock: Clock) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.drop_connections()
    for _ in range(6):
        assert await accepts(authenticator)
        clock.advance(MAX_STALE / 6)
    clock.advance(1)
    assert MAX_STALE == 3600
    await unavailable_message(authenticator)
    issuer.recover()
    clock.advance(RETRY_INTERVAL)
    assert await accepts(authenticator)


async def test_callers_do_not_wait_for_an_issuer_that_failed_before(
    issuer: Issuer, clock: Clock, endless_fetches: None
) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.drop_connections()
    clock.advance(LIFETIME)
    assert await accepts(authenticator)
    issuer.open.clear()
    clock.advance(RETRY_INTERVAL)
    assert await asyncio.wait_for(accepts(authenticator), PATIENCE)
    issuer.open.set()
    await wait_for_fetches()


async def test_a_key_withdrawn_during_an_idle_period_is_refused_after_a_failed_refresh(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = jwks_authenticator(issuer)
    assert await accepts(authenticator)
    issuer.drop_connections()
    clock.advance(REFRESH_AGE)
    assert await accepts(authenticator)
    await wait_for_fetches()
    issuer.recover()
    issuer.publish(P256)
    clock.advance(MAX_STALE - LIFETIME)
    still_accepted = await accepts(authenticator)
    await wait_for_fetches()
    assert not still_accepted


# Location of the keys


async def test_the_location_of_the_keys_is_discovered(issuer: Issuer) -> None:
    authenticator = JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)
    assert await accepts(authenticator, iss=issuer.url)
    assert [request.path for request in issuer.requests] == [DISCOVERY, KEYS]


async def test_the_discovery_document_of_a_working_issuer_is_fetched_once(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)
    for _ in range(3):
        assert await accepts(authenticator, iss=issuer.url)
        clock.advance(LIFETIME)
    assert (issuer.count_requests(DISCOVERY), issuer.count_requests()) == (1, 3)


async def test_the_location_of_the_keys_is_discovered_again_after_a_failure(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)
    assert await accepts(authenticator, iss=issuer.url)
    issuer.answer_keys_with(status=404)
    issuer.document = {"jwks_uri": f"{issuer.url}/moved"}
    for _ in range(2):
        clock.advance(LIFETIME)
        assert await accepts(authenticator, iss=issuer.url)
        await wait_for_fetches()
    assert issuer.count_requests("/moved") == 1


@pytest.mark.parametrize("configured_suffix", ["", "/"])
@pytest.mark.parametrize("document_suffix", ["", "/"])
async def test_a_trailing_slash_does_not_change_the_issuer(
    configured_suffix: str, document_suffix: str, issuer: Issuer
) -> None:
    issuer.document = {"issuer": issuer.url + document_suffix}
    authenticator = JWTAuthenticator(issuer=issuer.url + configured_suffix, audience=AUDIENCE)
    assert await accepts(authenticator, iss=issuer.url + configured_suffix)
    other_url = issuer.url + ("" if configured_suffix else "/")
    assert not await accepts(authenticator, iss=other_url)


async def test_an_issuer_with_a_key_url_need_not_be_a_url(
    issuer: Issuer,
) -> None:
    authenticator = jwks_authenticator(issuer, issuer="accounts")
    assert await accepts(authenticator, iss="accounts")
    assert not await accepts(authenticator, iss="others")


async def test_an_issuer_with_a_key_url_recovers_after_a_failure(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = jwks_authenticator(issuer, issuer="accounts")
    issuer.drop_connections()
    await unavailable_message(authenticator, iss="accounts")
    issuer.recover()
    clock.advance(RETRY_INTERVAL)
    assert await accepts(authenticator, iss="accounts")


def test_a_pinned_key_that_can_verify_nothing_is_refused() -> None:
    key_for_encryption = {"kty": "OKP", "crv": "X25519", "x": "A" * 43}
    with pytest.raises(ConfigurationError, match="not a public key for signatures"):
        CardVerifier([key_for_encryption])


@pytest.mark.parametrize(("keys", "requests"), [([P256, RSA], 1), ([{}], 2)])
def test_a_signature_without_a_key_id_uses_the_cached_keys_for_a_minute(
    keys: list[Any], requests: int, issuer: Issuer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty set is fetched again, because none of its keys may have made the signature."""
    monkeypatch.setattr("apcore_a2a_auth.key_sets.monotonic", clock)
    issuer.publish(*keys)
    key_sets = KeySets(issuer.jwks_url, [])
    found = key_sets.find(None, None)
    clock.advance(COOLDOWN + 1)
    assert len(key_sets.find(None, None)) == len(found)
    assert issuer.count_requests() == requests
    clock.advance(LIFETIME)
    key_sets.find(None, None)
    assert issuer.count_requests() == requests + 1


def test_a_slow_key_set_does_not_delay_the_keys_of_another(issuer: Issuer) -> None:
    with running(Issuer(RSA)) as slow_issuer, ThreadPoolExecutor(1) as pool:
        key_sets = KeySets(issuer.jwks_url, [slow_issuer.url])
        slow_issuer.open.clear()
        slow_keys = pool.submit(key_sets.find, RSA.kid, slow_issuer.jwks_url)
        assert slow_issuer.request_received.wait(PATIENCE)
        assert key_sets.find(P256.kid, None)
        assert not slow_keys.done()
        slow_issuer.open.set()
        assert len(slow_keys.result()) == 2


def test_callers_that_wait_for_an_unreachable_key_set_share_one_attempt(issuer: Issuer) -> None:
    key_sets, started = KeySets(issuer.jwks_url, []), Barrier(5)

    def find() -> bool:
        started.wait(PATIENCE)
        with pytest.raises(KeysUnavailableError):
            key_sets.find(None, None)
        return True

    def fail_slowly(_: Request) -> Iterable[Step]:
        yield 0.5
        yield from reply(b"", 500)

    issuer.answers[KEYS] = fail_slowly
    with ThreadPoolExecutor(5) as pool:
        assert all(pool.map(lambda _: find(), range(5)))
    assert issuer.count_requests() == 1


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nx-slow: "], ids=["status", "header"])
def test_the_time_limit_for_a_key_set_includes_its_headers(
    start: bytes, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_slowly(_: Request) -> Iterable[Step]:
        yield start
        for _number in range(PATIENCE * 100):
            yield b"H"
            yield 0.01

    monkeypatch.setattr("apcore_a2a_auth.key_sets.TIMEOUT", 0.3)
    issuer.answers[KEYS] = send_slowly
    with pytest.raises(KeysUnavailableError):
        KeySets(issuer.jwks_url, []).find(None, None)
    assert issuer.sent < PATIENCE * 50
