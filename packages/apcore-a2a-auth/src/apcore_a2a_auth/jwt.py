"""Bearer tokens that are JSON Web Tokens (RFC 7519, FR-AUT-001)."""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import jwt
from a2a.types import SecurityScheme
from apcore import Identity
from apcore_a2a_core import narrow

from .claims import ClaimMapping
from .errors import ConfigurationError
from .jwks import Jwks, place_of
from .keys import HMAC, PUBLIC, Source, VerificationKey, read_key
from .schemes import bearer, open_id_connect

logger = logging.getLogger("apcore_a2a.auth")

SECRET = "APCORE_JWT_SECRET"
"""The environment variable that holds the key when no option does."""
MAX_TOKEN = 16 * 1024
"""Characters; whoever sends more sends no token."""
MAX_LEEWAY = 3600
TIMES = ("exp", "nbf", "iat")
"""Claims that are numbers (RFC 7519 §2), which PyJWT takes as text too."""
KNOWN = PUBLIC | HMAC.keys()
"""The algorithms that may be asked for."""
HOSTILE = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""What reading a token may raise, which holds whatever its sender likes."""


class JWTAuthenticator:
    """Knows callers by signed tokens in `Authorization: Bearer …`.

    Signature, expiry and not-before are checked always, issuer and audience when they are given.
    Only algorithms that fit the kind of key are taken, whatever a token says; keys and addresses
    within tokens (`jwk`, `jku`, `x5u`) are never used (RFC 8725).

    The key comes from `key`, else from `jwks_url`, else from the discovery document of `issuer`
    when that has an address, else from the environment variable `APCORE_JWT_SECRET`.

    Args:
        key: A secret of 32 bytes or more, or a public key or certificate in PEM; a `Path` is
            read.
        jwks_url: Where the issuer's keys are (RFC 7517); fetched when needed, again each minute.
        issuer: Who must have issued the tokens: their `iss`, exactly.
        audience: Whom the tokens must be for: one of their `aud`. Without it, tokens that are
            for somebody in particular are refused.
        algorithms: Those that are taken; else all that fit the key.
        claim_mapping: How claims become an identity.
        required_claims: Claims without which a token is refused; without `exp` among them, tokens
            that never expire are taken.
        leeway: How many seconds clocks may differ.
        schemes: More security schemes for the Agent Card, by name, that lead to such tokens.

    Raises:
        ConfigurationError: There is no key, it is too weak, or an option makes no sense.

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
        key: Source | None = None,
        *,
        jwks_url: str | None = None,
        issuer: str | None = None,
        audience: str | Sequence[str] | None = None,
        algorithms: Collection[str] | None = None,
        claim_mapping: ClaimMapping | None = None,
        required_claims: Sequence[str] = ("exp",),
        leeway: float = 60,
        schemes: Mapping[str, SecurityScheme] | None = None,
    ) -> None:
        if key is not None and jwks_url is not None:
            raise ConfigurationError("Give either key or jwks_url, not both")
        if not 0 <= leeway <= MAX_LEEWAY:
            raise ConfigurationError(f"leeway must be from 0 to {MAX_LEEWAY} seconds")
        if isinstance(required_claims, str):
            raise ConfigurationError("required_claims must be a list of names, not one string")
        self._issuer = issuer
        self._audience = audience
        self._claims = claim_mapping or ClaimMapping()
        self._options: Any = {"require": [*required_claims], "enforce_minimum_key_length": True}
        self._leeway = leeway
        self._schemes = {"bearer": bearer(), **(schemes or {})}
        self._keys, self._algorithms = self._source(key, jwks_url, algorithms)

    def _source(
        self, key: Source | None, jwks_url: str | None, algorithms: Collection[str] | None
    ) -> tuple[VerificationKey | Jwks, frozenset[str]]:
        """Where keys come from, and the algorithms that are taken."""
        wanted = frozenset(algorithms or KNOWN)
        if isinstance(algorithms, str) or not wanted <= KNOWN:
            raise ConfigurationError(f"algorithms must be some of {', '.join(sorted(KNOWN))}")
        if key is None and jwks_url is None and not self._is_provider():
            key = os.environ.get(SECRET) or None
        source = self._published(jwks_url) if key is None else read_key(key)
        usable = PUBLIC if isinstance(source, Jwks) else source.algorithms
        if algorithms and not wanted <= usable:
            raise ConfigurationError(f"algorithms: the key takes {', '.join(sorted(usable))}")
        return source, usable & wanted

    def _is_provider(self) -> bool:
        """Whether the issuer has an address, where its keys can be found."""
        return (self._issuer or "").lower().startswith(("https://", "http://"))

    def _published(self, jwks_url: str | None) -> Jwks:
        if jwks_url is None and self._issuer is None:
            raise ConfigurationError(f"Give key, jwks_url or issuer, or set {SECRET}")
        given = jwks_url if jwks_url is not None else self._issuer or ""
        try:
            url = urlsplit(given)
        except ValueError:
            url = urlsplit("")
        if url.scheme not in ("https", "http") or not url.hostname:
            raise ConfigurationError(f"{given!r} must begin with https:// and have a host")
        if url.scheme == "http":
            told = "%s is not https: whoever is on the way can make tokens"
            logger.warning(told, place_of(given))
        if jwks_url is None:
            self._schemes.setdefault("oidc", open_id_connect(self._issuer or ""))
        return Jwks(jwks_url, self._issuer)

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        """The bearer of the token in *headers* (their names in lower case); None for nobody.

        Raises:
            KeysUnavailableError: The issuer's keys can't be had now.
        """
        token = bearer_token(headers)
        if token is None or len(token) > MAX_TOKEN:
            return None
        try:
            claims = await self._verified(token)
            identity = self._claims.identity(claims) if claims is not None else None
        except HOSTILE as error:
            logger.info("Token refused: %s", type(error).__name__)
            return None
        if identity is None:
            logger.info("Token refused: %s", "no such key" if claims is None else "no identity")
        return identity

    async def _verified(self, token: str) -> Mapping[str, Any] | None:
        key = self._keys
        if isinstance(key, Jwks):
            found = await key.find(jwt.get_unverified_header(token))
            if found is None:
                return None
            key = found
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[*key.algorithms & self._algorithms],
            issuer=self._issuer,
            audience=self._audience,
            leeway=self._leeway,
            options=self._options,
        )
        odd = any(isinstance(claims.get(name), str | bool) for name in TIMES)
        if odd or not isinstance(claims.get("iss", ""), str):
            raise jwt.InvalidTokenError
        plain: Mapping[str, Any] = narrow(claims)
        return plain

    def security_schemes(self) -> Mapping[str, SecurityScheme]:
        """What the Agent Card says of it (FR-AUT-003)."""
        return self._schemes


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """The token in an `Authorization` header, whose scheme has no case (RFC 9110 §11.1).

    Example:
        ```python
        from apcore_a2a_auth.jwt import bearer_token

        print(bearer_token({"authorization": "bearer abc"}))
        #> abc
        ```
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
