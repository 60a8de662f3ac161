"""Reasons for refusing tokens."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from apcore_a2a_auth import ClaimMapping, JWTAuthenticator
from apcore_a2a_core import RefusalReason, TokenRefusedError

from .issuer import Issuer, jwks_authenticator, running
from .tokens import (
    ATTACKER,
    AUDIENCE,
    ISSUER,
    MISSING,
    P256,
    RSA,
    UNPUBLISHED,
    bearer_headers,
    claims,
    refusal_reason,
    run_authenticator,
    signed,
    token,
    with_hmac,
)
from .tokens import no_secrets_logged as no_secrets_logged

NOW = int(time.time())
HEAD, BODY, SIGNATURE = token().split(".")
REFUSED: dict[str, list[str]] = {
    "malformed": [
        "abc",
        "..",
        f"{HEAD}.{BODY}",
        f"{HEAD}.{BODY[:8]}!!!!{BODY[8:]}.{SIGNATURE}",
        "A" * 20_000,
        token(padding="A" * 20_000),
        signed(json.dumps({"alg": "RS256", "kid": RSA.kid}), "[]", RSA.sign),
        token(exp="never"),
        token(exp=str(NOW + 1000)),
        token(iat=[]),
    ],
    "invalid signature": [
        token(ATTACKER),
        token(UNPUBLISHED),
        token(P256, {"kid": RSA.kid}),
        with_hmac(RSA.pem),
        signed(json.dumps({"alg": "none", "kid": RSA.kid}), json.dumps(claims()), lambda _: b""),
        f"{HEAD}.{token(sub='root').split('.')[1]}.{SIGNATURE}",
        token(ATTACKER, exp=1, aud="other", iss="other", sub=MISSING),
    ],
    "missing claim": [token(exp=MISSING), token(aud=MISSING), token(iss=MISSING)],
    "not valid yet": [token(nbf=NOW + 1000), token(iat=NOW + 1000)],
    "expired": [token(exp=NOW - 1000)],
    "wrong issuer": [token(iss=f"{ISSUER}/")],
    "wrong audience": [token(aud="other-agent"), token(aud=["other", "third"])],
    "no identity": [token(sub=MISSING), token(sub=5), token(sub=""), token(sub="two\nlines")],
}


@pytest.fixture(scope="module")
def published_keys() -> Iterator[JWTAuthenticator]:
    """Yield an authenticator that fetches published keys."""
    with running(Issuer()) as issuer:
        yield jwks_authenticator(issuer, issuer=ISSUER)


@pytest.mark.parametrize("reason", REFUSED)
def test_a_token_is_refused_with_the_reason(reason: str, published_keys: JWTAuthenticator) -> None:
    single_key = JWTAuthenticator(RSA.pem, issuer=ISSUER, audience=AUDIENCE)
    for refused_token in REFUSED[reason]:
        assert refusal_reason(single_key, bearer_headers(refused_token)) == reason
        assert refusal_reason(published_keys, bearer_headers(refused_token)) == reason


def test_every_reason_is_tested() -> None:
    assert [*REFUSED] == [reason.value for reason in RefusalReason]


def test_a_token_for_an_audience_is_refused_by_an_agent_without_one() -> None:
    assert refusal_reason(JWTAuthenticator(RSA.pem), bearer_headers(token())) == "wrong audience"


def test_a_token_without_the_claim_for_the_id_is_refused() -> None:
    mapping = ClaimMapping(id="email")
    authenticator = JWTAuthenticator(RSA.pem, audience=AUDIENCE, claim_mapping=mapping)
    assert refusal_reason(authenticator, bearer_headers(token())) == "no identity"


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": ""}, {"authorization": "Basic dTpw"}, {"x-api-key": "k"}]
)
def test_a_request_without_a_token_has_no_identity(headers: dict[str, str]) -> None:
    assert run_authenticator(JWTAuthenticator(RSA.pem), headers) is None  # raises no refusal


@pytest.mark.parametrize("text", ["", "Expired", "expired\r\nx: y", "key 4711 is unknown", None])
def test_no_other_reason_can_be_given(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid RefusalReason"):
        TokenRefusedError(text)
