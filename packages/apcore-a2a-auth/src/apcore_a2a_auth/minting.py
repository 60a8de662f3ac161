"""Tokens that tell a remote agent on whose behalf a request is made."""

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from os import PathLike
from typing import Any
from uuid import uuid4

import jwt
from apcore import Identity
from apcore_a2a_core.data import Json
from apcore_a2a_core.values import is_object

from .claims import RESERVED_TYPE, TECHNICAL_CLAIMS, ClaimMapping, is_valid_id
from .errors import ConfigurationError
from .keys import KeySource
from .signing_keys import SigningKey, cached_signing_key, read_source

LIFETIME = 60.0
"""Seconds for which a token is valid by default: it is made for one request."""
MAX_LIFETIME = 3600.0
"""Longest lifetime of a token, in seconds: a token cannot be withdrawn."""


def mint(
    identity: Identity,
    audience: str,
    *,
    key: SigningKey | KeySource,
    issuer: str | None = None,
    lifetime: float = LIFETIME,
    key_id: str | None = None,
    algorithm: str | None = None,
    claim_mapping: ClaimMapping | None = None,
    claims: Mapping[str, Any] | None = None,
) -> str:
    """Return a signed token that tells a remote agent that *identity* is the caller.

    A `JWTAuthenticator` with the same audience, issuer and secret (or the public key) turns the
    token into an identity with the same id, type and roles. Attributes are not passed on,
    except those that `claim_mapping.attrs` names: the remote agent need not know everything about
    a caller.

    Args:
        identity: The caller.
        audience: The agent that the token is for (`aud`); no other agent accepts it.
        key: A `SigningKey`, a private key in PEM, a secret of at least 32 bytes, or the `Path` of
            a file, which is read for each token.
        issuer: Name of this agent (`iss`), which the remote agent can require.
        lifetime: Seconds until the token expires.
        key_id: See `SigningKey`; not allowed if *key* is one.
        algorithm: See `SigningKey`; not allowed if *key* is one.
        claim_mapping: Names of the claims, as the remote agent reads them.
        claims: Further claims, such as `scope`.

    Raises:
        ValueError: The id is not valid in a token, the identity is the system itself, *audience*
            is empty, *lifetime* is out of range, *claims* contains a claim that `mint` reserves, or
            *claim_mapping* puts a claim inside a claim that is not an object.
        ConfigurationError: The key is not usable, or *key_id* or *algorithm* is given together with
            a `SigningKey`.

    Example:
        ```python
        import asyncio

        from apcore import Identity
        from apcore_a2a_auth import JWTAuthenticator, mint

        secret = "0123456789abcdef0123456789abcdef"
        token = mint(Identity("ada", roles=("operator",)), "weather", key=secret)

        remote = JWTAuthenticator(key=secret, audience="weather")
        caller = asyncio.run(remote.authenticate({"authorization": f"Bearer {token}"}))
        print(caller.id, caller.roles)
        #> ada ('operator',)
        ```
    """
    if not is_valid_id(identity.id):
        raise ValueError("The id of the identity must be one line of 1 to 255 characters")
    if identity.type == RESERVED_TYPE:
        raise ValueError("The identity is the system itself, which no token may claim to be")
    if not 0 < lifetime <= MAX_LIFETIME:
        raise ValueError(f"lifetime must be more than 0 and at most {MAX_LIFETIME:.0f} seconds")
    if not audience:
        raise ValueError(
            "audience must not be empty: agents that require no audience would accept the token"
        )
    key = _signing_key(key, key_id, algorithm)
    now = int(time.time())
    technical_claims = {"aud": audience, "iat": now, "exp": now + lifetime, "jti": uuid4().hex}
    payload = _claims_of(identity, claim_mapping or ClaimMapping()) | technical_claims
    if issuer is not None:
        payload["iss"] = issuer
    further_names = (claims or {}).keys()
    if reserved := further_names & (payload.keys() | TECHNICAL_CLAIMS):
        names = ", ".join(sorted(reserved))
        raise ValueError(f"claims must not contain names that mint reserves: {names}")
    headers = {"kid": key.key_id} if key.key_id else None
    return jwt.encode({**(claims or {}), **payload}, key.private, key.algorithm, headers)


class IdentityForwarder:
    """A function that returns headers with a token that identifies the caller.

    See `forward_identity`.

    Args:
        mint: Function that returns a token for an identity.
        keys: The keys, the first of which signs.
    """

    def __init__(
        self, mint: Callable[[Identity], str], keys: Sequence[SigningKey | KeySource]
    ) -> None:
        self._mint, self._keys = mint, keys

    def __call__(self, context: Any) -> dict[str, str]:
        """Return the headers for an apcore Context; none if its caller has no identity."""
        identity = context.identity
        return {} if identity is None else {"authorization": f"Bearer {self._mint(identity)}"}

    def public_keys(self) -> list[Json]:
        """Return the public JSON Web Keys of all keys except secrets; files are read again.

        Raises:
            ConfigurationError: A file can't be read any more, or has no usable key.
        """
        keys = map(_signing_key, self._keys)
        return [key.public_jwk for key in keys if not key.is_secret]


def forward_identity(
    audience: str,
    *,
    key: SigningKey | KeySource | Sequence[SigningKey | KeySource],
    issuer: str | None = None,
    lifetime: float = LIFETIME,
    claim_mapping: ClaimMapping | None = None,
) -> IdentityForwarder:
    """Return a function for `forward=` of `RemoteAgent`: it mints tokens that identify callers.

    It returns no headers for a caller without an identity, so that the request has the credentials
    of this agent itself. A server with that `RemoteAgent` publishes the public keys.

    Args:
        audience: The agent that the tokens are for: its `JWTAuthenticator` has the same audience.
        key: The key; see `mint`. Of a list, the first key signs, and all public keys are published.
        issuer: Name of this agent, which the remote agent can require.
        lifetime: Seconds until a token expires; each request gets a new one.
        claim_mapping: Names of the claims, as the remote agent reads them.

    Raises:
        ValueError: The audience is empty, or the lifetime is too short or too long.
        ConfigurationError: There is no key, or a key is not usable.

    Example:
        ```python
        from apcore import Context, Identity
        from apcore_a2a_auth import forward_identity

        forward = forward_identity("weather", key="0123456789abcdef0123456789abcdef")
        context = Context.create(identity=Identity("ada"))
        print(forward(context)["authorization"][:10])
        #> Bearer eyJ
        ```
    """
    keys = [key] if isinstance(key, SigningKey | str | bytes | PathLike) else [*key]
    if not keys:
        raise ConfigurationError("Give at least one key")
    mint_token = partial(
        mint,
        audience=audience,
        key=keys[0],
        issuer=issuer,
        lifetime=lifetime,
        claim_mapping=claim_mapping,
    )
    mint_token(Identity("check"))  # reports invalid arguments now
    forwarder = IdentityForwarder(mint_token, keys)
    forwarder.public_keys()  # reports unusable keys now
    return forwarder


def _signing_key(
    key: SigningKey | KeySource, key_id: str | None = None, algorithm: str | None = None
) -> SigningKey:
    if isinstance(key, SigningKey):
        if key_id is not None or algorithm is not None:
            raise ConfigurationError("Pass key_id and algorithm to SigningKey, not to mint")
        return key
    return cached_signing_key(read_source(key), key_id, algorithm)


def _claims_of(identity: Identity, mapping: ClaimMapping) -> dict[str, Any]:
    """Return the claims from which *mapping* reads *identity*."""
    claims: dict[str, Any] = {}
    _put(claims, mapping.id, identity.id)
    if identity.type != "user":
        _put(claims, mapping.type, identity.type)
    if identity.roles:
        _put(claims, mapping.roles, list(identity.roles))
    for name, path in (mapping.attrs or {}).items():
        if name in identity.attrs:
            # a copy, since another attribute may be put into this one
            _put(claims, path, deepcopy(identity.attrs[name]))
    return claims


def _put(claims: dict[str, Any], path: str, value: Any) -> None:
    """Add a claim at a path with dots, unless there is one already.

    Raises:
        ValueError: A claim on the path is not an object.
    """
    *parents, name = path.split(".")
    for parent in parents:
        claims = claims.setdefault(parent, {})
        if not is_object(claims):
            raise ValueError(f"There can be no claim {path}: the claim {parent} is not an object")
    claims.setdefault(name, value)
