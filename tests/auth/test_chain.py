"""Several authenticators, one after the other."""

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
from apcore_a2a_core import Authenticator

from .issuer import Issuer, fetching, nobody, running
from .issuer import clock as clock
from .tokens import AUDIENCE, P256, RSA, SECRET, SUBJECT, bearing, known, token
from .tokens import silent as silent

KEY = "a key of the tests, of some length"
HEADERS = {"x-api-key": KEY}


class Users:
    """An authenticator of somebody who uses ours."""

    def __init__(self, answer: Any = None, **schemes: SecurityScheme) -> None:
        self.answer = answer
        self.schemes = schemes
        self.asked = 0

    def authenticate(self, headers: Mapping[str, str]) -> Any:
        self.asked += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        return self.schemes


class Later(Users):
    """One that has to wait for something."""

    async def authenticate(self, headers: Mapping[str, str]) -> Any:
        await asyncio.sleep(0)
        return super().authenticate(headers)


class Plain:
    """One that declares nothing."""

    def authenticate(self, headers: Mapping[str, str]) -> Identity:
        return Identity("plain")


def test_a_chain_without_authenticators_is_none() -> None:
    with pytest.raises(ConfigurationError):
        ChainAuthenticator()


def test_it_is_an_authenticator() -> None:
    assert isinstance(ChainAuthenticator(Plain()), Authenticator)


def test_each_of_ours_knows_its_own() -> None:
    tokens, keys = JWTAuthenticator(RSA.pem, audience=AUDIENCE), APIKeyAuthenticator({KEY: "ci"})
    both = ChainAuthenticator(tokens, keys)
    found = [known(both, headers) for headers in (bearing(token()), HEADERS, bearing(KEY), {})]
    assert [identity and identity.id for identity in found] == [SUBJECT, "ci", None, None]


def test_two_issuers_have_their_own_tokens() -> None:
    with running(Issuer(RSA)) as one, running(Issuer(P256)) as two:
        both = ChainAuthenticator(fetching(one, issuer="one"), fetching(two, issuer="two"))
        assert known(both, bearing(token(RSA, iss="one")))
        assert known(both, bearing(token(P256, iss="two")))
        assert not known(both, bearing(token(RSA, iss="two")))
        assert not known(both, bearing(token(P256, iss="one")))


@pytest.mark.parametrize("kind", [Users, Later])
def test_the_first_who_knows_the_caller_decides(kind: type[Users]) -> None:
    chain = [kind(), kind(Identity("second")), kind(Identity("third"))]
    assert known(ChainAuthenticator(*chain), {}) == Identity("second")
    assert [each.asked for each in chain] == [1, 1, 0]


@pytest.mark.parametrize("kind", [Users, Later])
def test_one_who_cannot_tell_stands_in_nobodys_way(kind: type[Users]) -> None:
    chain = ChainAuthenticator(kind(OSError()), kind(), kind(Identity("third")))
    assert known(chain, {}) == Identity("third")


@pytest.mark.parametrize("kind", [Users, Later])
def test_who_is_known_to_nobody_may_be_known_to_one_who_cannot_tell(kind: type[Users]) -> None:
    chain = ChainAuthenticator(kind(), kind(LookupError("why")), kind())
    with pytest.raises(LookupError, match="why"):
        known(chain, {})


def test_keys_that_cannot_be_had_stand_in_nobodys_way() -> None:
    tokens = JWTAuthenticator(jwks_url=nobody(), audience=AUDIENCE)
    chain = ChainAuthenticator(tokens, APIKeyAuthenticator({KEY: "ci"}))
    assert known(chain, {**HEADERS, **bearing(token())}) == Identity("ci", type="service")
    with pytest.raises(KeysUnavailableError):
        known(chain, bearing(token()))
    assert known(chain, {}) is None


def test_who_goes_is_asked_after_no_further() -> None:
    last = Users(Identity("last"))
    with pytest.raises(asyncio.CancelledError):
        known(ChainAuthenticator(Users(asyncio.CancelledError()), last), {})
    assert not last.asked


def test_chains_may_be_in_chains() -> None:
    inner = ChainAuthenticator(Users(), Users(Identity("inner"), inner=bearer()))
    outer = ChainAuthenticator(Users(), inner)
    assert known(outer, {}) == Identity("inner")
    assert [*outer.security_schemes()] == ["inner"]


# What the Agent Card says


def test_it_declares_what_any_of_them_declares() -> None:
    chain = ChainAuthenticator(
        JWTAuthenticator(SECRET), Plain(), APIKeyAuthenticator({KEY: "ci"}), Users(other=bearer())
    )
    assert [*chain.security_schemes()] == ["bearer", "apiKey", "other"]


def test_what_two_declare_alike_is_there_once() -> None:
    chain = ChainAuthenticator(JWTAuthenticator(SECRET), JWTAuthenticator(RSA.pem))
    assert chain.security_schemes() == {"bearer": bearer()}


def test_what_two_declare_by_one_name_is_there_by_two() -> None:
    first, second = api_key("X-First"), api_key("X-Second")
    chain = ChainAuthenticator(Users(key=first), Users(key=second))
    assert chain.security_schemes() == {"key": first, "key2": second}


def test_no_scheme_takes_the_place_of_another() -> None:
    first, second, third = api_key("X-First"), api_key("X-Second"), open_id_connect("https://a")
    chain = ChainAuthenticator(Users(key=first, key3=second), Users(key=third))
    found = [*chain.security_schemes().values()]
    assert all(scheme in found for scheme in (first, second, third))
