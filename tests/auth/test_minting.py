"""Tokens for remote agents: one agent signs them, and another verifies them."""

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
import pytest
from apcore import Identity
from apcore_a2a_auth import (
    ClaimMapping,
    ConfigurationError,
    JWTAuthenticator,
    SigningKey,
    mint,
)
from apcore_a2a_core import RefusalReason, TokenRefusedError

from .tokens import ED448, ED25519, P256, P384, RSA, SECRET, WEAK, KeyPair, base64url

ADA = Identity(
    "ada@example.com", type="service", roles=("operator", "reader"), attrs={"team": "math"}
)
WEATHER, GATEWAY = "https://weather.example.com", "https://gateway.example.com"
PAIRS = [RSA, P256, P384, ED25519, ED448]

pairs = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.kid)


def verified(token: str, key: Any = None, **options: Any) -> Identity:
    """Return the identity that a remote agent sees."""
    remote = JWTAuthenticator(key=key, **{"audience": WEATHER, **options})
    identity = asyncio.run(remote.authenticate({"authorization": f"Bearer {token}"}))
    assert identity is not None
    return identity


def id_type_and_roles(identity: Identity) -> tuple[Any, ...]:
    return identity.id, identity.type, identity.roles


@pairs
def test_the_remote_agent_sees_the_same_caller(pair: KeyPair, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(pair.private_pem)
    key = SigningKey(pair.private_pem)
    for source in (pair.private_pem, pair.private_pem.decode(), path, key):
        token = mint(ADA, WEATHER, key=source, issuer=GATEWAY)
        assert id_type_and_roles(verified(token, pair.pem, issuer=GATEWAY)) == id_type_and_roles(
            ADA
        )
        assert jwt.get_unverified_header(token)["alg"] == pair.alg


def test_a_shared_secret_signs_and_verifies() -> None:
    for caller in (ADA, Identity("x")):
        assert id_type_and_roles(
            verified(mint(caller, WEATHER, key=SECRET), SECRET)
        ) == id_type_and_roles(caller)


@pairs
def test_the_published_key_verifies_the_token(pair: KeyPair) -> None:
    key = SigningKey(pair.private_pem)
    token = mint(ADA, WEATHER, key=key)
    published = jwt.PyJWKSet.from_dict({"keys": [key.public_jwk]})
    header = jwt.get_unverified_header(token)
    assert header["kid"] == key.key_id
    claims = jwt.decode(token, published[header["kid"]], [pair.alg], audience=WEATHER)
    assert claims["sub"] == ADA.id
    assert not {"d", "p", "q", "k"} & key.public_jwk.keys()


def test_the_id_of_a_key_is_its_thumbprint_unless_configured() -> None:
    assert SigningKey(P256.private_pem).key_id == SigningKey(P256.private_pem).key_id
    assert SigningKey(P256.private_pem).key_id != SigningKey(P384.private_pem).key_id
    assert SigningKey(P256.private_pem, key_id="mine").public_jwk["kid"] == "mine"
    token = mint(ADA, WEATHER, key=P256.private_pem, key_id="mine")
    assert jwt.get_unverified_header(token)["kid"] == "mine"


@pytest.mark.parametrize(
    ("pair", "members"), [(RSA, "e kty n"), (P256, "crv kty x y"), (ED25519, "crv kty x")]
)
def test_the_thumbprint_covers_the_members_that_rfc_7638_requires(
    pair: KeyPair, members: str
) -> None:
    key = SigningKey(pair.private_pem)
    values = [f'"{name}":"{key.public_jwk[name]}"' for name in members.split()]
    digest = sha256(f"{{{','.join(values)}}}".encode()).digest()  # RFC 7638 §3
    assert key.key_id == base64url(digest)


def test_the_token_is_valid_for_a_minute_and_one_audience() -> None:
    token = mint(ADA, WEATHER, key=SECRET, issuer=GATEWAY)
    claims = jwt.decode(token, SECRET, ["HS256"], audience=WEATHER)
    assert claims["exp"] - claims["iat"] == 60
    assert claims["iss"] == GATEWAY
    for options, reason in (
        ({"audience": "another"}, RefusalReason.WRONG_AUDIENCE),
        ({"audience": None}, RefusalReason.WRONG_AUDIENCE),
        ({"issuer": "another"}, RefusalReason.WRONG_ISSUER),
    ):
        with pytest.raises(TokenRefusedError) as caught:
            verified(token, SECRET, **options)
        assert caught.value.reason == reason


def test_every_token_has_an_id_of_its_own() -> None:
    tokens = [mint(ADA, WEATHER, key=SECRET) for _ in range(2)]
    ids = {jwt.decode(token, SECRET, ["HS256"], audience=WEATHER)["jti"] for token in tokens}
    assert len(ids) == 2


def test_only_named_attributes_are_passed_on() -> None:
    assert "team" not in verified(mint(ADA, WEATHER, key=SECRET), SECRET).attrs
    mapping = ClaimMapping(roles="realm_access.roles", attrs={"team": "org.team", "gone": "gone"})
    token = mint(ADA, WEATHER, key=SECRET, claim_mapping=mapping)
    assert verified(token, SECRET, claim_mapping=mapping) == ADA


def test_a_claim_within_an_attribute_does_not_change_the_identity() -> None:
    mapping = ClaimMapping(attrs={"org": "org", "team": "org.team"})
    caller = Identity("ada", attrs={"org": {"name": "royal society"}, "team": "math"})
    caller_seen = verified(
        mint(caller, WEATHER, key=SECRET, claim_mapping=mapping), SECRET, claim_mapping=mapping
    )
    assert caller_seen.attrs["org"] == {"name": "royal society", "team": "math"}
    assert caller.attrs["org"] == {"name": "royal society"}


@pytest.mark.parametrize(
    "mapping",
    [
        ClaimMapping(attrs={"team": "sub.team"}),
        ClaimMapping(roles="sub.roles"),
        ClaimMapping(attrs={"team": "team", "level": "team.level.now"}),
    ],
)
def test_a_claim_within_another_that_is_no_object_is_refused(mapping: ClaimMapping) -> None:
    caller = Identity("ada", roles=("operator",), attrs={"team": "math", "level": 1})
    with pytest.raises(ValueError, match=r"(sub|team) is not an object"):
        mint(caller, WEATHER, key=SECRET, claim_mapping=mapping)


def test_an_identity_goes_through_two_hops() -> None:
    first = verified(mint(ADA, WEATHER, key=SECRET), SECRET)
    second = verified(mint(first, "next", key=P256.private_pem), P256.pem, audience="next")
    assert id_type_and_roles(second) == id_type_and_roles(ADA)


def test_claims_can_be_added_but_not_replaced() -> None:
    token = mint(ADA, WEATHER, key=SECRET, claims={"scope": "read"})
    assert verified(token, SECRET).attrs["scope"] == "read"
    for name in ("sub", "aud", "exp", "iat", "jti", "nbf", "roles", "type"):
        with pytest.raises(ValueError, match=name):
            mint(ADA, WEATHER, key=SECRET, claims={name: "x"})


@pytest.mark.parametrize(
    ("caller", "problem"),
    [
        (Identity(" "), "id"),
        (Identity("a\nb"), "id"),
        (Identity("x" * 256), "id"),
        (Identity("x", type="system"), "system"),
    ],
)
def test_an_identity_that_the_remote_agent_would_refuse_is_refused(
    caller: Identity, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        mint(caller, WEATHER, key=SECRET)


@pytest.mark.parametrize("options", [{"lifetime": 0}, {"lifetime": 3601}, {"audience": ""}])
def test_a_wrong_lifetime_and_an_empty_audience_are_refused(options: Any) -> None:
    audience = options.pop("audience", WEATHER)
    with pytest.raises(ValueError, match=r"lifetime|audience"):
        mint(ADA, audience, key=SECRET, **options)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        ("short", None),
        (P256.pem, None),
        (WEAK.private_pem, None),
        (P256.private_pem, "RS256"),
        (SECRET, "ES256"),
        (b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----", None),
        ("\ud800" * 32, None),
        (Path("/nowhere/key.pem"), None),
    ],
)
def test_a_key_that_cannot_sign_is_refused_and_not_shown(key: Any, algorithm: str | None) -> None:
    with pytest.raises(ConfigurationError) as caught:
        mint(ADA, WEATHER, key=key, algorithm=algorithm)
    assert "BEGIN" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("options", [{"key_id": "mine"}, {"algorithm": "ES256"}])
def test_options_of_a_key_are_refused_beside_a_signing_key(options: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"key_id and algorithm to SigningKey"):
        mint(ADA, WEATHER, key=SigningKey(P256.private_pem), **options)


def test_a_secret_is_not_published_and_not_shown() -> None:
    key = SigningKey(SECRET)
    with pytest.raises(ConfigurationError, match="published"):
        _ = key.public_jwk
    assert SECRET not in repr(key)
    assert repr(SigningKey(P256.private_pem, key_id="a")) == "<SigningKey a for ES256>"


def test_the_next_token_is_signed_with_the_key_in_a_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    for pair in (P256, ED25519):
        path.write_bytes(pair.private_pem)
        assert id_type_and_roles(
            verified(mint(ADA, WEATHER, key=path), pair.pem)
        ) == id_type_and_roles(ADA)
