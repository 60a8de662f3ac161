"""Credentials, and where they go.

They go to the agent's own address and to the address that its card names, never elsewhere,
and into no representation, log line or error.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx

from .errors import A2AError, A2AProtocolError, is_object

if TYPE_CHECKING:
    from .cards import AgentCard  # imported when there is a card

Flow: TypeAlias = Generator[httpx.Request, httpx.Response, None]
AsyncFlow: TypeAlias = AsyncGenerator[httpx.Request, httpx.Response]
TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
Credentials: TypeAlias = str | TokenSource | httpx.Auth
"""`"Bearer …"`, what gives a fresh token for each request, an `APIKey`, or any `httpx.Auth`."""


NOT_FOR_KEYS = ("", "a2a-version", "connection", "content-length", "host", "transfer-encoding")


class Token(httpx.Auth):
    """An `Authorization` header; a token without its scheme is a bearer token (RFC 6750)."""

    def __init__(self, source: str | TokenSource) -> None:
        self._source = source
        if isinstance(source, str):
            checked(source)

    def sync_auth_flow(self, request: httpx.Request) -> Flow:
        token = self._source if isinstance(self._source, str) else self._source()
        if isawaitable(token):
            getattr(token, "close", str)()
            raise A2AError("SyncA2AClient can't await a token: pass a function that is not async")
        yield authorized(request, token)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncFlow:
        token = self._source if isinstance(self._source, str) else self._source()
        yield authorized(request, await token if isawaitable(token) else token)


class APIKey(httpx.Auth):
    """An API key, put where the agent's card wants it; else into the header `X-API-Key`.

    Example:
        ```python
        from apcore_a2a_client import A2AClient, APIKey

        client = A2AClient("https://agent.example.com", auth=APIKey("secret"))
        ```
    """

    def __init__(self, key: str) -> None:
        self._key = checked(key)
        self._location, self._name = "header", "X-API-Key"

    def copy(self) -> APIKey:
        """The same key, for another agent."""
        return APIKey(self._key)

    def place(self, card: AgentCard) -> None:
        """Put the key where *card* wants it: by a scheme that is required before others."""
        schemes = [known.get("schemes") for known in card.security_requirements]
        required = [name for known in schemes if is_object(known) for name in known]
        ordered = sorted(card.security_schemes.items(), key=lambda item: item[0] not in required)
        for _, scheme in ordered:
            if scheme.type == "apiKey":
                self._location, self._name = scheme.location, scheme.name
                break
        if self._location == "header" and self._name.lower() in NOT_FOR_KEYS:
            raise A2AProtocolError(f"No key can stand in the header {self._name!r}")

    def auth_flow(self, request: httpx.Request) -> Flow:
        name = self._name
        if self._location == "query":
            request.url = _MaskedURL(request.url.copy_set_param(name, self._key))
        elif self._location == "cookie":
            cookies = [request.headers.get("cookie"), f"{name}={self._key}"]
            request.headers["cookie"] = "; ".join(filter(None, cookies))
        else:
            request.headers[name] = self._key
        yield request


class _MaskedURL(httpx.URL):
    """A URL with a key in its query, which httpx would log."""

    def __str__(self) -> str:
        return str(httpx.URL(self).copy_with(query=None)) + "?…"

    __repr__ = __str__


def authorized(request: httpx.Request, token: Any) -> httpx.Request:
    """*request* with *token* in its `Authorization` header.

    Raises:
        ValueError: It is no text, or no header can have it.
    """
    if not isinstance(token, str):
        raise ValueError("The function for tokens gave none")
    request.headers["authorization"] = (
        checked(token) if " " in token else f"Bearer {checked(token)}"
    )
    return request


def checked(secret: str, what: str = "credentials") -> str:
    """*secret*, if it can stand in a header (RFC 9110 §5.5).

    Raises:
        ValueError: It can't; the message does not show it.
    """
    if not (secret.isascii() and secret.isprintable() and secret.strip() == secret and secret):
        raise ValueError(f"The {what} would be empty, or have characters that no header can have")
    return secret


def auth_of(credentials: Credentials | None) -> httpx.Auth | None:
    """What httpx makes of *credentials*.

    Raises:
        TypeError: They are nothing of the kind.
        ValueError: No header can have them.
    """
    if isinstance(credentials, APIKey):
        return credentials.copy()
    if credentials is None or isinstance(credentials, httpx.Auth):
        return credentials
    if isinstance(credentials, str) or callable(credentials):
        return Token(credentials)
    kind = type(credentials).__name__
    raise TypeError(f"auth takes a str, a function, an APIKey or an httpx.Auth, not {kind}")
