"""Several authenticators in a chain."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from a2a.types import SecurityScheme
from apcore import Identity
from apcore_a2a_auth import (
    APIKeyAuthenticator,
    ChainAuthenticator,
    ConfigurationError,
    JWTAuthenticator,
    KeysUnavailableError,
    api_key,
    bearer,
    open_id_connect,
)
from apcore_a2a_core import Authenticator, RefusalReason, TokenRefusedError

from .issuer import Issuer, jwks_authenticator, running, unused_url
from .issuer import clock as clock
from .tokens import (
    AUDIENCE,
    P256,
    RSA,
    SECRET,
    SUBJECT,
    authenticate,
    bearer_headers,
    refusal_reason,
    token,
)
from .tokens import no_secrets_logged as no_secrets_logged

KEY = "a key of the tests, of some length"
HEADERS = {"x-api-key": KEY}


class FakeAuthenticator:
    """Custom authenticator that declares schemes, and returns or raises *answer*."""

    def __init__(self, answer: Any = None, **schemes: SecurityScheme) -> None:
        self.answer = answer
        self.schemes = schemes
        self.calls = 0

    def authenticate(self, headers: Mapping[str, str]) -> Any:
        self.calls += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        return self.schemes


class AsyncAuthenticator(FakeAuthenticator):
    """Authenticator that awaits before it answers."""

    async def authenticate(self, headers: Mapping[str, str]) -> Any:
        await asyncio.sleep(0)
        return super().authenticate(headers)


class PlainAuthenticator:
    """Authenticator that declares no schemes."""

    def authenticate(self, headers: Mapping[str, str]) -> Identity:
        return Identity("plain")


def test_a_chain_without_authenticators_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        ChainAuthenticator()


def test_a_chain_is_an_authenticator() -> None:
    assert isinstance(ChainAuthenticator(PlainAuthenticator()), Authenticator)


def test_tokens_and_api_keys_work_in_one_chain() -> None:
    tokens, keys = JWTAuthenticator(RSA.pem, audience=AUDIENCE), APIKeyAuthenticator({KEY: "ci"})
    chain = ChainAuthenticator(tokens, keys)
    identities = [
        authenticate(chain, headers)
        for headers in (bearer_headers(token()), HEADERS, bearer_headers(KEY), {})
    ]
    assert [identity and identity.id for identity in identities] == [SUBJECT, "ci", None, None]


def test_each_issuer_is_accepted_only_with_its_own_keys() -> None:
    with running(Issuer(RSA)) as first_issuer, running(Issuer(P256)) as second_issuer:
        chain = ChainAuthenticator(
            jwks_authenticator(first_issuer, issuer="one"),
            jwks_authenticator(second_issuer, issuer="two"),
        )
        assert authenticate(chain, bearer_headers(token(RSA, iss="one")))
        assert authenticate(chain, bearer_headers(token(P256, iss="two")))
        assert not authenticate(chain, bearer_headers(token(RSA, iss="two")))
        assert not authenticate(chain, bearer_headers(token(P256, iss="one")))


@pytest.mark.parametrize("kind", [FakeAuthenticator, AsyncAuthenticator])
def test_the_first_identity_found_is_used(kind: type[FakeAuthenticator]) -> None:
    members = [kind(), kind(Identity("second")), kind(Identity("third"))]
    assert authenticate(ChainAuthenticator(*members), {}) == Identity("second")
    assert [member.calls for member in members] == [1, 1, 0]


@pytest.mark.parametrize("kind", [FakeAuthenticator, AsyncAuthenticator])
def test_a_failing_authenticator_does_not_affect_the_next(
    kind: type[FakeAuthenticator],
) -> None:
    chain = ChainAuthenticator(kind(OSError()), kind(), kind(Identity("third")))
    assert authenticate(chain, {}) == Identity("third")


@pytest.mark.parametrize("kind", [FakeAuthenticator, AsyncAuthenticator])
def test_the_failure_is_raised_if_no_authenticator_returns_an_identity(
    kind: type[FakeAuthenticator],
) -> None:
    chain = ChainAuthenticator(kind(), kind(LookupError("why")), kind())
    with pytest.raises(LookupError, match="why"):
        authenticate(chain, {})


def test_unavailable_keys_do_not_affect_the_next_authenticator() -> None:
    tokens = JWTAuthenticator(jwks_url=unused_url(), audience=AUDIENCE)
    chain = ChainAuthenticator(tokens, APIKeyAuthenticator({KEY: "ci"}))
    assert authenticate(chain, {**HEADERS, **bearer_headers(token())}) == Identity(
        "ci", type="service"
    )
    with pytest.raises(KeysUnavailableError):
        authenticate(chain, bearer_headers(token()))
    assert authenticate(chain, {}) is None


# Refused tokens

EXPIRED = token(exp=1)


def test_the_refusal_reason_of_a_chain_is_that_of_its_token_authenticator() -> None:
    tokens, keys = JWTAuthenticator(RSA.pem, audience=AUDIENCE), APIKeyAuthenticator({KEY: "ci"})
    for chain in (ChainAuthenticator(tokens, keys), ChainAuthenticator(keys, tokens)):
        assert refusal_reason(chain, bearer_headers(EXPIRED)) == "expired"
        assert refusal_reason(ChainAuthenticator(chain), bearer_headers(EXPIRED)) == "expired"


def test_a_refused_token_does_not_affect_the_next_authenticator() -> None:
    tokens, keys = JWTAuthenticator(RSA.pem, audience=AUDIENCE), APIKeyAuthenticator({KEY: "ci"})
    identity = authenticate(ChainAuthenticator(tokens, keys), {**HEADERS, **bearer_headers("x")})
    assert identity == Identity("ci", type="service")


def test_the_refusal_reason_of_a_chain_is_that_of_the_authenticator_that_checked_most() -> None:
    first, second = JWTAuthenticator(P256.pem), JWTAuthenticator(RSA.pem, audience=AUDIENCE)
    for chain in (ChainAuthenticator(first, second), ChainAuthenticator(second, first)):
        assert refusal_reason(chain, bearer_headers(EXPIRED)) == "expired"
        assert refusal_reason(chain, bearer_headers(token(aud="other"))) == "wrong audience"
        assert refusal_reason(chain, bearer_headers("x")) == "malformed"


@pytest.mark.parametrize("kind", [FakeAuthenticator, AsyncAuthenticator])
def test_a_chain_passes_on_the_refusal_of_a_custom_authenticator(
    kind: type[FakeAuthenticator],
) -> None:
    chain = ChainAuthenticator(kind(), kind(TokenRefusedError(RefusalReason.EXPIRED)), kind())
    assert refusal_reason(chain, {}) == "expired"


def test_a_failure_takes_precedence_over_a_refusal() -> None:
    refusal, failure = TokenRefusedError(RefusalReason.EXPIRED), OSError("why")
    for answers in ((refusal, failure), (failure, refusal)):
        with pytest.raises(OSError, match="why"):
            authenticate(ChainAuthenticator(*map(AsyncAuthenticator, answers)), {})


def test_a_cancelled_caller_stops_the_chain() -> None:
    last_authenticator = FakeAuthenticator(Identity("last"))
    with pytest.raises(asyncio.CancelledError):
        authenticate(
            ChainAuthenticator(FakeAuthenticator(asyncio.CancelledError()), last_authenticator), {}
        )
    assert not last_authenticator.calls


def test_chains_may_be_nested() -> None:
    inner = ChainAuthenticator(
        FakeAuthenticator(), FakeAuthenticator(Identity("inner"), inner=bearer())
    )
    outer = ChainAuthenticator(FakeAuthenticator(), inner)
    assert authenticate(outer, {}) == Identity("inner")
    assert [*outer.security_schemes()] == ["inner"]


# Security schemes of the Agent Card


def test_a_chain_declares_the_schemes_of_all_its_members() -> None:
    chain = ChainAuthenticator(
        JWTAuthenticator(SECRET),
        PlainAuthenticator(),
        APIKeyAuthenticator({KEY: "ci"}),
        FakeAuthenticator(other=bearer()),
    )
    assert [*chain.security_schemes()] == ["bearer", "apiKey", "other"]


def test_a_member_without_schemes_declares_a_bearer_token() -> None:
    chain = ChainAuthenticator(APIKeyAuthenticator({KEY: "ci"}), PlainAuthenticator())
    assert chain.security_schemes() == {"apiKey": api_key(), "bearer": bearer()}


def test_equal_schemes_are_declared_once() -> None:
    chain = ChainAuthenticator(JWTAuthenticator(SECRET), JWTAuthenticator(RSA.pem))
    assert chain.security_schemes() == {"bearer": bearer()}


def test_a_different_scheme_of_the_same_name_is_renamed() -> None:
    first, second = api_key("X-First"), api_key("X-Second")
    chain = ChainAuthenticator(FakeAuthenticator(key=first), FakeAuthenticator(key=second))
    assert chain.security_schemes() == {"key": first, "key2": second}


def test_a_renamed_scheme_does_not_replace_another() -> None:
    first, second, third = api_key("X-First"), api_key("X-Second"), open_id_connect("https://a")
    chain = ChainAuthenticator(
        FakeAuthenticator(key=first, key2=second), FakeAuthenticator(key=third)
    )
    assert chain.security_schemes() == {"key": first, "key2": second, "key3": third}
