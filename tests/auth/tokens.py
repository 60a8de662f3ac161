"""Key pairs and tokens for the tests, and a check that no secret is logged."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from apcore import Identity
from apcore_a2a_core import Authenticator, TokenRefusedError
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization import PublicFormat as Public
from jwt import get_algorithm_by_name
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

Json = dict[str, Any]
ISSUER = "https://idp.example.com/realms/one"
AUDIENCE = "agent-of-the-tests"
SUBJECT = "ada.lovelace@example.com"
SECRET = "correct horse battery staple, and then some more"
"""Secret of 48 bytes: enough for HS256 and HS384, not for HS512."""
MISSING: Any = object()
"""Marks a member to leave out."""
TOKEN_LIFETIME = 3600
"""Seconds until tokens expire, except in tests about time."""
HOUR = timedelta(hours=1)
SIGNING = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
"""Permitted uses of the key of a self-signed certificate."""
HARMLESS_LENGTH = 8
"""Length up to which a segment of a token reveals nothing, and may be logged."""

_secrets: set[str] = {SECRET, SUBJECT}


@dataclass(frozen=True)
class KeyPair:
    """Private key with its key id and signing algorithm."""

    kid: str
    alg: str
    private: Any

    @property
    def jwk(self) -> Json:
        """Public half as a JSON Web Key, with its id, algorithm, use and operations."""
        kinds: Json = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "Ed": OKPAlgorithm}
        kind = kinds.get(self.alg[:2], ECAlgorithm)
        public_jwk: Json = kind.to_jwk(self.private.public_key(), as_dict=True)
        return public_jwk | {
            "kid": self.kid,
            "alg": self.alg,
            "use": "sig",
            "key_ops": ["verify"],
        }

    @property
    def pem(self) -> bytes:
        return self._public(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self._public(Encoding.DER)

    @property
    def private_pem(self) -> bytes:
        pem: bytes = self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return pem

    def _public(self, encoding: Encoding) -> bytes:
        kind = Public.SubjectPublicKeyInfo
        encoded: bytes = self.private.public_key().public_bytes(encoding, kind)
        return encoded

    def sign(self, data: bytes) -> bytes:
        signature: bytes = get_algorithm_by_name(self.alg).sign(data, self.private)
        return signature


def rsa_key(kid: str, alg: str = "RS256", bits: int = 2048) -> KeyPair:
    return KeyPair(kid, alg, rsa.generate_private_key(65537, bits))


RSA = rsa_key("rsa-2048")
PSS = KeyPair(RSA.kid, "PS256", RSA.private)
P256 = KeyPair("p-256", "ES256", ec.generate_private_key(ec.SECP256R1()))
P384 = KeyPair("p-384", "ES384", ec.generate_private_key(ec.SECP384R1()))
ED25519 = KeyPair("ed25519", "EdDSA", ed25519.Ed25519PrivateKey.generate())
ED448 = KeyPair("ed448", "EdDSA", ed448.Ed448PrivateKey.generate())
WEAK = rsa_key("rsa-1024", bits=1024)
ATTACKER = rsa_key(RSA.kid)
"""Key of an attacker, with the key id of the issuer's key."""
UNPUBLISHED = KeyPair("gone", "ES256", ec.generate_private_key(ec.SECP256R1()))
"""Key that an issuer publishes only if a test adds it."""
PUBLISHED = [RSA, P256, P384, ED25519]


FOR_ENCRYPTION = KeyPair("for-encryption", "ES256", UNPUBLISHED.private)
FOR_SIGNING = KeyPair("for-signing", "ES256", UNPUBLISHED.private)


def oct_jwk(secret: str = SECRET) -> Json:
    return {"kty": "oct", "kid": "shared", "alg": "HS256", "use": "sig", "k": base64url(secret)}


def base64url(data: str | bytes) -> str:
    content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


UNUSABLE: list[KeyPair | Json] = [
    oct_jwk(),
    WEAK,
    FOR_ENCRYPTION.jwk | {"use": "enc"},
    FOR_SIGNING.jwk | {"key_ops": ["sign"]},
]
"""Keys that may be published but verify no token."""


def claims(**changes: Any) -> Json:
    """Return valid claims with *changes*; `MISSING` removes a claim."""
    now = int(time.time())
    valid = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": SUBJECT,
        "iat": now,
        "exp": now + TOKEN_LIFETIME,
    }
    return without_missing(valid | changes)


def without_missing(members: Json) -> Json:
    return {name: value for name, value in members.items() if value is not MISSING}


def token(key: KeyPair = RSA, header: Mapping[str, Any] | None = None, /, **changes: Any) -> str:
    """Return a valid token with *changes* to its claims and the members of *header*."""
    head = without_missing({"typ": "JWT", "alg": key.alg, "kid": key.kid, **(header or {})})
    return signed(json.dumps(head), json.dumps(claims(**changes)), key.sign)


def signed(head: str | bytes, body: str | bytes, sign: Callable[[bytes], bytes]) -> str:
    """Return a token with *head* and *body*, which need not be valid JSON."""
    data = f"{base64url(head)}.{base64url(body)}"
    return tracked(f"{data}.{base64url(sign(data.encode()))}")


def tracked(token: str) -> str:
    """Return *token* and record its segments, which must not be logged (its header may be)."""
    _secrets.update(piece for piece in token.split(".")[1:] if len(piece) > HARMLESS_LENGTH)
    return token


def with_hmac(secret: bytes, alg: str = "HS256", /, **header: Any) -> str:
    """Return a token signed with a shared secret."""
    digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[alg]
    head = without_missing({"typ": "JWT", "alg": alg, "kid": RSA.kid, **header})
    return signed(json.dumps(head), json.dumps(claims()), lambda d: hmac.digest(secret, d, digest))


def thumbprint(data: bytes) -> str:
    return base64url(hashlib.sha256(data).digest())


def certificate(key: KeyPair) -> bytes:
    """Return a self-signed certificate of *key* in PEM."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now, public = datetime.now(UTC), key.private.public_key()
    builder = x509.CertificateBuilder(name, name, public, x509.random_serial_number())
    builder = builder.not_valid_before(now - HOUR).not_valid_after(now + HOUR)
    alternative_name = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = builder.add_extension(alternative_name, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(public), critical=False
    )
    builder = builder.add_extension(SIGNING, critical=True)
    digest = None if key.alg == "EdDSA" else SHA256()
    return builder.sign(key.private, digest).public_bytes(Encoding.PEM)


def bearer_headers(token: str) -> dict[str, str]:
    """Return request headers with *token*."""
    return {"authorization": f"Bearer {token}"}


def authenticate(authenticator: Authenticator, headers: Mapping[str, str]) -> Identity | None:
    """Return the identity of the sender of *headers*, or None if it has none or is refused."""
    with suppress(TokenRefusedError):
        return run_authenticator(authenticator, headers)
    return None


def refusal_reason(authenticator: Authenticator, headers: Mapping[str, str]) -> str:
    """Return the reason why the token in *headers* is refused."""
    with pytest.raises(TokenRefusedError) as caught:
        run_authenticator(authenticator, headers)
    assert str(caught.value) == f"Token refused: {caught.value.reason}"
    assert caught.value.__cause__ is None
    return caught.value.reason.value


def run_authenticator(authenticator: Authenticator, headers: Mapping[str, str]) -> Identity | None:
    """Run *authenticator* in a new event loop, and return its result."""

    async def run() -> Any:
        result: Any = authenticator.authenticate(headers)
        return await result

    identity: Identity | None = asyncio.run(run())
    return identity


@pytest.fixture(autouse=True)
def no_secrets_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no log record has the secret, the subject, or payload or signature of a token."""
    caplog.set_level(logging.DEBUG)
    yield
    formatter = logging.Formatter("%(message)s %(args)r")  # with the traceback, if any
    text = "\n".join(formatter.format(record) for record in caplog.get_records("call"))
    assert not [secret for secret in _secrets if secret in text]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
