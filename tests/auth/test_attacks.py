"""Tokens that somebody made up, or made something of: none of them makes anybody known."""

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

from .issuer import MEGABYTE, Issuer, fetching, running
from .tokens import (
    ATTACKER,
    AUDIENCE,
    ED25519,
    FOR_ENCRYPTION,
    FOR_SIGNING,
    GONE,
    ISSUER,
    MISSING,
    P256,
    P384,
    PSS,
    PUBLISHED,
    RSA,
    SECRET,
    SUBJECT,
    UNFIT,
    WEAK,
    KeyPair,
    base64url,
    bearing,
    certificate,
    claims,
    known,
    oct_jwk,
    signed,
    thumbprint,
    token,
    with_hmac,
)
from .tokens import silent as silent

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""How many points P-256 has."""
NOW = int(time.time())
DAY = 24 * 3600
ODD: list[Any] = [None, 0, True, False, [], {}]
EMPTY: list[Any] = [None, [], {}]
GOOD = token()


@dataclass(frozen=True)
class Attack:
    """A token that is not as it should be, and one that is."""

    token: str | Callable[[str], str]
    """Itself, or what makes it of the attacker's address."""
    proper: str = GOOD
    scheme: str = "Bearer "
    by_name: bool = False
    """Whether it is about the names of keys, which a key alone doesn't have."""

    def headers(self, attacker: str) -> dict[str, str]:
        made = self.token if isinstance(self.token, str) else self.token(attacker)
        return {"authorization": self.scheme + made}


def unsigned(alg: Any, sign: Callable[[bytes], bytes] = lambda _: b"") -> Attack:
    return Attack(signed(head(alg=alg), json.dumps(claims()), sign))


def headed(key: KeyPair = RSA, /, **header: Any) -> Attack:
    """Signed by *key*, with another header."""
    return Attack(token(key, header))


def named(key: KeyPair = RSA, /, **header: Any) -> Attack:
    """Signed by *key*, under a name that is not its own."""
    return Attack(token(key, header), by_name=True)


def claiming(**changes: Any) -> Attack:
    """Signed as it should be, with other claims."""
    return Attack(token(**changes))


def paying(body: str | bytes) -> Attack:
    """Signed as it should be, with a payload of these bytes."""
    return Attack(signed(head(), body, RSA.sign))


def spelled(claim: str, text: str) -> Attack:
    """Signed as it should be, with a claim that Python would not write like that."""
    return paying(json.dumps(claims(**{claim: "@"})).replace('"@"', text))


def sealed(key: KeyPair, signature: bytes) -> Attack:
    """With a signature that anybody can write down."""
    first = head(alg=key.alg, kid=key.kid)
    return Attack(signed(first, json.dumps(claims()), lambda _: signature), token(key))


def head(**changes: Any) -> str:
    return json.dumps({"typ": "JWT", "alg": RSA.alg, "kid": RSA.kid, **changes})


def in_der(data: bytes) -> bytes:
    """The signature as it is not in tokens (RFC 7518 §3.4)."""
    signature: bytes = P256.private.sign(data, ECDSA(SHA256()))
    return signature


def deepened(text: str, depth: int) -> str:
    """A JSON object with arrays in each other."""
    return f'{text[:-1]}, "x": {"[" * depth}{"]" * depth}}}'


HEAD, BODY, SIGNATURE = GOOD.split(".")
OTHER_BODY = token(sub="root").split(".")[1]
LAST = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
TWIN = LAST[LAST.index(SIGNATURE[-1]) ^ 1]
"""For the last letter of a signature, with the same bits of it that count."""

ATTACKS: dict[str, Attack] = {
    # No signature (RFC 8725 §2.1)
    **{f"alg {alg!r}": unsigned(alg) for alg in ("none", "None", "NONE", "nOnE", "", " none")},
    **{f"alg {alg!r}": unsigned(alg) for alg in (*ODD, "null", ["none"])},
    "alg none, signed": unsigned("none", RSA.sign),
    "alg missing": headed(alg=MISSING),
    "alg twice, the last none": Attack(
        signed(head()[:-1] + ', "alg": "none"}', json.dumps(claims()), lambda _: b"")
    ),
    "signature stripped": Attack(f"{HEAD}.{BODY}."),
    "signature and its dot stripped": Attack(f"{HEAD}.{BODY}"),
    # Another algorithm than the key is for (RFC 8725 §3.1)
    "hmac with the public key in PEM": Attack(with_hmac(RSA.pem)),
    "hmac with it stripped": Attack(with_hmac(RSA.pem.strip())),
    "hmac with it in DER": Attack(with_hmac(RSA.der)),
    "hmac with it as a JWK": Attack(with_hmac(json.dumps(RSA.jwk).encode())),
    "hmac with nothing": Attack(with_hmac(b"")),
    "hmac with a published secret": Attack(with_hmac(SECRET.encode(), kid="shared")),
    "hmac with a published secret, unnamed": Attack(with_hmac(SECRET.encode(), kid=MISSING)),
    "PS256 for a key for RS256": named(PSS),
    "RS512 for a key for RS256": named(KeyPair(RSA.kid, "RS512", RSA.private)),
    "ES256 for an RSA key": Attack(token(P256, {"kid": RSA.kid})),
    "RS256 for an EC key": named(kid=P256.kid),
    **{f"alg {alg}": headed(alg=alg) for alg in ("rs256", "RS256 ", "RS1", "RSA-OAEP", "dir")},
    **{f"alg {alg} is no more": headed(P256, alg=alg) for alg in ("ES521", "ES256K", "Ed25519")},
    # Another key
    "the key of somebody else": Attack(token(ATTACKER)),
    "the key of somebody else, unnamed": headed(ATTACKER, kid=MISSING),
    "a key that is not published": Attack(token(GONE)),
    "a key that is too short": Attack(token(WEAK)),
    "a key for encryption": Attack(token(FOR_ENCRYPTION)),
    "a key for signing alone": Attack(token(FOR_SIGNING)),
    "kid a path": named(kid="../../../../dev/null"),
    "kid SQL": named(kid="' UNION SELECT 'secret"),
    "kid a command": named(kid="|/bin/true"),
    "kid an address": Attack(lambda at: token(RSA, {"kid": f"{at}/keys"}), by_name=True),
    "kid huge": named(kid=RSA.kid * 1000),
    "kid empty": named(kid=""),
    "kid with a NUL": named(kid=f"{RSA.kid}\0"),
    **{f"kid {kid!r}": headed(kid=kid) for kid in (None, 0, 1.5, True, [RSA.kid], {"kid": 1})},
    # A key that comes along (RFC 8725 §3.10)
    "jwk": headed(ATTACKER, jwk=ATTACKER.jwk),
    "jwk, unnamed": headed(ATTACKER, jwk=ATTACKER.jwk, kid=MISSING),
    "jwk, a secret": Attack(with_hmac(SECRET.encode(), jwk=oct_jwk(), kid="shared")),
    "jku": Attack(lambda at: token(ATTACKER, {"jku": f"{at}/keys"})),
    "jku, unknown kid": Attack(lambda at: token(ATTACKER, {"jku": at, "kid": "new"})),
    "x5u": Attack(lambda at: token(ATTACKER, {"x5u": f"{at}/keys"})),
    "x5c": headed(ATTACKER, x5c=[base64url(ATTACKER.der)]),
    "x5c of a certificate": headed(ATTACKER, x5c=[certificate(ATTACKER).decode()]),
    "x5t": headed(ATTACKER, **{"x5t#S256": thumbprint(ATTACKER.der)}),
    "iss leads to other keys": Attack(lambda at: token(ATTACKER, iss=at)),
    # Extensions that nobody knows (RFC 7515 §4.1.11)
    "crit unknown": headed(crit=["made-up"], **{"made-up": True}),
    "crit of a claim": headed(crit=["exp"], exp=1),
    "crit empty": headed(crit=[]),
    "crit a string": headed(crit="b64", b64=True),
    "crit of what is not there": headed(crit=["b64"]),
    "crit b64": headed(crit=["b64"], b64=False),
    "b64 without crit": headed(b64=False),
    # Signatures that anybody can write down
    "ES256 all zeros": sealed(P256, bytes(64)),
    "ES256 the order of the curve": sealed(P256, ORDER.to_bytes(32) * 2),
    "ES256 zeros in DER": sealed(P256, encode_dss_signature(0, 0)),
    "ES256 in DER": Attack(signed(head(alg="ES256", kid=P256.kid), json.dumps(claims()), in_der)),
    "ES256 empty": sealed(P256, b""),
    "ES384 all zeros": sealed(P384, bytes(96)),
    "EdDSA all zeros": sealed(ED25519, bytes(64)),
    "EdDSA of small order": sealed(ED25519, bytes([1, *bytes(63)])),
    "EdDSA of small order, the other": sealed(
        ED25519, bytes([0xEC, *[0xFF] * 30, 0x7F]) + bytes(32)
    ),
    "RS256 all zeros": sealed(RSA, bytes(256)),
    "RS256 one": sealed(RSA, bytes(255) + b"\1"),
    # Not the bytes that were signed
    "payload of another token": Attack(f"{HEAD}.{OTHER_BODY}.{SIGNATURE}"),
    "header of another token": Attack(f"{base64url(head(typ='at+jwt'))}.{BODY}.{SIGNATURE}"),
    "signature of another token": Attack(f"{HEAD}.{BODY}.{token(sub='root').split('.')[2]}"),
    "signature truncated": Attack(f"{HEAD}.{BODY}.{SIGNATURE[:-4]}"),
    "signature longer": Attack(f"{HEAD}.{BODY}.{SIGNATURE}AAAA"),
    "last letter's twin": Attack(f"{HEAD}.{BODY}.{SIGNATURE[:-1]}{TWIN}"),
    "other letters within the signature": Attack(
        f"{HEAD}.{BODY}.{SIGNATURE[:8]}!!!!{SIGNATURE[8:]}"
    ),
    "one letter too many": Attack(f"{HEAD}.{BODY}.{SIGNATURE}A"),
    "padding in the middle": Attack(f"{HEAD}=.{BODY}.{SIGNATURE}"),
    "line break within": Attack(f"{HEAD}.{BODY[:9]}\n{BODY[9:]}.{SIGNATURE}"),
    "other letters within": Attack(f"{HEAD}.{BODY[:8]}!!!!{BODY[8:]}.{SIGNATURE}"),
    "NUL": Attack(token() + "\0"),
    "lone surrogate": Attack(token() + "\ud800"),
    "letters beyond ASCII": Attack(f"{HEAD}.{BODY}.{SIGNATURE[:-1]}é"),
    # Not three segments
    "one segment": Attack("abc"),
    "dots": Attack(".."),
    "first segment empty": Attack(f".{BODY}.{SIGNATURE}"),
    "a segment more": Attack(f"{token()}.{SIGNATURE}"),
    "five segments (JWE)": Attack(
        f"{base64url(head(alg='RSA-OAEP', enc='A256GCM'))}.{SIGNATURE}.AAAA.{BODY}.AAAA"
    ),
    "JSON serialization": Attack(json.dumps({"protected": HEAD, "payload": BODY})),
    "1 MB": Attack("A" * MEGABYTE),
    "1 MB, signed": Attack(token(padding="A" * MEGABYTE)),
    # Not the JSON it should be
    "header no JSON": Attack(signed("alg", json.dumps(claims()), RSA.sign)),
    "header an array": Attack(signed(f"[{head()}]", json.dumps(claims()), RSA.sign)),
    **{f"payload {body!r}": paying(body) for body in ("", "[]", '"ada"', "1", "null", "{", "{}{}")},
    "payload not UTF-8": paying(json.dumps(claims()).encode()[:-1] + b', "x": "\xff\xfe"}'),
    "payload a number too long": paying(json.dumps(claims())[:-1] + f', "x": {"1" * 5000}}}'),
    # Claims (RFC 7519 §4.1)
    "iss of another": claiming(iss="https://idp.example.com/realms/two"),
    "iss with a slash more": claiming(iss=f"{ISSUER}/"),
    "iss in capitals": claiming(iss=ISSUER.upper()),
    "iss missing": claiming(iss=MISSING),
    "iss a list": paying(json.dumps(claims(iss=[ISSUER]))),
    "aud of another": claiming(aud="another-agent"),
    "aud with ours in it": claiming(aud=f"{AUDIENCE} another-agent"),
    "aud a list without ours": claiming(aud=["another-agent", "a-third"]),
    "aud a list with a number": claiming(aud=[AUDIENCE, 5]),
    "aud an object": claiming(aud={AUDIENCE: AUDIENCE}),
    **{f"aud {aud!r}": claiming(aud=aud) for aud in (*ODD, "")},
    "aud missing": claiming(aud=MISSING),
    "expired": claiming(exp=NOW - 120),
    "expired long ago": claiming(exp=1),
    "exp missing": claiming(exp=MISSING),
    "exp twice, the last long ago": paying(json.dumps(claims())[:-1] + ', "exp": 1}'),
    **{f"exp {exp!r}": claiming(exp=exp) for exp in (*ODD, -1, -1e300)},
    **{f"exp {exp!r}": claiming(exp=exp) for exp in ("", "never", "1e400", "Infinity")},
    **{f"exp {text}": spelled("exp", text) for text in ("1e400", "-1e400", "Infinity", "NaN")},
    "not yet valid": claiming(nbf=NOW + DAY),
    **{f"nbf {nbf!r}": claiming(nbf=nbf) for nbf in (*EMPTY, "later", 1e308)},
    "nbf 1e400": spelled("nbf", "1e400"),
    "issued in the future": claiming(iat=NOW + DAY),
    **{f"iat {iat!r}": claiming(iat=iat) for iat in (*EMPTY, "today", 1e308)},
    "sub missing": claiming(sub=MISSING),
    **{f"sub {sub!r}": claiming(sub=sub) for sub in (*ODD, "", 5, [SUBJECT])},
    "jti a number": claiming(jti=5),
    # Not a bearer token (RFC 6750 §2.1)
    "scheme alone": Attack("", scheme="Bearer"),
    "nothing after the scheme": Attack("", scheme="Bearer "),
    "blanks after the scheme": Attack("", scheme="Bearer \t \u00a0 "),
    "no scheme": Attack(token(), scheme=""),
    "empty": Attack("", scheme=""),
    "another scheme": Attack(token(), scheme="Basic "),
    "another scheme that begins alike": Attack(token(), scheme="BearerX "),
    "tab after the scheme": Attack(token(), scheme="Bearer\t"),
    "colon after the scheme": Attack(token(), scheme="Bearer: "),
    "two headers": Attack(f"{token()}, Bearer {token()}"),
    "two headers, the second of another scheme": Attack(f"{token()}, Basic YTpi"),
    "two headers, the first of another scheme": Attack(f"YTpi, Bearer {token()}", scheme="Basic "),
    "quoted": Attack(f'"{token()}"'),
}


SHOULD_BE_REFUSED: dict[str, tuple[Attack, str]] = {
    "exp a string": (claiming(exp=str(NOW + DAY)), "RFC 7519 §2 has a number there"),
    "exp a string with blanks": (
        claiming(exp=f" {NOW + DAY:_} "),
        "Python reads that, and no other",
    ),
    "nbf a string": (claiming(nbf="0"), "RFC 7519 §2 has a number there"),
    "sub with a NUL": (claiming(sub="ada\0"), "stores and logs can't have it"),
    "sub with a line break": (claiming(sub="ada\nroot"), "logs show two lines"),
    "sub a lone surrogate": (claiming(sub="\ud800"), "it has no UTF-8"),
    "sub of blanks": (claiming(sub=" "), "it can't be told from an empty one"),
    "claims in each other": (
        paying(deepened(json.dumps(claims()), 500)),
        "who goes through the attributes of an identity goes too deep",
    ),
    "sub too long": (claiming(sub="a" * 8000), "ids are kept, and a key of an index"),
}


class Stage(NamedTuple):
    """An authenticator, and somebody whom it should not get to know."""

    authenticator: JWTAuthenticator
    attacker: Issuer

    def known(self, attack: Attack) -> Identity | None:
        found = known(self.authenticator, attack.headers(self.attacker.url))
        assert not self.attacker.connections
        return found

    def knows(self, good: str) -> bool:
        identity = known(self.authenticator, bearing(good))
        return identity is not None and identity.id == SUBJECT


@pytest.fixture(scope="module")
def attacker() -> Iterator[Issuer]:
    with running(Issuer(ATTACKER)) as attacker:
        yield attacker


@pytest.fixture(scope="module")
def published(attacker: Issuer) -> Iterator[Stage]:
    """Keys are fetched."""
    with running(Issuer(*PUBLISHED, *UNFIT)) as issuer:
        yield Stage(fetching(issuer, issuer=ISSUER), attacker)


@pytest.fixture(scope="module")
def given(attacker: Issuer) -> Stage:
    """There is one key, and only it."""
    return Stage(JWTAuthenticator(RSA.pem, issuer=ISSUER, audience=AUDIENCE), attacker)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_forged_token_is_refused_and_its_proper_twin_is_not(
    name: str, published: Stage, given: Stage
) -> None:
    """With keys that are fetched, and with one public key that the attacker has, too."""
    attack = ATTACKS[name]
    assert published.known(attack) is None
    assert published.knows(attack.proper)
    if not attack.by_name:
        assert given.known(attack) is None
        assert given.knows(token())


@pytest.mark.parametrize("name", SHOULD_BE_REFUSED)
def test_what_is_signed_and_still_no_good_makes_nobody_known(name: str, given: Stage) -> None:
    assert given.known(SHOULD_BE_REFUSED[name][0]) is None


@pytest.mark.parametrize("depth", [900, 1000, 3000])
def test_a_token_that_is_nested_deep_is_answered(depth: int, given: Stage) -> None:
    """How deep JSON may be depends on Python; nothing is raised in any case."""
    body = json.dumps(claims())
    for parts in ((deepened(head(), depth), body), (head(), deepened(body, depth))):
        identity = given.known(Attack(signed(*parts, RSA.sign)))
        assert identity is None or identity.id == SUBJECT


def test_a_token_of_a_megabyte_is_refused_without_being_read(given: Stage) -> None:
    huge = Attack(token(padding="A" * MEGABYTE))
    assert min(timed(given.known, huge) for _ in range(3)) < 0.02


def timed(ask: Callable[[Attack], object], attack: Attack) -> float:
    begin = time.thread_time()
    ask(attack)
    return time.thread_time() - begin


@pytest.mark.parametrize(
    "attack",
    [
        claiming(exp=NOW + DAY + 0.5),
        claiming(exp=10**30),
        claiming(aud=["another-agent", AUDIENCE]),
        claiming(nbf=NOW - 0.5, iat=NOW - 0.5),
        paying('{"exp": 1, ' + json.dumps(claims())[1:]),
        Attack(signed('{"alg": "none", ' + head()[1:], json.dumps(claims()), RSA.sign)),
        Attack(token(), scheme="Bearer  "),
    ],
    ids=["fraction", "far", "list", "past", "claim twice", "alg twice", "two blanks"],
)
def test_what_the_standards_allow_is_no_attack(attack: Attack, given: Stage) -> None:
    """RFC 7519 §2, §4.1.3, §4 (the last of two names is taken), RFC 9110 §11.4 (blanks)."""
    identity = given.known(attack)
    assert identity
