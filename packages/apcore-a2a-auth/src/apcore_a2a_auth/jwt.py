"""Authentication by JSON Web Tokens (RFC 7519, FR-AUT-001)."""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Any
from urllib.parse import urlsplit

import jwt
from a2a.types import SecurityScheme
from apcore import Identity
from apcore_a2a_core import RefusalReason, TokenRefusedError, narrow
from jwt.exceptions import InvalidSubjectError

from .claims import ClaimMapping
from .errors import ConfigurationError
from .files import KeyFile
from .jwks import Jwks, without_secrets
from .keys import MIN_SECRET_SIZES, PUBLIC_KEY_ALGORITHMS, KeySource, VerificationKey, read_key
from .schemes import bearer, open_id_connect

logger = logging.getLogger("apcore_a2a.auth")

KEY_VARIABLE = "APCORE_JWT_SECRET"
"""The environment variable with the key; used if no option gives a key."""
MAX_TOKEN = 16 * 1024
"""Maximum length of a token, in characters."""
MAX_LEEWAY = 3600
"""Maximum accepted clock difference, in seconds."""
TIME_CLAIMS = ("exp", "nbf", "iat")
"""Claims that must be numbers (RFC 7519 §2), although PyJWT accepts strings too."""
ALGORITHMS = PUBLIC_KEY_ALGORITHMS | MIN_SECRET_SIZES.keys()
"""The algorithms that may be configured."""
TOKEN_ERRORS = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""Errors that reading a token may raise, since its sender can put anything into it."""
REASONS: dict[type, RefusalReason] = {
    jwt.InvalidSignatureError: RefusalReason.SIGNATURE,
    jwt.InvalidAlgorithmError: RefusalReason.SIGNATURE,
    jwt.InvalidKeyError: RefusalReason.SIGNATURE,
    jwt.MissingRequiredClaimError: RefusalReason.MISSING_CLAIM,
    jwt.ImmatureSignatureError: RefusalReason.NOT_VALID_YET,
    jwt.ExpiredSignatureError: RefusalReason.EXPIRED,
    jwt.InvalidIssuerError: RefusalReason.WRONG_ISSUER,
    jwt.InvalidAudienceError: RefusalReason.WRONG_AUDIENCE,
    InvalidSubjectError: RefusalReason.NO_IDENTITY,
}
"""Reasons for the errors of PyJWT; a token with any other error is malformed."""


class JWTAuthenticator:
    """An authenticator for signed tokens in `Authorization: Bearer …`.

    Signature, expiry, not-before and audience are always checked; the issuer is checked if given.
    The type of the key, never the token, decides which algorithms are accepted; keys and URLs in
    tokens (`jwk`, `jku`, `x5u`) are ignored (RFC 8725).

    The key is taken from `key`, else from `jwks_url`, else from the discovery document of `issuer`
    if `issuer` is a URL, else from the environment variable `APCORE_JWT_SECRET`.

    Args:
        key: A secret of at least 32 bytes, a public key or certificate in PEM, or the `Path` of a
            file with one, which is reloaded when it changes.
        jwks_url: URL of the issuer's keys (RFC 7517), which are fetched about once a minute.
        issuer: Required issuer (`iss`) of tokens.
        audience: Required audience, or a list: `aud` must have one of them. If None, tokens with
            an audience are refused.
        algorithms: Accepted algorithms; by default all that are safe for the key.
        claim_mapping: Mapping of claims to an identity.
        required_claims: Claims that a token must have; if `exp` is not among them, tokens that
            never expire are accepted.
        leeway: Accepted clock difference, in seconds.
        schemes: More security schemes for the Agent Card, by name; they say how to get tokens.
        namespace: Prefix of the principals, to keep them apart from those of other authenticators.

    Raises:
        ConfigurationError: There is no usable key, or an option is invalid.

    Example:
        ```python
        import asyncio
        import time

        import jwt
        from apcore_a2a_auth import JWTAuthenticator

        secret = "0123456789abcdef0123456789abcdef"
        authenticator = JWTAuthenticator(key=secret, audience="my-agent")
        claims = {"sub": "ada", "aud": "my-agent", "exp": time.time() + 60}
        token = jwt.encode(claims, secret, "HS256")

        identity = asyncio.run(authenticator.authenticate({"authorization": f"Bearer {token}"}))
        print(identity.id)
        #> ada
        ```
    """

    def __init__(
        self,
        key: KeySource | None = None,
        *,
        jwks_url: str | None = None,
        issuer: str | None = None,
        audience: str | Sequence[str] | None = None,
        algorithms: Collection[str] | None = None,
        claim_mapping: ClaimMapping | None = None,
        required_claims: Sequence[str] = ("exp",),
        leeway: float = 60,
        schemes: Mapping[str, SecurityScheme] | None = None,
        namespace: str = "jwt",
    ) -> None:
        if key is not None and jwks_url is not None:
            raise ConfigurationError("Give either key or jwks_url, not both")
        if not 0 <= leeway <= MAX_LEEWAY:
            raise ConfigurationError(f"leeway must be 0 to {MAX_LEEWAY} seconds, not {leeway}")
        if isinstance(required_claims, str):
            raise ConfigurationError("required_claims must be a list of names, not one string")
        self.namespace = namespace
        self._issuer = issuer
        self._audience = audience
        self._claim_mapping = claim_mapping or ClaimMapping()
        self._options: Any = {"require": [*required_claims], "enforce_minimum_key_length": True}
        self._leeway = leeway
        self._schemes = {"bearer": bearer(), **(schemes or {})}
        self._keys, self._algorithms = self._configure_keys(key, jwks_url, algorithms)

    def _configure_keys(
        self, key: KeySource | None, jwks_url: str | None, algorithms: Collection[str] | None
    ) -> tuple[KeyFile[VerificationKey] | VerificationKey | Jwks, frozenset[str]]:
        """Return the source of the keys, and the accepted algorithms."""
        accepted = frozenset(ALGORITHMS if algorithms is None else algorithms)
        if isinstance(algorithms, str) or not accepted or not accepted <= ALGORITHMS:
            names = ", ".join(sorted(ALGORITHMS))
            raise ConfigurationError(f"algorithms must be a list of any of {names}")
        issuer_is_url = (self._issuer or "").lower().startswith(("https://", "http://"))
        if key is None and jwks_url is None and not issuer_is_url:
            key = os.environ.get(KEY_VARIABLE) or None

        def read(source: str | bytes) -> VerificationKey:
            verification_key = read_key(source)
            if algorithms:
                _check_usable(accepted, verification_key.algorithms)
            return verification_key

        if isinstance(key, PathLike):
            return KeyFile(key, lambda content: read(content.rstrip(b"\r\n")), "key"), accepted
        if key is not None:
            return read(key), accepted
        if algorithms:
            _check_usable(accepted, PUBLIC_KEY_ALGORITHMS)
        return self._published_keys(jwks_url), accepted

    def _published_keys(self, jwks_url: str | None) -> Jwks:
        if jwks_url is not None:
            _check_url("jwks_url", jwks_url)
        elif self._issuer is not None:
            _check_url("issuer", self._issuer, "; or give the key itself")
            self._schemes.setdefault("oidc", open_id_connect(self._issuer))
        else:
            raise ConfigurationError(f"Give key, jwks_url or issuer, or set {KEY_VARIABLE}")
        return Jwks(jwks_url, self._issuer)

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        """Return the identity of the token's bearer; None if *headers* have no bearer token.

        Args:
            headers: Headers of the request, with names in lower case.

        Raises:
            TokenRefusedError: The token is invalid, or has no identity.
            KeysUnavailableError: The issuer's keys cannot be fetched, and no recent copy is cached.
        """
        token = bearer_token(headers)
        if token is None:
            return None
        try:
            identity = self._claim_mapping.identity(await self._verified_claims(token))
        except TOKEN_ERRORS as error:
            reasons = (REASONS[kind] for kind in type(error).__mro__ if kind in REASONS)
            # from None: the message of the error may contain parts of the token
            raise TokenRefusedError(next(reasons, RefusalReason.MALFORMED)) from None
        if identity is None:
            raise TokenRefusedError(RefusalReason.NO_IDENTITY)
        return identity

    async def _verified_claims(self, token: str) -> Mapping[str, Any]:
        """Verify the signature of a token and then its claims, and return the claims."""
        if len(token) > MAX_TOKEN:
            raise jwt.DecodeError
        key = await self._find_key(token)
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[*key.algorithms & self._algorithms],
            issuer=self._issuer,
            audience=self._audience,
            leeway=self._leeway,
            options=self._options,
        )
        has_malformed_time = any(isinstance(claims.get(name), str | bool) for name in TIME_CLAIMS)
        if has_malformed_time or not isinstance(claims.get("iss", ""), str):
            raise jwt.InvalidTokenError
        claims = narrow(claims)  # floats such as 3.0 become integers
        return claims

    async def _find_key(self, token: str) -> VerificationKey:
        if isinstance(self._keys, KeyFile):
            return await self._keys.current()
        if not isinstance(self._keys, Jwks):
            return self._keys
        header = jwt.get_unverified_header(token)
        is_accepted = header.get("alg") in self._algorithms
        key = await self._keys.find(header) if is_accepted else None
        if key is None:
            raise jwt.InvalidSignatureError  # the response must not reveal which key ids exist
        return key

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        """Return the security schemes for the Agent Card (FR-AUT-003)."""
        return self._schemes


def _check_url(name: str, text: str, hint: str = "") -> None:
    """Check the URL of keys or of an issuer; warn if it is not https.

    Raises:
        ConfigurationError: It is not an http or https URL; the message shows no password.
    """
    try:
        url = urlsplit(text)
        is_usable = url.scheme in ("https", "http") and url.hostname and url.port != 0
    except ValueError:  # such as a port above 65535
        url, is_usable = urlsplit(""), False
    if not is_usable:
        bare_text = text.rpartition("@")[2].partition("?")[0]
        shown_url = without_secrets(text) if url.netloc else bare_text
        expected = "must begin with https:// and have a host, such as https://idp.example.com"
        raise ConfigurationError(f"{name} {expected}, not {shown_url!r}{hint}")
    if url.scheme == "http":
        message = "%s %s is not https, so anyone on the network path can forge tokens: %s"
        advice, event = "use https:// outside of development", {"event": "keys_without_tls"}
        logger.warning(message, name, without_secrets(text), advice, extra=event)


def _check_usable(algorithms: frozenset[str], usable: Collection[str]) -> None:
    """Raise ConfigurationError unless all *algorithms* are among the *usable* ones."""
    if not algorithms <= frozenset(usable):
        names = ", ".join(sorted(usable))
        raise ConfigurationError(f"algorithms must be among those of the key: {names}")


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the token in `Authorization: Bearer …`, or None if there is none.

    The scheme is case-insensitive (RFC 9110 §11.1).

    Example:
        ```python
        from apcore_a2a_auth.jwt import bearer_token

        print(bearer_token({"authorization": "bearer abc"}))
        #> abc
        ```
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
