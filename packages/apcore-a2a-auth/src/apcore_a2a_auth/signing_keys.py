"""Private keys and secrets for signing, and the public keys that others verify with."""

import json
from base64 import urlsafe_b64encode
from functools import lru_cache
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any

from apcore_a2a_core.data import Json
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt import get_algorithm_by_name
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from .errors import ConfigurationError
from .keys import MAX_RSA_BITS, MIN_RSA_BITS, RSA, KeySource, algorithms_of, encode, read_key

THUMBPRINT_MEMBERS = ("crv", "e", "kty", "n", "x", "y")
"""Members of a public key that its thumbprint covers (RFC 7638 §3.2, RFC 8037 §2)."""


class SigningKey:
    """A private key or a secret that signs tokens and Agent Cards.

    Args:
        source: A private key in PEM, a secret of at least 32 bytes, or the `Path` of a file.
        key_id: Id of the key (`kid`); by default the thumbprint of the public key (RFC 7638), and
            none for a secret.
        algorithm: The algorithm; by default RS256 for RSA, HS256 for secrets, and the only one for
            other keys.

    Raises:
        ConfigurationError: The key cannot be read, is public, has a type or size that is not
            accepted, or is not for *algorithm*.

    Example:
        ```python
        from apcore_a2a_auth import SigningKey
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        private = generate_private_key(SECP256R1())
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        print(SigningKey(pem, key_id="2026-11"))
        #> <SigningKey 2026-11 for ES256>
        ```
    """

    def __init__(
        self, source: KeySource, *, key_id: str | None = None, algorithm: str | None = None
    ) -> None:
        content = read_source(source)
        algorithms: frozenset[str]
        if b"PRIVATE KEY-----" in content:
            self.private = _read_private_key(content)
            algorithms, default_algorithm = algorithms_of(self.private.public_key()), "RS256"
            if not algorithms:
                raise ConfigurationError(
                    f"The private key cannot sign: give an RSA key of {MIN_RSA_BITS} to "
                    f"{MAX_RSA_BITS} bits, or a key for EC (P-256, P-384, P-521, secp256k1), "
                    "Ed25519 or Ed448"
                )
        else:
            verification_key = read_key(content)
            if isinstance(verification_key.key, bytes):
                self.private, algorithms = verification_key.key, verification_key.algorithms
                default_algorithm = "HS256"
            else:
                raise ConfigurationError("This is a public key; give the private key, which signs")
        if default_algorithm not in algorithms:
            (default_algorithm,) = algorithms  # keys other than RSA have only one
        self.algorithm: str = algorithm or default_algorithm
        if self.algorithm not in algorithms:
            names = ", ".join(sorted(algorithms))
            raise ConfigurationError(f"The key signs with {names}, not with {self.algorithm}")
        self._jwk = self._build_public_jwk()
        self.key_id = key_id or self._thumbprint()

    def __repr__(self) -> str:
        return f"<SigningKey {self.key_id or 'without id'} for {self.algorithm}>"

    @property
    def is_secret(self) -> bool:
        """Whether the key is a secret, which also verifies and so can't be published."""
        return isinstance(self.private, bytes)

    @property
    def public_jwk(self) -> Json:
        """The public key as a JSON Web Key (RFC 7517).

        Raises:
            ConfigurationError: The key is a secret.
        """
        if not self._jwk:
            raise ConfigurationError("A secret can't be published: give a private key")
        return {**self._jwk, "kid": self.key_id, "alg": self.algorithm, "use": "sig"}

    def sign(self, data: bytes) -> bytes:
        """Return the signature of *data*."""
        return get_algorithm_by_name(self.algorithm).sign(data, self.private)

    def _build_public_jwk(self) -> Json:
        if isinstance(self.private, bytes):
            return {}
        public: Any = self.private.public_key()
        if self.algorithm in RSA:
            jwk: Json = RSAAlgorithm.to_jwk(public, as_dict=True)
        elif self.algorithm == "EdDSA":
            jwk = OKPAlgorithm.to_jwk(public, as_dict=True)
        else:
            jwk = ECAlgorithm.to_jwk(public, as_dict=True)
        return {name: value for name, value in jwk.items() if name in THUMBPRINT_MEMBERS}

    def _thumbprint(self) -> str:
        if not self._jwk:
            return ""
        canonical = json.dumps(self._jwk, sort_keys=True, separators=(",", ":"))
        return base64url(sha256(canonical.encode()).digest())


@lru_cache(maxsize=16)
def cached_signing_key(content: bytes, key_id: str | None, algorithm: str | None) -> SigningKey:
    """Return the key in *content*, parsed once: parsing an RSA key takes a millisecond."""
    return SigningKey(content, key_id=key_id, algorithm=algorithm)


def read_source(source: KeySource) -> bytes:
    """Return the bytes of a key; newlines at the end of a file are dropped.

    Raises:
        ConfigurationError: The file cannot be read, or the text is not valid UTF-8.
    """
    if not isinstance(source, PathLike):
        return encode(source)
    try:
        return Path(source).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigurationError(f"Cannot read the key in {source}: {error.strerror}") from None


def base64url(data: bytes) -> str:
    """Return *data* in base64url without padding (RFC 7515 §2)."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _read_private_key(content: bytes) -> Any:
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError:
        raise ConfigurationError("The private key is encrypted; decrypt it first") from None
    except Exception:  # cryptography raises several types for input that it cannot parse
        raise ConfigurationError("The key is not a private key in PEM") from None
    kinds = (
        rsa.RSAPrivateKey,
        ec.EllipticCurvePrivateKey,
        ed25519.Ed25519PrivateKey,
        ed448.Ed448PrivateKey,
    )
    if not isinstance(key, kinds):
        raise ConfigurationError("The private key is not for signatures")
    return key
