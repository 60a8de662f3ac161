"""Public keys in the formats of libraries and identity providers: none may be used as a secret.

Public keys are not secret, so anyone could sign tokens with them (RFC 8725 §2.1).
"""

import json
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from itertools import count, islice
from pathlib import Path

import pytest
from apcore_a2a_auth import ConfigurationError, JWTAuthenticator, SigningKey
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
    authenticate,
    bearer_headers,
    token,
    with_hmac,
)
from .tokens import no_secrets_logged as no_secrets_logged

P521 = KeyPair("p-521", "ES512", ec.generate_private_key(ec.SECP521R1()))
K256 = KeyPair("secp256k1", "ES256K", ec.generate_private_key(ec.SECP256K1()))


def ssh(key: KeyPair) -> bytes:
    encoded: bytes = key.private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return encoded


def in_json(key: KeyPair) -> bytes:
    return json.dumps(key.jwk).encode()


Form = Callable[[KeyPair], bytes]
FORMS: dict[str, Form] = {
    "base64": lambda key: b64encode(key.der),
    "base64 in lines": lambda key: b"".join(key.pem.splitlines(keepends=True)[1:-1]),
    "base64 in quotes": lambda key: b'"' + b64encode(key.der) + b'"',
    "base64 after a byte order mark": lambda key: b"\xef\xbb\xbf" + b64encode(key.der),
    "base64 of PEM": lambda key: b64encode(key.pem),
    "ssh": ssh,
    "ssh after a blank": lambda key: b" " + ssh(key),
    "JSON": in_json,
    "JSON in base64": lambda key: b64encode(in_json(key)),
    "a set": lambda key: json.dumps({"keys": [key.jwk]}).encode(),
    "DER": lambda key: key.der,
    "PEM in quotes": lambda key: b'"' + key.pem + b'"',
    "PEM after a byte order mark": lambda key: b"\xef\xbb\xbf" + key.pem,
    "PEM after text": lambda key: b"Bag Attributes: none\n" + key.pem,
}
RARE_KEYS = [P521, K256, ED448, WEAK]


def assert_not_used_as_secret(text: bytes) -> None:
    """Check that *text* is refused, or read as a public key and never as a secret."""
    with suppress(ConfigurationError):
        authenticator = JWTAuthenticator(text, audience=AUDIENCE)
        assert authenticate(authenticator, bearer_headers(token()))
        assert not authenticate(authenticator, bearer_headers(with_hmac(text)))


@pytest.mark.parametrize("name", FORMS)
def test_an_rsa_key_is_not_used_as_a_secret(name: str) -> None:
    assert_not_used_as_secret(FORMS[name](RSA))


@pytest.mark.parametrize("key", [P256, P384, ED25519], ids=lambda key: key.kid)
@pytest.mark.parametrize("name", ["base64", "DER", "PEM in quotes"])
def test_an_elliptic_curve_key_is_not_used_as_a_secret(name: str, key: KeyPair) -> None:
    assert_not_used_as_secret(FORMS[name](key))


def test_a_key_in_der_ending_with_whitespace_is_not_used_as_a_secret() -> None:
    keys = (KeyPair("p-256", "ES256", ec.generate_private_key(ec.SECP256R1())) for _ in count())
    ending_in_space = (key.der for key in keys if key.der[-1:].isspace())
    for der in islice(ending_in_space, 20):
        assert_not_used_as_secret(der)


@pytest.mark.parametrize("key", RARE_KEYS, ids=lambda key: key.kid)
def test_a_rare_key_is_not_used_as_a_secret(key: KeyPair) -> None:
    assert_not_used_as_secret(b64encode(key.der))


@pytest.mark.parametrize(
    "text",
    [
        b64encode(RSA.private_pem),
        b64encode(P256.private_pem),
        json.dumps({"kty": "oct", "k": "c2VjcmV0" * 8}).encode(),
    ],
    ids=["an RSA key", "an elliptic curve key", "a symmetric JSON Web Key"],
)
def test_a_refused_private_or_symmetric_key_is_not_called_public(text: bytes) -> None:
    for use in (JWTAuthenticator, SigningKey):
        with pytest.raises(ConfigurationError, match="not a secret") as caught:
            use(text)
        assert "public" not in str(caught.value)


def test_a_url_is_not_used_as_a_secret() -> None:
    with pytest.raises(ConfigurationError):
        JWTAuthenticator("https://idp.example.com/.well-known/jwks.json")


def test_a_file_path_is_not_used_as_a_secret(tmp_path: Path) -> None:
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
def test_a_secret_is_accepted(secret: str) -> None:
    authenticator = JWTAuthenticator(secret, audience=AUDIENCE)
    assert authenticate(authenticator, bearer_headers(with_hmac(secret.encode())))


@pytest.mark.parametrize(
    "secret",
    [b"{" + bytes(range(31)), b"~" + bytes(range(31)), b"where do we begin with all of this today"],
)
def test_a_secret_may_begin_with_a_brace_a_tilde_or_a_word(secret: bytes) -> None:
    assert authenticate(
        JWTAuthenticator(secret, audience=AUDIENCE), bearer_headers(with_hmac(secret))
    )
