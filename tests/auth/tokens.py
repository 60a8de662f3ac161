"""Keys made once, tokens made by hand, and what must not be seen of them."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from apcore import Identity
from apcore_a2a_core import Authenticator
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
"""48 bytes: enough for HS256 and HS384, and not for HS512."""
MISSING: Any = object()
"""For a member that is not there."""
LIFE = 3600
"""Seconds for which a token is good that is not about time."""
HOUR = timedelta(hours=1)
SIGNING = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
"""What the key of a certificate may do that its holder gave to itself."""
PIECE = 8
"""Characters of a token's segment that are too few to tell anything."""

_made: set[str] = {SECRET, SUBJECT}


@dataclass(frozen=True)
class KeyPair:
    """A private key, what its public half is called, and the algorithm that it signs by."""

    kid: str
    alg: str
    private: Any

    @property
    def jwk(self) -> Json:
        """The public half as a JSON Web Key that says all there is to say."""
        kinds: Json = {"RS": RSAAlgorithm, "PS": RSAAlgorithm, "Ed": OKPAlgorithm}
        kind = kinds.get(self.alg[:2], ECAlgorithm)
        known: Json = kind.to_jwk(self.private.public_key(), as_dict=True)
        return known | {"kid": self.kid, "alg": self.alg, "use": "sig", "key_ops": ["verify"]}

    @property
    def pem(self) -> bytes:
        return self._public(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self._public(Encoding.DER)

    @property
    def private_pem(self) -> bytes:
        found: bytes = self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return found

    def _public(self, encoding: Encoding) -> bytes:
        kind = Public.SubjectPublicKeyInfo
        found: bytes = self.private.public_key().public_bytes(encoding, kind)
        return found

    def sign(self, data: bytes) -> bytes:
        found: bytes = get_algorithm_by_name(self.alg).sign(data, self.private)
        return found


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
"""A key of somebody else, under the name of the issuer's."""
GONE = KeyPair("gone", "ES256", ec.generate_private_key(ec.SECP256R1()))
"""A key that nobody publishes."""
PUBLISHED = [RSA, P256, P384, ED25519]


FOR_ENCRYPTION = KeyPair("for-encryption", "ES256", GONE.private)
FOR_SIGNING = KeyPair("for-signing", "ES256", GONE.private)


def oct_jwk(secret: str = SECRET) -> Json:
    return {"kty": "oct", "kid": "shared", "alg": "HS256", "use": "sig", "k": base64url(secret)}


def base64url(data: str | bytes) -> str:
    content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


UNFIT: list[KeyPair | Json] = [
    oct_jwk(),
    WEAK,
    FOR_ENCRYPTION.jwk | {"use": "enc"},
    FOR_SIGNING.jwk | {"key_ops": ["sign"]},
]
"""What may be published as well, and is good for no token."""


def claims(**changes: Any) -> Json:
    """Claims that are all right but for the *changes*, where `MISSING` takes one away."""
    now = int(time.time())
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + LIFE}
    return present(good | changes)


def present(members: Json) -> Json:
    return {name: value for name, value in members.items() if value is not MISSING}


def token(key: KeyPair = RSA, header: Mapping[str, Any] | None = None, /, **changes: Any) -> str:
    """A token that is all right but for the *header* and the *changes* to its claims."""
    head = present({"typ": "JWT", "alg": key.alg, "kid": key.kid, **(header or {})})
    return signed(json.dumps(head), json.dumps(claims(**changes)), key.sign)


def signed(head: str | bytes, body: str | bytes, sign: Callable[[bytes], bytes]) -> str:
    """Whatever bytes as a token."""
    data = f"{base64url(head)}.{base64url(body)}"
    return remembered(f"{data}.{base64url(sign(data.encode()))}")


def remembered(token: str) -> str:
    """*token*, whose pieces must not be seen from now on (but its header, which tells nothing)."""
    _made.update(piece for piece in token.split(".")[1:] if len(piece) > PIECE)
    return token


def with_hmac(secret: bytes, alg: str = "HS256", /, **header: Any) -> str:
    """A token signed with a shared secret."""
    digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[alg]
    head = present({"typ": "JWT", "alg": alg, "kid": RSA.kid, **header})
    return signed(json.dumps(head), json.dumps(claims()), lambda d: hmac.digest(secret, d, digest))


def thumbprint(data: bytes) -> str:
    return base64url(hashlib.sha256(data).digest())


def certificate(key: KeyPair) -> bytes:
    """A certificate in PEM that the holder of *key* gave to itself."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now, public = datetime.now(UTC), key.private.public_key()
    made = x509.CertificateBuilder(name, name, public, x509.random_serial_number())
    made = made.not_valid_before(now - HOUR).not_valid_after(now + HOUR)
    place = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = made.add_extension(place, critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    made = made.add_extension(SIGNING, critical=True)
    digest = None if key.alg == "EdDSA" else SHA256()
    return made.sign(key.private, digest).public_bytes(Encoding.PEM)


def bearing(token: str) -> dict[str, str]:
    """The headers of who has *token*."""
    return {"authorization": f"Bearer {token}"}


def known(authenticator: Authenticator, headers: Mapping[str, str]) -> Identity | None:
    """Whom *authenticator* takes the sender of *headers* for, in a loop of its own."""

    async def ask() -> Any:
        found: Any = authenticator.authenticate(headers)
        return await found

    identity: Identity | None = asyncio.run(ask())
    return identity


@pytest.fixture(autouse=True)
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing of a token, a key or a claim gets into any record of any logger."""
    caplog.set_level(logging.DEBUG)
    yield
    formatter = logging.Formatter("%(message)s %(args)r")  # with the traceback, if there is one
    text = "\n".join(formatter.format(record) for record in caplog.get_records("call"))
    assert not [secret for secret in _made if secret in text]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
