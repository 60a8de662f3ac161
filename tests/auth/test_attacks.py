"""Forged, altered and invalid tokens, which authenticate no caller, and a few valid ones."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from apcore import Identity
from apcore_a2a_auth import JWTAuthenticator
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from .issuer import MEGABYTE, Issuer, jwks_authenticator, running
from .tokens import (
    ATTACKER,
    AUDIENCE,
    ED25519,
    FOR_ENCRYPTION,
    FOR_SIGNING,
    ISSUER,
    MISSING,
    P256,
    P384,
    PSS,
    PUBLISHED,
    RSA,
    SECRET,
    SUBJECT,
    UNPUBLISHED,
    UNUSABLE,
    WEAK,
    KeyPair,
    authenticate,
    base64url,
    bearer_headers,
    certificate,
    claims,
    oct_jwk,
    signed,
    thumbprint,
    token,
    with_hmac,
)
from .tokens import no_secrets_logged as no_secrets_logged

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Number of points on P-256."""
NOW = int(time.time())
DAY = 24 * 3600
WRONG_TYPES: list[Any] = [None, 0, True, False, [], {}]
EMPTY: list[Any] = [None, [], {}]
GOOD = token()


@dataclass(frozen=True)
class Attack:
    """Token that must be refused (in the last test: accepted), and one that must be accepted."""

    token: str | Callable[[str], str]
    """The token, or a function that makes it from the attacker's URL."""
    genuine: str = GOOD
    scheme: str = "Bearer "
    by_key_id: bool = False
    """Whether only the key id or algorithm is wrong; with a single key, the token may be valid."""

    def headers(self, attacker: str) -> dict[str, str]:
        text = self.token if isinstance(self.token, str) else self.token(attacker)
        return {"authorization": self.scheme + text}


def with_alg(alg: Any, sign: Callable[[bytes], bytes] = lambda _: b"") -> Attack:
    """Return an attack with *alg* in its header and, by default, no signature."""
    return Attack(signed(head(alg=alg), json.dumps(claims()), sign))


def with_header(key: KeyPair = RSA, /, **header: Any) -> Attack:
    """Return an attack with a token signed by *key*, with these members in its header."""
    return Attack(token(key, header))


def with_key_id(key: KeyPair = RSA, /, **header: Any) -> Attack:
    """Return an attack with a token by *key* whose key id and algorithm fit no published key."""
    return Attack(token(key, header), by_key_id=True)


def with_claims(**changes: Any) -> Attack:
    """Return an attack with a properly signed token with changed claims."""
    return Attack(token(**changes))


def with_payload(body: str | bytes) -> Attack:
    """Return an attack with a properly signed token that has these bytes as its payload."""
    return Attack(signed(head(), body, RSA.sign))


def with_literal(claim: str, text: str) -> Attack:
    """Return an attack with a properly signed token whose *claim* is the JSON literal *text*."""
    return with_payload(json.dumps(claims(**{claim: "@"})).replace('"@"', text))


def with_signature(key: KeyPair, signature: bytes) -> Attack:
    """Return an attack with this signature, which anyone can make without a key."""
    first = head(alg=key.alg, kid=key.kid)
    return Attack(signed(first, json.dumps(claims()), lambda _: signature), token(key))


def head(**changes: Any) -> str:
    return json.dumps({"typ": "JWT", "alg": RSA.alg, "kid": RSA.kid, **changes})


def in_der(data: bytes) -> bytes:
    """Return a signature in DER, which tokens do not use (RFC 7518 §3.4)."""
    signature: bytes = P256.private.sign(data, ECDSA(SHA256()))
    return signature


def nested(text: str, depth: int) -> str:
    """Return the JSON object *text* with one more member: *depth* nested arrays."""
    return f'{text[:-1]}, "x": {"[" * depth}{"]" * depth}}}'


HEAD, BODY, SIGNATURE = GOOD.split(".")
OTHER_BODY = token(sub="root").split(".")[1]
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
TWIN = ALPHABET[ALPHABET.index(SIGNATURE[-1]) ^ 1]
"""Another last character of a signature, with the same significant bits."""

ATTACKS: dict[str, Attack] = {
    # No signature (RFC 8725 §2.1)
    **{f"alg {alg!r}": with_alg(alg) for alg in ("none", "None", "NONE", "nOnE", "", " none")},
    **{f"alg {alg!r}": with_alg(alg) for alg in (*WRONG_TYPES, "null", ["none"])},
    "alg none, signed": with_alg("none", RSA.sign),
    "alg missing": with_header(alg=MISSING),
    "alg twice, the last none": Attack(
        signed(head()[:-1] + ', "alg": "none"}', json.dumps(claims()), lambda _: b"")
    ),
    "signature stripped": Attack(f"{HEAD}.{BODY}."),
    "signature and its dot stripped": Attack(f"{HEAD}.{BODY}"),
    # Algorithms other than the key's (RFC 8725 §3.1)
    "hmac with the public key in PEM": Attack(with_hmac(RSA.pem)),
    "hmac with the public key, stripped": Attack(with_hmac(RSA.pem.strip())),
    "hmac with the public key in DER": Attack(with_hmac(RSA.der)),
    "hmac with the public key as a JWK": Attack(with_hmac(json.dumps(RSA.jwk).encode())),
    "hmac with an empty secret": Attack(with_hmac(b"")),
    "hmac with a published secret": Attack(with_hmac(SECRET.encode(), kid="shared")),
    "hmac with a published secret, unnamed": Attack(with_hmac(SECRET.encode(), kid=MISSING)),
    "PS256 for a key for RS256": with_key_id(PSS),
    "RS512 for a key for RS256": with_key_id(KeyPair(RSA.kid, "RS512", RSA.private)),
    "ES256 for an RSA key": Attack(token(P256, {"kid": RSA.kid})),
    "RS256 for an EC key": with_key_id(kid=P256.kid),
    **{f"alg {alg}": with_header(alg=alg) for alg in ("rs256", "RS256 ", "RS1", "RSA-OAEP", "dir")},
    **{
        f"alg {alg} for another key": with_header(P256, alg=alg)
        for alg in ("ES521", "ES256K", "Ed25519")
    },
    # Another key
    "the key of an attacker": Attack(token(ATTACKER)),
    "the key of an attacker, unnamed": with_header(ATTACKER, kid=MISSING),
    "a key that is not published": Attack(token(UNPUBLISHED)),
    "a key that is too short": Attack(token(WEAK)),
    "a key for encryption": Attack(token(FOR_ENCRYPTION)),
    "a key for signing only": Attack(token(FOR_SIGNING)),
    "kid a path": with_key_id(kid="../../../../dev/null"),
    "kid SQL": with_key_id(kid="' UNION SELECT 'secret"),
    "kid a command": with_key_id(kid="|/bin/true"),
    "kid an address": Attack(lambda at: token(RSA, {"kid": f"{at}/keys"}), by_key_id=True),
    "kid huge": with_key_id(kid=RSA.kid * 1000),
    "kid empty": with_key_id(kid=""),
    "kid with a NUL": with_key_id(kid=f"{RSA.kid}\0"),
    **{f"kid {kid!r}": with_header(kid=kid) for kid in (None, 0, 1.5, True, [RSA.kid], {"kid": 1})},
    # A key sent with the token (RFC 8725 §3.10)
    "jwk": with_header(ATTACKER, jwk=ATTACKER.jwk),
    "jwk, unnamed": with_header(ATTACKER, jwk=ATTACKER.jwk, kid=MISSING),
    "jwk, a secret": Attack(with_hmac(SECRET.encode(), jwk=oct_jwk(), kid="shared")),
    "jku": Attack(lambda at: token(ATTACKER, {"jku": f"{at}/keys"})),
    "jku, unknown kid": Attack(lambda at: token(ATTACKER, {"jku": at, "kid": "new"})),
    "x5u": Attack(lambda at: token(ATTACKER, {"x5u": f"{at}/keys"})),
    "x5c": with_header(ATTACKER, x5c=[base64url(ATTACKER.der)]),
    "x5c of a certificate": with_header(ATTACKER, x5c=[certificate(ATTACKER).decode()]),
    "x5t": with_header(ATTACKER, **{"x5t#S256": thumbprint(ATTACKER.der)}),
    "iss leads to other keys": Attack(lambda at: token(ATTACKER, iss=at)),
    # Unknown extensions (RFC 7515 §4.1.11)
    "crit unknown": with_header(crit=["made-up"], **{"made-up": True}),
    "crit of a claim": with_header(crit=["exp"], exp=1),
    "crit empty": with_header(crit=[]),
    "crit a string": with_header(crit="b64", b64=True),
    "crit of a missing member": with_header(crit=["b64"]),
    "crit b64": with_header(crit=["b64"], b64=False),
    "b64 without crit": with_header(b64=False),
    # Signatures that can be made without a key
    "ES256 all zeros": with_signature(P256, bytes(64)),
    "ES256 the order of the curve": with_signature(P256, ORDER.to_bytes(32) * 2),
    "ES256 zeros in DER": with_signature(P256, encode_dss_signature(0, 0)),
    "ES256 in DER": Attack(signed(head(alg="ES256", kid=P256.kid), json.dumps(claims()), in_der)),
    "ES256 empty": with_signature(P256, b""),
    "ES384 all zeros": with_signature(P384, bytes(96)),
    "EdDSA all zeros": with_signature(ED25519, bytes(64)),
    "EdDSA of small order": with_signature(ED25519, bytes([1, *bytes(63)])),
    "EdDSA of small order, the other": with_signature(
        ED25519, bytes([0xEC, *[0xFF] * 30, 0x7F]) + bytes(32)
    ),
    "RS256 all zeros": with_signature(RSA, bytes(256)),
    "RS256 one": with_signature(RSA, bytes(255) + b"\1"),
    # Bytes other than those that were signed
    "payload of another token": Attack(f"{HEAD}.{OTHER_BODY}.{SIGNATURE}"),
    "header of another token": Attack(f"{base64url(head(typ='at+jwt'))}.{BODY}.{SIGNATURE}"),
    "signature of another token": Attack(f"{HEAD}.{BODY}.{token(sub='root').split('.')[2]}"),
    "signature truncated": Attack(f"{HEAD}.{BODY}.{SIGNATURE[:-4]}"),
    "signature longer": Attack(f"{HEAD}.{BODY}.{SIGNATURE}AAAA"),
    "another last letter": Attack(f"{HEAD}.{BODY}.{SIGNATURE[:-1]}{TWIN}"),
    "invalid letters in the signature": Attack(f"{HEAD}.{BODY}.{SIGNATURE[:8]}!!!!{SIGNATURE[8:]}"),
    "an additional letter": Attack(f"{HEAD}.{BODY}.{SIGNATURE}A"),
    "padding in the middle": Attack(f"{HEAD}=.{BODY}.{SIGNATURE}"),
    "line break within": Attack(f"{HEAD}.{BODY[:9]}\n{BODY[9:]}.{SIGNATURE}"),
    "invalid letters in the payload": Attack(f"{HEAD}.{BODY[:8]}!!!!{BODY[8:]}.{SIGNATURE}"),
    "NUL": Attack(token() + "\0"),
    "lone surrogate": Attack(token() + "\ud800"),
    "letters beyond ASCII": Attack(f"{HEAD}.{BODY}.{SIGNATURE[:-1]}é"),
    # Not three segments
    "one segment": Attack("abc"),
    "dots": Attack(".."),
    "first segment empty": Attack(f".{BODY}.{SIGNATURE}"),
    "four segments": Attack(f"{token()}.{SIGNATURE}"),
    "five segments (JWE)": Attack(
        f"{base64url(head(alg='RSA-OAEP', enc='A256GCM'))}.{SIGNATURE}.AAAA.{BODY}.AAAA"
    ),
    "JSON serialization": Attack(json.dumps({"protected": HEAD, "payload": BODY})),
    "1 MB": Attack("A" * MEGABYTE),
    "1 MB, signed": Attack(token(padding="A" * MEGABYTE)),
    # Unexpected JSON
    "header not JSON": Attack(signed("alg", json.dumps(claims()), RSA.sign)),
    "header an array": Attack(signed(f"[{head()}]", json.dumps(claims()), RSA.sign)),
    **{
        f"payload {body!r}": with_payload(body)
        for body in ("", "[]", '"ada"', "1", "null", "{", "{}{}")
    },
    "payload not UTF-8": with_payload(json.dumps(claims()).encode()[:-1] + b', "x": "\xff\xfe"}'),
    "payload a number too long": with_payload(json.dumps(claims())[:-1] + f', "x": {"1" * 5000}}}'),
    # Claims (RFC 7519 §4.1)
    "iss of another": with_claims(iss="https://idp.example.com/realms/two"),
    "iss with an additional slash": with_claims(iss=f"{ISSUER}/"),
    "iss in capitals": with_claims(iss=ISSUER.upper()),
    "iss missing": with_claims(iss=MISSING),
    "iss a list": with_payload(json.dumps(claims(iss=[ISSUER]))),
    "aud of another": with_claims(aud="another-agent"),
    "aud with the agent's in it": with_claims(aud=f"{AUDIENCE} another-agent"),
    "aud a list without the agent's": with_claims(aud=["another-agent", "a-third"]),
    "aud a list with a number": with_claims(aud=[AUDIENCE, 5]),
    "aud an object": with_claims(aud={AUDIENCE: AUDIENCE}),
    **{f"aud {aud!r}": with_claims(aud=aud) for aud in (*WRONG_TYPES, "")},
    "aud missing": with_claims(aud=MISSING),
    "expired": with_claims(exp=NOW - 120),
    "expired long ago": with_claims(exp=1),
    "exp missing": with_claims(exp=MISSING),
    "exp twice, the last long ago": with_payload(json.dumps(claims())[:-1] + ', "exp": 1}'),
    **{f"exp {exp!r}": with_claims(exp=exp) for exp in (*WRONG_TYPES, -1, -1e300)},
    **{f"exp {exp!r}": with_claims(exp=exp) for exp in ("", "never", "1e400", "Infinity")},
    **{f"exp {text}": with_literal("exp", text) for text in ("1e400", "-1e400", "Infinity", "NaN")},
    "not yet valid": with_claims(nbf=NOW + DAY),
    **{f"nbf {nbf!r}": with_claims(nbf=nbf) for nbf in (*EMPTY, "later", 1e308)},
    "nbf 1e400": with_literal("nbf", "1e400"),
    "issued in the future": with_claims(iat=NOW + DAY),
    **{f"iat {iat!r}": with_claims(iat=iat) for iat in (*EMPTY, "today", 1e308)},
    "sub missing": with_claims(sub=MISSING),
    **{f"sub {sub!r}": with_claims(sub=sub) for sub in (*WRONG_TYPES, "", 5, [SUBJECT])},
    "jti a number": with_claims(jti=5),
    # Not a bearer token (RFC 6750 §2.1)
    "scheme alone": Attack("", scheme="Bearer"),
    "nothing after the scheme": Attack("", scheme="Bearer "),
    "blanks after the scheme": Attack("", scheme="Bearer \t \u00a0 "),
    "no scheme": Attack(token(), scheme=""),
    "empty": Attack("", scheme=""),
    "another scheme": Attack(token(), scheme="Basic "),
    "another scheme with the same beginning": Attack(token(), scheme="BearerX "),
    "tab after the scheme": Attack(token(), scheme="Bearer\t"),
    "colon after the scheme": Attack(token(), scheme="Bearer: "),
    "two headers": Attack(f"{token()}, Bearer {token()}"),
    "two headers, the second of another scheme": Attack(f"{token()}, Basic YTpi"),
    "two headers, the first of another scheme": Attack(f"YTpi, Bearer {token()}", scheme="Basic "),
    "quoted": Attack(f'"{token()}"'),
}


INVALID_CLAIMS: dict[str, tuple[Attack, str]] = {
    "exp a string": (with_claims(exp=str(NOW + DAY)), "RFC 7519 §2 requires a number"),
    "exp a string with blanks": (
        with_claims(exp=f" {NOW + DAY:_} "),
        "only Python reads such a number",
    ),
    "nbf a string": (with_claims(nbf="0"), "RFC 7519 §2 requires a number"),
    "sub with a NUL": (with_claims(sub="ada\0"), "stores and logs can't hold it"),
    "sub with a line break": (with_claims(sub="ada\nroot"), "logs would show two lines"),
    "sub a lone surrogate": (with_claims(sub="\ud800"), "it can't be encoded in UTF-8"),
    "sub of blanks": (with_claims(sub=" "), "it looks like an empty id"),
    "nested claims": (
        with_payload(nested(json.dumps(claims()), 500)),
        "code that walks through the attributes would exceed the recursion limit",
    ),
    "sub too long": (with_claims(sub="a" * 8000), "ids are stored, and are keys of an index"),
}
"""Signed tokens that are refused for their claims, each with an explanation that no test reads."""


class AttackTarget(NamedTuple):
    """The authenticator under attack, and the attacker's issuer."""

    authenticator: JWTAuthenticator
    attacker: Issuer

    def identity_of(self, attack: Attack) -> Identity | None:
        identity = authenticate(self.authenticator, attack.headers(self.attacker.url))
        assert not self.attacker.connections
        return identity

    def accepts(self, valid_token: str) -> bool:
        identity = authenticate(self.authenticator, bearer_headers(valid_token))
        return identity is not None and identity.id == SUBJECT


@pytest.fixture(scope="module")
def attacker() -> Iterator[Issuer]:
    with running(Issuer(ATTACKER)) as attacker:
        yield attacker


@pytest.fixture(scope="module")
def published_keys(attacker: Issuer) -> Iterator[AttackTarget]:
    """Yield an authenticator that fetches published keys."""
    with running(Issuer(*PUBLISHED, *UNUSABLE)) as issuer:
        yield AttackTarget(jwks_authenticator(issuer, issuer=ISSUER), attacker)


@pytest.fixture(scope="module")
def single_key(attacker: Issuer) -> AttackTarget:
    """Return an authenticator with a single public key."""
    return AttackTarget(JWTAuthenticator(RSA.pem, issuer=ISSUER, audience=AUDIENCE), attacker)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_and_a_genuine_token_is_accepted(
    name: str, published_keys: AttackTarget, single_key: AttackTarget
) -> None:
    """Test with fetched keys, and with a single public key that the attacker knows."""
    attack = ATTACKS[name]
    assert published_keys.identity_of(attack) is None
    assert published_keys.accepts(attack.genuine)
    if not attack.by_key_id:
        assert single_key.identity_of(attack) is None
        assert single_key.accepts(token())


@pytest.mark.parametrize("name", INVALID_CLAIMS)
def test_a_signed_token_with_invalid_claims_authenticates_no_caller(
    name: str, single_key: AttackTarget
) -> None:
    assert single_key.identity_of(INVALID_CLAIMS[name][0]) is None


@pytest.mark.parametrize("depth", [900, 1000, 3000])
def test_a_deeply_nested_token_raises_no_error(depth: int, single_key: AttackTarget) -> None:
    """Either result is correct: how deep JSON may be depends on the version of Python."""
    body = json.dumps(claims())
    for parts in ((nested(head(), depth), body), (head(), nested(body, depth))):
        identity = single_key.identity_of(Attack(signed(*parts, RSA.sign)))
        assert identity is None or identity.id == SUBJECT


@pytest.mark.clock
def test_a_token_of_a_megabyte_takes_less_cpu_time_than_parsing(single_key: AttackTarget) -> None:
    huge = token(padding="A" * MEGABYTE)
    payload = huge.split(".")[1]
    refusal_time = cpu_time(lambda: single_key.identity_of(Attack(huge)))
    assert refusal_time < cpu_time(lambda: json.loads(base64.urlsafe_b64decode(f"{payload}==")))


def cpu_time(function: Callable[[], object]) -> float:
    """Return the CPU time of a call in seconds, the least of three."""
    times: list[float] = []
    for _ in range(3):
        started_at = time.thread_time()
        function()
        times.append(time.thread_time() - started_at)
    return min(times)


@pytest.mark.parametrize(
    "attack",
    [
        with_claims(exp=NOW + DAY + 0.5),
        with_claims(exp=10**30),
        with_claims(aud=["another-agent", AUDIENCE]),
        with_claims(nbf=NOW - 0.5, iat=NOW - 0.5),
        with_payload('{"exp": 1, ' + json.dumps(claims())[1:]),
        Attack(signed('{"alg": "none", ' + head()[1:], json.dumps(claims()), RSA.sign)),
        Attack(token(), scheme="Bearer  "),
    ],
    ids=["fraction", "distant", "list", "past", "claim twice", "alg twice", "two blanks"],
)
def test_a_token_that_the_standards_allow_is_accepted(
    attack: Attack, single_key: AttackTarget
) -> None:
    """RFC 7519 §2, §4.1.3, §4 (the last of two equal names counts), RFC 9110 §11.4 (blanks)."""
    identity = single_key.identity_of(attack)
    assert identity
