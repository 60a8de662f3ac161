"""Authentication of callers (FR-AUT-001, FR-AUT-003, FR-AUT-004)."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from inspect import isawaitable
from ipaddress import IPv6Address, IPv6Network
from typing import Any, Protocol, TypeAlias

from a2a import types as a2a
from apcore_a2a_core import Authenticator, Identity, RefusalReason, TokenRefusedError
from google.protobuf.json_format import MessageToDict
from starlette.authentication import SimpleUser
from starlette.types import ASGIApp, Receive, Scope, Send

from apcore_a2a_server.errors import RateStorageDownError

from .errors import TENANT, Refusal, is_public, rate_storage_down_refusal, refuse
from .logs import log_context

ClientKey: TypeAlias = Callable[[Mapping[str, str], Identity | None], str | None]
"""Function that returns the name of a client, from request headers and the caller's identity."""


def declared_schemes(authenticator: object) -> dict[str, a2a.SecurityScheme]:
    """Return the security schemes of an authenticator by name; callers must satisfy one of them.

    An authenticator without `security_schemes()` declares a bearer token.

    Raises:
        ValueError: A declared scheme is invalid.

    Example:
        ```python
        from apcore_a2a_server.middleware.auth import declared_schemes

        print([*declared_schemes(object())])
        #> ['bearer']
        ```
    """
    declare: Any = getattr(authenticator, "security_schemes", None)
    schemes: Mapping[str, Any] = BEARER if declare is None else declare()
    return {name: _scheme(scheme) for name, scheme in schemes.items()}


def security_members(schemes: Mapping[str, a2a.SecurityScheme]) -> dict[str, Any]:
    """Return the card's members for *schemes*; each scheme has the members of A2A 0.3 and 1.0."""
    # imported late: the models of 0.3 take 60 ms
    from a2a.compat.v0_3.conversions import to_compat_security_scheme

    merged: dict[str, Any] = {}
    for name, scheme in schemes.items():
        members_03 = to_compat_security_scheme(scheme).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        merged[name] = {**MessageToDict(scheme), **members_03}
    return {"securitySchemes": merged, "security": [{name: []} for name in schemes]}


def challenge_scheme(schemes: Mapping[str, a2a.SecurityScheme]) -> str:
    """Return the scheme for `WWW-Authenticate`: `ApiKey` if all are API keys, else `Bearer`."""
    kinds = {scheme.WhichOneof("scheme") for scheme in schemes.values()}
    return "ApiKey" if kinds == {"api_key_security_scheme"} else "Bearer"


def _scheme(scheme: Any) -> a2a.SecurityScheme:
    if isinstance(scheme, a2a.SecurityScheme):
        return scheme
    if not isinstance(scheme, dict) or "type" not in scheme:
        raise ValueError(
            "A security scheme must be a SecurityScheme of the SDK, or a dict with 'type' and "
            "the other members of an OpenAPI security scheme"
        )
    from a2a.compat.v0_3.conversions import to_core_security_scheme
    from a2a.compat.v0_3.types import SecurityScheme

    return to_core_security_scheme(SecurityScheme.model_validate(scheme))


BEARER = {
    "bearer": a2a.SecurityScheme(
        http_auth_security_scheme=a2a.HTTPAuthSecurityScheme(scheme="bearer")
    )
}


logger = logging.getLogger("apcore_a2a.auth")

CALLER = "apcore_a2a.caller"
"""Key of the caller in an ASGI scope."""
CLIENT = "apcore_a2a.client"
"""Key of the client in an ASGI scope, if a `client_key` has named it."""
ADDRESS_BUCKETS = 2**14
"""Number of counters of refusals, shared by client addresses so that memory stays bounded."""
RETRY_AFTER = "5"
"""Value of the `Retry-After` header when the authenticator fails, in seconds."""


def _credential_header(scheme: a2a.SecurityScheme) -> str:
    """Return the header for the credentials of a scheme, in lower case; "" if they have none."""
    if scheme.WhichOneof("scheme") != "api_key_security_scheme":
        return "authorization"
    key = scheme.api_key_security_scheme
    return key.name.lower() if key.location == "header" else ""


class Limiter(Protocol):
    """The part of a `RateLimiter` that authentication uses."""

    async def count_use(self, *key: str) -> int:
        """Count a use for *key* and return 0; at the limit, only return the seconds to wait."""
        ...


class AuthenticatedUser(SimpleUser):
    """The caller as `request.user` of Starlette, for the SDK's routes and your own.

    Args:
        username: The principal, which owns tasks.
    """

    @property
    def identity(self) -> str:
        """The principal."""
        return self.username


class Authentication:
    """ASGI middleware that authenticates callers before the body is read.

    Requests without valid credentials get 401. If the authenticator says why it refused a token,
    the challenge and the body give that reason (RFC 6750 §3). If the authenticator fails, requests
    get 503.

    An address whose requests are refused too often gets 429 instead of 401. Valid credentials are
    still accepted from it: one client must not lock out others that share its address.

    Args:
        app: The wrapped application.
        authenticator: Determines the caller from the headers, which have names in lower case;
            repeated headers are joined by a comma (RFC 9110 §5.3).
        public: Exact paths that may be read without authentication.
        auth_limiter: Counts refused requests by client address. At the limit, refused requests get
            429.

    Example:
        ```python
        from apcore_a2a_server.middleware import Authentication
        from starlette.applications import Starlette


        class RefuseEveryone:
            def authenticate(self, headers):
                return None


        app = Authentication(Starlette(), RefuseEveryone(), public=["/health"])
        ```
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        *,
        public: Collection[str] = (),
        auth_limiter: Limiter | None = None,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._auth_limiter = auth_limiter
        self._public = frozenset(public)
        schemes = declared_schemes(authenticator)
        self._scheme = challenge_scheme(schemes)
        self._credential_headers = frozenset(map(_credential_header, schemes.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on authenticated requests, and those for public paths; refuse others.

        Anonymous requests for a tenant's public paths are passed on; requests with invalid
        credentials are refused there too.
        """
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        is_open = scope["type"] == "lifespan" or is_public(scope, self._public)
        if is_open and TENANT not in scope:
            await self._app(scope, receive, send)
            return
        headers, address = headers_of(scope), client_address(scope)
        # on public paths, refusals are counted below, after anonymous reads have been passed on
        limiter = None if is_open else self._auth_limiter
        result = await authenticate(self._authenticator, headers, self._scheme, address, limiter)
        is_anonymous = self._credential_headers.isdisjoint(headers)
        if is_open and is_anonymous and result == _unauthenticated(headers, self._scheme):
            # the route of the tenant decides whether anonymous callers may see its card
            await self._app(scope, receive, send)
            return
        if isinstance(result, Refusal):
            # a 503 says nothing about the credentials
            is_counted = is_open and result.status == 401
            limiter = self._auth_limiter if is_counted else None
            await refuse(scope, receive, send, *(await _count_refusal(address, limiter) or result))
            return
        principal, identity = result
        user = AuthenticatedUser(principal)
        members = {CALLER: result, "user": user, "auth": identity}
        await self._app({**scope, **members}, receive, send)


async def authenticate(
    authenticator: Authenticator,
    headers: Mapping[str, str],
    scheme: str,
    address: str,
    auth_limiter: Limiter | None = None,
) -> tuple[str, Identity] | Refusal:
    """Return the principal and the identity of a caller, or the refusal of its request.

    Args:
        authenticator: Determines the caller.
        headers: The headers, or gRPC metadata, with names in lower case.
        scheme: The scheme of `WWW-Authenticate`; see `challenge_scheme`.
        address: The client address, as `network_of` returns it.
        auth_limiter: Counts refused requests by address. At the limit, refused requests get 429.
            None for no limit.
    """
    reason: RefusalReason | None = None
    try:
        namespace, identity = await identify(authenticator, headers)
        principal = "" if identity is None else principal_of(identity, namespace)
    except TokenRefusedError as error:
        principal, identity, reason = "", None, error.reason
    except Exception:  # users' authenticators may raise anything; no request may pass
        logger.exception("The authenticator failed", extra={"event": "authenticator_failed"})
        return Refusal(503, "Authentication is unavailable", {"retry-after": RETRY_AFTER})
    if identity is None:
        limiter_refusal = await _count_refusal(address, auth_limiter)
        return limiter_refusal or _unauthenticated(headers, scheme, reason)
    log_context(principal=principal)
    return principal, identity


async def _count_refusal(address: str, limiter: Limiter | None) -> Refusal | None:
    """Count a refused request of an address.

    Return a 429 if there were too many, a 503 if the request can't be counted, or else None.
    """
    bucket = str(hash(address) % ADDRESS_BUCKETS)
    try:
        seconds = 0 if limiter is None else await limiter.count_use("refused", bucket)
    except RateStorageDownError as error:
        return rate_storage_down_refusal(error)
    if not seconds:
        return None
    headers = {"retry-after": str(seconds)}
    return Refusal(429, "Too many requests with refused credentials", headers)


def _unauthenticated(
    headers: Mapping[str, str], scheme: str, reason: RefusalReason | None = None
) -> Refusal:
    """Return a 401 with a challenge (RFC 9110 §11.6.1); *reason* says why a token was refused.

    The challenge has an error only if the request had a token (RFC 6750 §3). Authenticators
    that return None give no reason, so any `Authorization` counts as a refused token.
    """
    if reason is not None:
        extra = {"event": "token_refused", "reason": reason.value}
        logger.info("Token refused: %s", reason.value, extra=extra)
    message = f"Token refused: {reason.value}" if reason else "Authentication required"
    if scheme == "Bearer" and (reason or "authorization" in headers):
        scheme += ' error="invalid_token"'
        scheme += f', error_description="{message}"' if reason else ""
    return Refusal(401, message, {"www-authenticate": scheme})


async def identify(
    authenticator: Authenticator, headers: Mapping[str, str]
) -> tuple[str, Identity | None]:
    """Return the namespace of a caller's principal, and the caller's identity.

    The identity is None if the caller is refused.

    Raises:
        Exception: Any exception of the authenticator.
    """
    get_namespaced: Any = getattr(authenticator, "namespaced_identity", None)
    if get_namespaced is not None:
        return await get_namespaced(headers) or ("", None)
    result = authenticator.authenticate(headers)
    identity = await result if isawaitable(result) else result
    namespace: object = getattr(authenticator, "namespace", "")
    return namespace if isinstance(namespace, str) else "", identity


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the request's headers with names in lower case and repeated headers joined."""
    pairs = [
        (name.decode("latin-1").lower(), value.decode("latin-1"))
        for name, value in scope["headers"]
    ]
    return joined_headers(pairs)


def joined_headers(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name, with repeated ones joined by a comma (RFC 9110 §5.3).

    >>> joined_headers([("accept", "text/html"), ("host", "a.example"), ("accept", "*/*")])
    {'accept': 'text/html, */*', 'host': 'a.example'}
    """
    headers = dict(pairs)
    if len(headers) < len(pairs):  # few requests repeat a header
        values: dict[str, list[str]] = {}
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        headers = {name: ", ".join(repeated) for name, repeated in values.items()}
    return headers


def caller_of(scope: Scope) -> tuple[str, Identity | None]:
    """Return the principal and the identity of the caller; "" and None without authentication."""
    caller: tuple[str, Identity | None] = scope.get(CALLER, ("", None))
    return caller


class ClientKeys:
    """ASGI middleware that puts the client's name from *client_key* into the scope, for limits.

    Args:
        app: The wrapped application.
        client_key: Names the client; if it returns None, the principal or the address is used.
        public: Exact paths that have no limits.
    """

    def __init__(
        self, app: ASGIApp, client_key: ClientKey, *, public: Collection[str] = ()
    ) -> None:
        self._app = app
        self._client_key = client_key
        self._public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with the name of its client in the scope."""
        if scope["type"] == "http" and not is_public(scope, self._public):
            name = named_client(self._client_key, headers_of(scope), *caller_of(scope))
            scope = {**scope, CLIENT: name}
        await self._app(scope, receive, send)


def named_client(
    client_key: ClientKey, headers: Mapping[str, str], principal: str, identity: Identity | None
) -> str:
    """Return the principal and the client that *client_key* names, joined; "" if it names none.

    No two principals can share a client, whatever the client is called: `principal_of` escapes "%"
    and "|", so no principal contains "%|".

    Raises:
        TypeError: *client_key* returned neither a string nor None.
    """
    key: Any = client_key(headers, identity)
    if not isinstance(key, str | None):
        raise TypeError(f"client_key returned {type(key).__name__}, not str or None")
    return "" if key is None else f"{principal}%|{key}"


def client_of(scope: Scope) -> str:
    """Return the client for limits: from `client_key`, else the principal, else the address."""
    client: str = scope.get(CLIENT, "")
    return client or caller_of(scope)[0] or client_address(scope)


def client_address(scope: Scope) -> str:
    """Return the client's address as the server or its proxy reports it; for IPv6, the network."""
    return network_of(str((scope.get("client") or ("",))[0]))


@lru_cache(maxsize=1024)
def network_of(host: str) -> str:
    """Return the /64 network of an IPv6 address, since one machine may own all of it; else *host*.

    An IPv4-mapped address counts as its IPv4 address.
    """
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((address.packed, 64), strict=False))


def principal_of(identity: Identity, namespace: str = "") -> str:
    """Return the principal that owns the caller's tasks.

    It consists of the authenticator's namespace and the issuer, if there are any, and the id.
    Separators are escaped in each of them, so that different callers have different principals.

    Raises:
        TypeError: The identity has no id, or an issuer that is not a string.

    Example:
        ```python
        from apcore import Identity
        from apcore_a2a_server.middleware import principal_of

        print(principal_of(Identity("ada")), principal_of(Identity("ada"), "apikey"))
        #> ada apikey|ada
        print(principal_of(Identity("ada", attrs={"iss": "https://idp.example.com"}), "jwt"))
        #> jwt|https://idp.example.com|ada
        ```
    """
    name = getattr(identity, "id", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"The authenticator returned {type(identity).__name__} without an id")
    attrs: Mapping[str, Any] = getattr(identity, "attrs", None) or {}
    issuer = attrs.get("iss")
    if not isinstance(issuer, str | None):
        raise TypeError("The authenticator returned an identity whose issuer is not a string")
    if issuer is not None:
        return "|".join(map(_escaped, (namespace, issuer, name)))
    return "|".join(map(_escaped, (namespace, name))) if namespace else _escaped(name)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("|", "%7C")
