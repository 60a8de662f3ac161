"""Public keys in the forms that libraries and identity providers have: none becomes a secret.

Everybody may have it, so that everybody could make tokens with it (RFC 8725 §2.1).
"""

import json
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from itertools import count, islice
from pathlib import Path

import pytest
from apcore_a2a_auth import ConfigurationError, JWTAuthenticator
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from .tokens import (
    AUDIENCE,
    ED448,
    ED25519,
    P256,
    P384,
    RSA,
    WEAK,
    KeyPair,
    bearing,
    known,
    token,
    with_hmac,
)
from .tokens import silent as silent

P521 = KeyPair("p-521", "ES512", ec.generate_private_key(ec.SECP521R1()))
K256 = KeyPair("secp256k1", "ES256K", ec.generate_private_key(ec.SECP256K1()))


def ssh(key: KeyPair) -> bytes:
    found: bytes = key.private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return found


def in_json(key: KeyPair) -> bytes:
    return json.dumps(key.jwk).encode()


Form = Callable[[KeyPair], bytes]
FORMS: dict[str, Form] = {
    "base64": lambda key: b64encode(key.der),
    "base64 in lines": lambda key: b"".join(key.pem.splitlines(keepends=True)[1:-1]),
    "base64 in quotes": lambda key: b'"' + b64encode(key.der) + b'"',
    "base64 after a mark": lambda key: b"\xef\xbb\xbf" + b64encode(key.der),
    "base64 of PEM": lambda key: b64encode(key.pem),
    "ssh": ssh,
    "ssh after a blank": lambda key: b" " + ssh(key),
    "JSON": in_json,
    "JSON in base64": lambda key: b64encode(in_json(key)),
    "a set": lambda key: json.dumps({"keys": [key.jwk]}).encode(),
    "DER": lambda key: key.der,
    "PEM in quotes": lambda key: b'"' + key.pem + b'"',
    "PEM after a mark": lambda key: b"\xef\xbb\xbf" + key.pem,
    "PEM after text": lambda key: b"Bag Attributes: none\n" + key.pem,
}
OF_OTHER_KINDS = [P521, K256, ED448, WEAK]


def assert_no_secret(text: bytes) -> None:
    """It is refused, or understood: then a token that is signed with it as a secret is not."""
    with suppress(ConfigurationError):
        found = JWTAuthenticator(text, audience=AUDIENCE)
        assert known(found, bearing(token()))
        assert not known(found, bearing(with_hmac(text)))


@pytest.mark.parametrize("name", FORMS)
def test_an_rsa_key_is_no_secret(name: str) -> None:
    assert_no_secret(FORMS[name](RSA))


@pytest.mark.parametrize("key", [P256, P384, ED25519], ids=lambda key: key.kid)
@pytest.mark.parametrize("name", ["base64", "DER", "PEM in quotes"])
def test_an_elliptic_key_is_no_secret(name: str, key: KeyPair) -> None:
    assert_no_secret(FORMS[name](key))


def test_a_key_in_der_whose_last_byte_is_a_blank_is_no_secret() -> None:
    keys = (KeyPair("p-256", "ES256", ec.generate_private_key(ec.SECP256R1())) for _ in count())
    ending = (key.der for key in keys if key.der[-1:].isspace())
    for der in islice(ending, 20):
        assert_no_secret(der)


@pytest.mark.parametrize("key", OF_OTHER_KINDS, ids=lambda key: key.kid)
def test_a_key_of_a_rare_kind_is_no_secret(key: KeyPair) -> None:
    assert_no_secret(b64encode(key.der))


def test_an_address_is_no_secret() -> None:
    with pytest.raises(ConfigurationError):
        JWTAuthenticator("https://idp.example.com/.well-known/jwks.json")


def test_the_path_of_a_file_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "public_key_of_the_issuer"
    path.write_bytes(RSA.pem)
    with pytest.raises(ConfigurationError):
        JWTAuthenticator(str(path))


@pytest.mark.parametrize(
    "secret",
    [
        "correct horse battery staple, and then some more",
        "b0r/9wVZ3m2yq1tXc8Qk7uPz+JfLhE5sNd4GaYoTiRw=",
        "/wVZ3m2yq1tXc8Qk7uPz/JfLhE5sNd4GaYoTiRw9k2Qb",
        "4f1c2a9d8e7b6053f1c2a9d8e7b60534f1c2a9d8e7b6053f1c2a9d8e7b60534",
        "$ecret/with:all#the%signs&that(there)are;!",
    ],
)
def test_a_secret_is_one(secret: str) -> None:
    found = JWTAuthenticator(secret, audience=AUDIENCE)
    assert known(found, bearing(with_hmac(secret.encode())))


@pytest.mark.parametrize(
    "secret",
    [b"{" + bytes(range(31)), b"~" + bytes(range(31)), b"where do we begin with all of this today"],
)
def test_a_secret_may_begin_with_anything(secret: bytes) -> None:
    assert known(JWTAuthenticator(secret, audience=AUDIENCE), bearing(with_hmac(secret)))
