"""Let only authenticated callers through (FR-AUT-001, FR-AUT-003, FR-AUT-004)."""

import logging
from collections.abc import Collection, Mapping
from inspect import isawaitable
from typing import Any

from a2a import types as a2a
from apcore_a2a_core import Authenticator, Identity
from google.protobuf.json_format import MessageToDict
from starlette.authentication import SimpleUser
from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import is_public, refuse
from .logs import log_context


def declared(authenticator: object) -> dict[str, a2a.SecurityScheme]:
    """The security schemes of an authenticator, any one of which will do.

    Without `security_schemes()` it is taken to want bearer tokens.

    Raises:
        ValueError: What it declares is no security scheme.

    Example:
        ```python
        from apcore_a2a_server.middleware.auth import declared

        print([*declared(object())])
        #> ['bearer']
        ```
    """
    declare: Any = getattr(authenticator, "security_schemes", None)
    found: Mapping[str, Any] = BEARER if declare is None else declare()
    return {name: _scheme(scheme) for name, scheme in found.items()}


def for_both(schemes: Mapping[str, a2a.SecurityScheme]) -> dict[str, Any]:
    """The members of a card that has each scheme in the form of 1.0 and of 0.3, in one object."""
    from a2a.compat.v0_3.conversions import to_compat_security_scheme  # 0.3's models take 60 ms

    merged: dict[str, Any] = {}
    for name, scheme in schemes.items():
        old = to_compat_security_scheme(scheme).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        merged[name] = {**MessageToDict(scheme), **old}
    return {"securitySchemes": merged, "security": [{name: []} for name in schemes]}


def challenge(schemes: Mapping[str, a2a.SecurityScheme]) -> str:
    """The scheme that `WWW-Authenticate` asks for: `Bearer`, unless only keys will do."""
    kinds = {scheme.WhichOneof("scheme") for scheme in schemes.values()}
    return "ApiKey" if kinds == {"api_key_security_scheme"} else "Bearer"


def _scheme(scheme: Any) -> a2a.SecurityScheme:
    if isinstance(scheme, a2a.SecurityScheme):
        return scheme
    if not isinstance(scheme, dict) or "type" not in scheme:
        raise ValueError("A security scheme has a type, as OpenAPI has them, or is the SDK's")
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
"""Where the caller is in an ASGI scope."""
RETRY_AFTER = "5"
"""Seconds, when nobody can tell now who calls."""


class Known(SimpleUser):
    """The caller as Starlette has callers, for the SDK's routes and your own: `request.user`.

    Args:
        username: The principal: whom tasks belong to.
    """

    @property
    def identity(self) -> str:
        """The principal."""
        return self.username


class Authentication:
    """ASGI middleware: finds out who calls, before anything reads the body; 401 for nobody.

    Args:
        app: The application behind.
        authenticator: Tells who calls by the headers, which it gets with their names in lower
            case; repeated ones are joined by a comma (RFC 9110 §5.3). When it raises, nobody is
            let through: 503.
        public: Paths, exactly as they are, that anybody may read.

    Example:
        ```python
        from apcore_a2a_server.middleware import Authentication
        from starlette.applications import Starlette


        class Nobody:
            def authenticate(self, headers):
                return None


        app = Authentication(Starlette(), Nobody(), public=["/health"])
        ```
    """

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, *, public: Collection[str] = ()
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._public = frozenset(public)
        self._challenge = challenge(declared(authenticator))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "lifespan" or is_public(scope, self._public):
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        try:
            identity = self._authenticator.authenticate(headers)
            identity = await identity if isawaitable(identity) else identity
            principal = "" if identity is None else principal_of(identity)
        except Exception:  # users' authenticators raise what they like; nobody may pass
            logger.exception("Nobody can be authenticated")
            extra = {"retry-after": RETRY_AFTER}
            await refuse(scope, receive, send, 503, "Nobody can be authenticated now", extra)
            return
        if identity is None:
            extra = {"www-authenticate": self._told(headers)}
            await refuse(scope, receive, send, 401, "Authentication required", extra)
            return
        log_context(principal=principal)
        known = {CALLER: (principal, identity), "user": Known(principal), "auth": identity}
        await self._app({**scope, **known}, receive, send)

    def _told(self, headers: Mapping[str, str]) -> str:
        """The challenge (RFC 9110 §11.6.1), which says when there was a token (RFC 6750 §3.1)."""
        refused = self._challenge == "Bearer" and "authorization" in headers
        return f'{self._challenge} error="invalid_token"' if refused else self._challenge


def headers_of(scope: Scope) -> dict[str, str]:
    """The request's headers by their names in lower case, repeated ones joined."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def caller_of(scope: Scope) -> tuple[str, Identity | None]:
    """The principal and the identity of who calls; "" and None when nothing authenticates."""
    found: tuple[str, Identity | None] = scope.get(CALLER, ("", None))
    return found


def principal_of(identity: Identity) -> str:
    """Whom tasks belong to: the identity's id, within its issuer when it has one.

    No two identities make the same: what divides the two is escaped within the issuer, and so
    it is in an id that has no issuer.

    Raises:
        TypeError: It is no identity, for it has no id, or an issuer that is no text.

    Example:
        ```python
        from apcore import Identity
        from apcore_a2a_server.middleware import principal_of

        print(principal_of(Identity("ada", attrs={"iss": "https://idp.example.com"})))
        #> https://idp.example.com|ada
        ```
    """
    name = getattr(identity, "id", None)
    if not isinstance(name, str) or not name:
        raise TypeError("The authenticator gave something that has no id")
    attrs: Mapping[str, Any] = getattr(identity, "attrs", None) or {}
    issuer = attrs.get("iss")
    if not isinstance(issuer, str | None):
        raise TypeError("The authenticator gave an identity whose issuer is no text")
    if issuer is None:
        return _escaped(name)
    return f"{_escaped(issuer)}|{name}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("|", "%7C")
