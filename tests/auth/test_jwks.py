"""The keys of an issuer: fetched once for all, kept for a while, and no longer."""

import asyncio

import pytest
from apcore_a2a_auth import JWTAuthenticator
from apcore_a2a_auth.jwks import COOLDOWN, LIFETIME, MAX_STALE, REFRESH, RETRY

from tests.serving import PATIENCE

from .issuer import (
    DISCOVERY,
    KEYS,
    Clock,
    Issuer,
    fetching,
    knows,
    nobody,
    settled,
    unavailable,
)
from .issuer import clock as clock
from .issuer import issuer as issuer
from .tokens import (
    ATTACKER,
    AUDIENCE,
    ED448,
    ED25519,
    GONE,
    MISSING,
    P256,
    PUBLISHED,
    RSA,
    KeyPair,
    base64url,
    bearing,
    token,
)
from .tokens import anyio_backend as anyio_backend
from .tokens import silent as silent

pytestmark = pytest.mark.anyio


# When keys are fetched


async def test_a_hundred_callers_at_once_cost_one_fetch(issuer: Issuer) -> None:
    authenticator = fetching(issuer)
    assert all(await asyncio.gather(*(knows(authenticator) for _ in range(100))))
    assert issuer.count() == 1


async def test_a_fetch_that_takes_long_is_the_only_one(issuer: Issuer, clock: Clock) -> None:
    authenticator = fetching(issuer)
    issuer.open.clear()
    callers = [asyncio.create_task(knows(authenticator))]
    assert await asyncio.to_thread(issuer.asked_at_all.wait, PATIENCE)
    clock.passes(COOLDOWN)
    callers.append(asyncio.create_task(knows(authenticator)))
    await asyncio.sleep(0)
    issuer.open.set()
    assert await asyncio.gather(*callers) == [True, True]
    assert issuer.count() == 1


async def test_nothing_is_fetched_before_somebody_calls(issuer: Issuer) -> None:
    fetching(issuer)
    await settled()
    assert not issuer.connections


@pytest.mark.parametrize("key", PUBLISHED, ids=lambda key: key.kid)
async def test_each_kind_of_key_is_taken(key: KeyPair, issuer: Issuer) -> None:
    assert await knows(fetching(issuer), key)


async def test_ten_thousand_unknown_names_cost_one_fetch_more(issuer: Issuer, clock: Clock) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    clock.passes(COOLDOWN)
    for number in range(10_000):
        made = made_up(f"key-{number}")
        assert await authenticator.authenticate(bearing(made)) is None
    assert issuer.count() == 2


FIRST, *REST = token().split(".")


def made_up(kid: str) -> str:
    """A token under the name of a key that there is not."""
    return ".".join([base64url(f'{{"alg":"RS256","kid":"{kid}"}}'), *REST])


async def test_an_unknown_name_is_asked_for_again_after_a_while(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer)
    for _ in range(3):
        assert not await knows(authenticator, GONE)
        clock.passes(COOLDOWN)
    assert issuer.count() == 3


async def test_a_new_key_is_taken_at_once(issuer: Issuer, clock: Clock) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.publish(RSA, GONE)
    assert not await knows(authenticator, GONE)
    clock.passes(COOLDOWN)
    assert await knows(authenticator, GONE)
    assert await knows(authenticator)


async def test_a_new_key_is_taken_from_all_who_come_with_it(issuer: Issuer, clock: Clock) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.publish(RSA, GONE)
    clock.passes(COOLDOWN)
    assert all(await asyncio.gather(*(knows(authenticator, GONE) for _ in range(10))))


async def test_a_key_that_is_withdrawn_is_refused_within_a_minute(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.publish(P256)
    clock.passes(LIFETIME)
    assert LIFETIME == 60
    assert not await knows(authenticator)
    assert await knows(authenticator, P256)


async def test_keys_are_fetched_again_behind_the_back_of_callers(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.open.clear()
    clock.passes(REFRESH)
    assert await knows(authenticator)
    issuer.open.set()
    await settled()
    assert await knows(authenticator)
    assert issuer.count() == 2


async def test_who_goes_while_keys_are_fetched_takes_nobody_along(issuer: Issuer) -> None:
    authenticator = fetching(issuer)
    issuer.open.clear()
    callers = [asyncio.create_task(knows(authenticator)) for _ in range(3)]
    assert await asyncio.to_thread(issuer.asked_at_all.wait, PATIENCE)
    callers[0].cancel()
    await asyncio.wait(callers[:1])
    issuer.open.set()
    assert await asyncio.gather(*callers[1:]) == [True, True]
    assert callers[0].cancelled()
    assert issuer.count() == 1


async def test_who_goes_while_a_new_key_is_fetched_does_not_stop_that(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.publish(GONE)
    issuer.asked_at_all.clear()
    issuer.open.clear()
    clock.passes(COOLDOWN)
    caller = asyncio.create_task(knows(authenticator, GONE))
    assert await asyncio.to_thread(issuer.asked_at_all.wait, PATIENCE)
    caller.cancel()
    await asyncio.wait([caller])
    issuer.open.set()
    await settled()
    assert await knows(authenticator, GONE)


def test_a_loop_that_ends_while_keys_are_fetched_takes_nothing_along(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer)
    assert asyncio.run(knows(authenticator))
    clock.passes(REFRESH)
    issuer.open.clear()
    assert asyncio.run(knows(authenticator))
    issuer.open.set()
    clock.passes(LIFETIME)
    assert asyncio.run(knows(authenticator))


# Which key is taken


async def test_a_token_without_a_name_gets_the_only_key_that_fits(issuer: Issuer) -> None:
    authenticator = fetching(issuer)
    unnamed = bearing(token(RSA, {"kid": MISSING}))
    assert await authenticator.authenticate(unnamed)
    issuer.publish(RSA, ATTACKER.jwk | {"kid": "another"})
    assert await fetching(issuer).authenticate(unnamed) is None


async def test_a_key_may_do_without_a_name(issuer: Issuer) -> None:
    issuer.publish({name: value for name, value in RSA.jwk.items() if name != "kid"})
    assert await fetching(issuer).authenticate(bearing(token(RSA, {"kid": MISSING})))


MINIMAL = ("kty", "kid", "n", "e", "crv", "x", "y")


async def test_a_key_fits_no_algorithm_of_another_kind(issuer: Issuer) -> None:
    keys = (RSA.jwk, P256.jwk, ED25519.jwk)
    issuer.publish(*({name: key[name] for name in MINIMAL if name in key} for key in keys))
    assert await fetching(issuer).authenticate(bearing(token(RSA, {"kid": MISSING})))


async def test_a_key_that_is_taken_from_a_file_is_taken_from_a_set(issuer: Issuer) -> None:
    issuer.publish(ED448)
    assert await knows(fetching(issuer), ED448)


@pytest.mark.parametrize("key", PUBLISHED, ids=lambda key: key.kid)
async def test_a_key_may_say_no_more_than_it_has_to(key: KeyPair, issuer: Issuer) -> None:
    issuer.publish({name: value for name, value in key.jwk.items() if name in MINIMAL})
    assert await knows(fetching(issuer), key)


async def test_a_key_may_be_there_twice(issuer: Issuer) -> None:
    issuer.publish(RSA, RSA)
    assert await knows(fetching(issuer))


# When the issuer does not answer


async def test_without_any_keys_nobody_can_be_known() -> None:
    url = nobody()
    assert url in await unavailable(JWTAuthenticator(jwks_url=url))


async def test_who_has_nothing_like_a_token_is_nobody_all_the_same() -> None:
    authenticator = JWTAuthenticator(jwks_url=nobody())
    assert await authenticator.authenticate({"authorization": "Bearer abc"}) is None


async def test_an_issuer_that_does_not_answer_is_left_in_peace(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer)
    issuer.breaks()
    for count in (1, 2, 3):
        for _ in range(5):
            await unavailable(authenticator)
        assert issuer.count() == count
        clock.passes(RETRY)
    issuer.recovers()
    assert await knows(authenticator)


async def test_the_last_good_keys_last_for_an_hour(issuer: Issuer, clock: Clock) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.breaks()
    for _ in range(6):
        assert await knows(authenticator)
        clock.passes(MAX_STALE / 6)
    clock.passes(1)
    assert MAX_STALE == 3600
    await unavailable(authenticator)
    issuer.recovers()
    clock.passes(RETRY)
    assert await knows(authenticator)


async def test_nobody_waits_for_an_issuer_that_failed_last_time(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.breaks()
    clock.passes(LIFETIME)
    assert await knows(authenticator)
    issuer.open.clear()
    clock.passes(RETRY)
    assert await knows(authenticator)
    assert not issuer.open.is_set()
    issuer.open.set()
    await settled()


async def test_a_key_is_withdrawn_from_who_was_idle_after_a_failure(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer)
    assert await knows(authenticator)
    issuer.breaks()
    clock.passes(REFRESH)
    assert await knows(authenticator)
    await settled()
    issuer.recovers()
    issuer.publish(P256)
    clock.passes(MAX_STALE - LIFETIME)
    still = await knows(authenticator)
    await settled()
    assert not still


# Where the keys are


async def test_an_issuer_tells_where_its_keys_are(issuer: Issuer) -> None:
    authenticator = JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)
    assert await knows(authenticator, iss=issuer.url)
    assert [request.path for request in issuer.requests] == [DISCOVERY, KEYS]


async def test_an_issuer_that_answers_is_asked_for_its_keys_alone(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)
    for _ in range(3):
        assert await knows(authenticator, iss=issuer.url)
        clock.passes(LIFETIME)
    assert (issuer.count(DISCOVERY), issuer.count()) == (1, 3)


async def test_an_issuer_that_failed_is_asked_again_where_its_keys_are(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)
    assert await knows(authenticator, iss=issuer.url)
    issuer.says(status=404)
    issuer.document = {"jwks_uri": f"{issuer.url}/moved"}
    for _ in range(2):
        clock.passes(LIFETIME)
        assert await knows(authenticator, iss=issuer.url)
        await settled()
    assert issuer.count("/moved") == 1


@pytest.mark.parametrize("ours", ["", "/"])
@pytest.mark.parametrize("theirs", ["", "/"])
async def test_a_slash_at_the_end_makes_no_other_issuer(
    ours: str, theirs: str, issuer: Issuer
) -> None:
    issuer.document = {"issuer": issuer.url + theirs}
    authenticator = JWTAuthenticator(issuer=issuer.url + ours, audience=AUDIENCE)
    assert await knows(authenticator, iss=issuer.url + ours)
    other = issuer.url + ("" if ours else "/")
    assert not await knows(authenticator, iss=other)


async def test_an_issuer_that_publishes_keys_elsewhere_need_not_be_a_place(
    issuer: Issuer,
) -> None:
    authenticator = fetching(issuer, issuer="accounts")
    assert await knows(authenticator, iss="accounts")
    assert not await knows(authenticator, iss="others")


async def test_an_issuer_that_publishes_keys_elsewhere_may_fail_once(
    issuer: Issuer, clock: Clock
) -> None:
    authenticator = fetching(issuer, issuer="accounts")
    issuer.breaks()
    await unavailable(authenticator, iss="accounts")
    issuer.recovers()
    clock.passes(RETRY)
    assert await knows(authenticator, iss="accounts")
