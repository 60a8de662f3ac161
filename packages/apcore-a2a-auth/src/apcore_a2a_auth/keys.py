"""Keys that check signatures, each with the algorithms that are safe with it (RFC 8725 §3.1)."""

import os
from base64 import b64decode
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import InvalidKeyError, PyJWK, get_algorithm_by_name

from .errors import ConfigurationError

Source: TypeAlias = str | bytes | PathLike[str]

RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
HMAC = {"HS256": 32, "HS384": 48, "HS512": 64}
"""The shortest secret that each may have, in bytes (RFC 7518 §3.2)."""
PUBLIC = RSA | {"ES256", "ES384", "ES512", "ES256K", "EdDSA"}
"""The algorithms for keys that may be published."""
CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}
MIN_RSA_BITS = 2048
MAX_RSA_BITS = 8192
"""A longer one takes milliseconds a token (RFC 7518 §3.3 has the lower bound)."""
SECRET_MEMBERS = frozenset({"d", "p", "q", "k"})
"""Of a JSON Web Key; whoever reads the set could sign with one that has them."""


class VerificationKey(NamedTuple):
    """A key, and the algorithms that a token may be signed with it by."""

    key: Any
    algorithms: frozenset[str]

    def __repr__(self) -> str:
        return f"VerificationKey({', '.join(sorted(self.algorithms))})"


def read_key(source: Source) -> VerificationKey:
    """The key in *source*: a secret, or a public key or certificate in PEM; a path is read.

    Raises:
        ConfigurationError: It can't be read, is a private key, or is too weak.
    """
    data = _content(Path(source)) if isinstance(source, PathLike) else _encoded(source)
    if not data.lstrip().startswith(b"-----BEGIN"):
        return _secret(data)
    if b"PRIVATE KEY-----" in data:
        raise ConfigurationError("This is a private key; tokens are checked with the public one")
    try:
        key: object
        if b"BEGIN CERTIFICATE" in data:
            key = x509.load_pem_x509_certificate(data).public_key()
        else:
            key = load_pem_public_key(data)
    except ValueError:
        raise ConfigurationError("The key is no public key or certificate in PEM") from None
    algorithms = algorithms_of(key)
    if not algorithms:
        raise ConfigurationError(
            f"The key can't check tokens: RSA with {MIN_RSA_BITS} to {MAX_RSA_BITS} bits, "
            "EC (P-256, P-384, P-521, secp256k1), Ed25519 and Ed448 can"
        )
    return VerificationKey(key, algorithms)


def algorithms_of(key: object) -> frozenset[str]:
    """The algorithms for a public key; none when it is too weak, or of no use for tokens."""
    if isinstance(key, rsa.RSAPublicKey):
        return RSA if MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS else frozenset()
    if isinstance(key, ec.EllipticCurvePublicKey):
        known = CURVES.get(key.curve.name)
        return frozenset({known} if known else ())
    is_edwards = isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey)
    return frozenset({"EdDSA"} if is_edwards else ())


def key_of_jwk(jwk: dict[str, Any]) -> VerificationKey | None:
    """The key in a JSON Web Key (RFC 7517); None for one that checks no signatures of others.

    A secret or private one is none either: whoever can read the set could sign with it.
    """
    try:
        if jwk.get("use", "sig") != "sig" or "verify" not in (jwk.get("key_ops") or ["verify"]):
            return None
        if jwk.keys() & SECRET_MEMBERS:
            return None
        key = PyJWK(jwk, "EdDSA" if jwk["kty"] == "OKP" else None).key
        named = frozenset({jwk["alg"]} if "alg" in jwk else PUBLIC)
    except Exception:  # a set holds whatever its issuer likes; a broken key is none
        return None
    return VerificationKey(key, algorithms_of(key) & named)


def _encoded(text: str | bytes) -> bytes:
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise ConfigurationError("The key is not valid UTF-8") from None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigurationError(f"Can't read the key in {path}: {error.strerror}") from None


def _secret(data: bytes) -> VerificationKey:
    fitting = frozenset(name for name, size in HMAC.items() if len(data) >= size)
    if not fitting:
        raise ConfigurationError(
            f"The secret has {len(data)} bytes, and a safe one has {HMAC['HS256']} or more "
            "(RFC 7518 §3.2): openssl rand -base64 48"
        )
    if any(map(_is_public, (data, data.strip(), _decoded(data)))):
        raise ConfigurationError("This is a public key, not a secret: give it in PEM")
    if data.startswith((b"https://", b"http://")) or os.path.exists(data):
        raise ConfigurationError("This is where a key is, not a secret: give a Path, or jwks_url")
    return VerificationKey(data, fitting)


def _decoded(data: bytes) -> bytes:
    """Decode base64, in which identity providers show their public keys; else return *data*."""
    try:
        return b64decode(data) or data
    except ValueError:
        return data


def _is_public(data: bytes) -> bool:
    """Return whether PyJWT knows a public key in *data*: PEM, DER, OpenSSH or JSON."""
    try:
        get_algorithm_by_name("HS256").prepare_key(data)
    except InvalidKeyError:
        return True
    return False
