"""Lets nobody through who is not known (FR-AUT-001, FR-AUT-004)."""

import logging
from collections.abc import Collection, Mapping
from inspect import isawaitable
from typing import Any

from apcore_a2a_core import Authenticator
from starlette.authentication import BaseUser
from starlette.types import ASGIApp, Receive, Scope, Send

from .answers import is_public, refuse
from .logs import note
from .schemes import challenge, declared

logger = logging.getLogger("apcore_a2a.auth")

CALLER = "apcore_a2a.caller"
"""Where the caller is in an ASGI scope."""
RETRY_AFTER = "5"
"""Seconds, when nobody can tell now who calls."""


class Known(BaseUser):
    """The caller as Starlette has callers, for the SDK's routes and your own: `request.user`.

    Args:
        principal: Whom tasks belong to.
    """

    def __init__(self, principal: str) -> None:
        self._principal = principal

    @property
    def is_authenticated(self) -> bool:
        """Who got here is known."""
        return True

    @property
    def display_name(self) -> str:
        """The principal."""
        return self._principal

    @property
    def identity(self) -> str:
        """The principal."""
        return self._principal


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
        note(principal=principal)
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


def caller_of(scope: Scope) -> tuple[str, Any]:
    """The principal and the identity of who calls; "" and None when nothing authenticates."""
    found: tuple[str, Any] = scope.get(CALLER, ("", None))
    return found


def principal_of(identity: Any) -> str:
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
