"""Keys for verifying signatures, each with the algorithms that are safe for it (RFC 8725 §3.1)."""

import os
from base64 import b64decode
from os import PathLike
from typing import Any, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import InvalidKeyError, PyJWK, get_algorithm_by_name

from .errors import ConfigurationError

KeySource: TypeAlias = str | bytes | PathLike[str]
"""A secret, or a public or private key; or the path of a file with one."""

RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
MIN_SECRET_SIZES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Minimum size of the secret for each HMAC algorithm, in bytes (RFC 7518 §3.2)."""
PUBLIC_KEY_ALGORITHMS = RSA | {"ES256", "ES384", "ES512", "ES256K", "EdDSA"}
"""Algorithms with a public key."""
CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}
MIN_RSA_BITS = 2048
MAX_RSA_BITS = 8192
"""Sizes of RSA keys that are accepted: smaller ones are unsafe (RFC 7518 §3.3), and larger ones
would block the event loop for milliseconds."""
SECRET_MEMBERS = frozenset({"d", "p", "q", "k"})
"""Members of a JSON Web Key that make it secret: any reader of a key set could sign with it."""


class VerificationKey(NamedTuple):
    """A key, and the signature algorithms that it may be used with."""

    key: Any
    algorithms: frozenset[str]

    def __repr__(self) -> str:
        return f"VerificationKey({', '.join(sorted(self.algorithms))})"


def read_key(source: str | bytes) -> VerificationKey:
    """Return the key in *source*: a secret, or a public key or certificate in PEM.

    Raises:
        ConfigurationError: The key cannot be read, is private, or its type or size is not accepted.
    """
    data = encode(source)
    if not data.lstrip().startswith(b"-----BEGIN"):
        return _read_secret(data)
    if b"PRIVATE KEY-----" in data:
        raise ConfigurationError(
            "This is a private key; give the public key, which verifies signatures"
        )
    try:
        key: object
        if b"BEGIN CERTIFICATE" in data:
            key = x509.load_pem_x509_certificate(data).public_key()
        else:
            key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError("The key is not a public key or certificate in PEM") from None
    algorithms = algorithms_of(key)
    if not algorithms:
        raise ConfigurationError(
            f"The key cannot verify signatures; give an RSA key of {MIN_RSA_BITS} to "
            f"{MAX_RSA_BITS} bits, or a key for EC (P-256, P-384, P-521, secp256k1), "
            "Ed25519 or Ed448"
        )
    return VerificationKey(key, algorithms)


def algorithms_of(key: object) -> frozenset[str]:
    """Return the algorithms for a public key; none if its type or size is not accepted."""
    if isinstance(key, rsa.RSAPublicKey):
        return RSA if MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS else frozenset()
    if isinstance(key, ec.EllipticCurvePublicKey):
        algorithm = CURVES.get(key.curve.name)
        return frozenset({algorithm} if algorithm else ())
    is_edwards = isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey)
    return frozenset({"EdDSA"} if is_edwards else ())


def key_of_jwk(jwk: dict[str, Any]) -> VerificationKey | None:
    """Return the key in a JSON Web Key (RFC 7517), or None if it is not for verifying signatures.

    Secret, private and unreadable keys give None too. A key of a type or size that is not accepted
    is returned without algorithms.
    """
    try:
        if jwk.get("use", "sig") != "sig" or "verify" not in (jwk.get("key_ops") or ["verify"]):
            return None
        if jwk.keys() & SECRET_MEMBERS:
            return None
        key = PyJWK(jwk, "EdDSA" if jwk["kty"] == "OKP" else None).key
        allowed = frozenset({jwk["alg"]} if "alg" in jwk else PUBLIC_KEY_ALGORITHMS)
    except Exception:  # an issuer may publish anything; a broken key must not hide the others
        return None
    return VerificationKey(key, algorithms_of(key) & allowed)


def encode(text: str | bytes) -> bytes:
    """Return the bytes of a key.

    Raises:
        ConfigurationError: It is text that UTF-8 cannot encode.
    """
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise ConfigurationError("The key is not valid UTF-8") from None


def _read_secret(data: bytes) -> VerificationKey:
    algorithms = frozenset(name for name, size in MIN_SECRET_SIZES.items() if len(data) >= size)
    if not algorithms:
        raise ConfigurationError(
            f"The secret has {len(data)} bytes; "
            f"it needs at least {MIN_SECRET_SIZES['HS256']} (RFC 7518 §3.2). "
            "Generate one with: openssl rand -base64 48"
        )
    if any(map(_is_encoded_key, (data, data.strip(), _decode_base64(data)))):
        raise ConfigurationError(
            "This is a key in a format such as base64 or JSON, not a secret; "
            "give a key in PEM, or the secret itself"
        )
    if data.startswith((b"https://", b"http://")) or os.path.exists(data):
        raise ConfigurationError(
            "This is the location of a key, not a secret; give a Path, or jwks_url"
        )
    return VerificationKey(data, algorithms)


def _decode_base64(data: bytes) -> bytes:
    """Decode *data* if it is base64: some identity providers show public keys that way."""
    try:
        return b64decode(data) or data
    except ValueError:
        return data


def _is_encoded_key(data: bytes) -> bool:
    """Return whether *data* is a key in PEM, DER, OpenSSH or JSON: PyJWT refuses it as a secret."""
    try:
        get_algorithm_by_name("HS256").prepare_key(data)
    except InvalidKeyError:
        return True
    return False
