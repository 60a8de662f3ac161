"""Credentials of requests.

They are sent to the origin of the agent's URL and to the origins in `credentials_for`, never
elsewhere, and appear in no `repr`, log record or error.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from copy import copy
from inspect import isawaitable
from typing import Any, TypeAlias

import httpx

from .cards import AgentCard
from .errors import A2AError, A2AProtocolError, is_object
from .headers import check_header_value

Flow: TypeAlias = Generator[httpx.Request, httpx.Response, None]
AsyncFlow: TypeAlias = AsyncGenerator[httpx.Request, httpx.Response]
TokenSource: TypeAlias = Callable[[], str | Awaitable[str]]
Credentials: TypeAlias = str | TokenSource | httpx.Auth
"""`"Bearer …"`, a function that returns a token, an `APIKey`, or any `httpx.Auth`."""

REFUSED_KEY_HEADERS = (
    "",
    "a2a-version",
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
)
"""Names of headers in which no API key is sent: the empty name, and headers of HTTP or A2A."""


class Token(httpx.Auth):
    """An `Authorization` header; a token without a scheme is a bearer token (RFC 6750)."""

    def __init__(self, source: str | TokenSource) -> None:
        self._source = source
        if isinstance(source, str):
            check_header_value(source)

    def sync_auth_flow(self, request: httpx.Request) -> Flow:
        """Add the token, which must not be awaitable."""
        token = self._source if isinstance(self._source, str) else self._source()
        if isawaitable(token):
            getattr(token, "close", str)()  # avoids the warning about an unawaited coroutine
            raise A2AError("SyncA2AClient can't await a token: pass a function that is not async")
        yield authorize(request, token)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncFlow:
        """Add the token, awaited if needed."""
        token = self._source if isinstance(self._source, str) else self._source()
        yield authorize(request, await token if isawaitable(token) else token)


class APIKey(httpx.Auth):
    """An API key, sent in the header, query parameter or cookie that the agent's card declares.

    If the card declares none, the key is sent in the header `X-API-Key`.

    Example:
        ```python
        from apcore_a2a_client import A2AClient, APIKey

        client = A2AClient("https://agent.example.com", auth=APIKey("secret"))
        ```
    """

    def __init__(self, key: str) -> None:
        self._key = check_header_value(key)
        self._location, self._name = "header", "X-API-Key"

    def use_card(self, card: AgentCard) -> None:
        """Set where the key is sent, as *card* declares; required schemes come first.

        Raises:
            A2AProtocolError: The card declares the key in a reserved header.
        """
        requirements = [entry.get("schemes") for entry in card.security_requirements]
        required = [name for schemes in requirements if is_object(schemes) for name in schemes]
        ordered = sorted(card.security_schemes.items(), key=lambda item: item[0] not in required)
        declared = [(s.location, s.name) for _, s in ordered if s.type == "apiKey"]
        if not declared:
            return  # keep the default, or the location that an earlier card declared
        location, name = declared[0]
        if location not in ("query", "cookie") and name.lower() in REFUSED_KEY_HEADERS:
            raise A2AProtocolError(f"The card declares an API key in the reserved header {name!r}")
        self._location, self._name = location, name

    def auth_flow(self, request: httpx.Request) -> Flow:
        """Add the key to the query, the cookies or the headers."""
        if self._location == "query":
            request.url = _MaskedURL(request.url.copy_set_param(self._name, self._key))
        elif self._location == "cookie":
            cookies = [request.headers.get("cookie"), f"{self._name}={self._key}"]
            request.headers["cookie"] = "; ".join(filter(None, cookies))
        else:
            request.headers[self._name] = self._key
        yield request


class _MaskedURL(httpx.URL):
    """A URL with a key in its query; its text leaves out the query, because httpx logs URLs."""

    def __str__(self) -> str:
        return str(httpx.URL(self).copy_with(query=None)) + "?…"

    __repr__ = __str__


DEFAULT_HEADERS = {"accept", "accept-encoding", "connection", "user-agent"}
"""Headers that every httpx client has; any other header may hold a secret."""


def has_credentials(http: httpx.Client | httpx.AsyncClient) -> bool:
    """Return whether the httpx client *http* may add secrets to requests.

    Cookies with a domain do not count: httpx sends them only to that domain.
    """
    cookies = [cookie for cookie in http.cookies.jar if not cookie.domain]
    headers = {*http.headers} - DEFAULT_HEADERS
    return http.auth is not None or bool(headers or http.params or cookies)


def authorize(request: httpx.Request, token: Any) -> httpx.Request:
    """Add *token* to *request* in the header `Authorization`, and return *request*.

    Raises:
        ValueError: *token* is not a string, or not a valid header value.
    """
    if not isinstance(token, str):
        raise ValueError("The token function must return a string")
    scheme = "" if " " in token else "Bearer "
    request.headers["authorization"] = scheme + check_header_value(token)
    return request


def httpx_auth(credentials: Credentials | None) -> httpx.Auth | None:
    """Return the `httpx.Auth` for *credentials*.

    Raises:
        TypeError: Their type is not supported.
        ValueError: They are not a valid header value.
    """
    if isinstance(credentials, APIKey):
        return copy(credentials)  # each agent's card decides where the key goes
    if credentials is None or isinstance(credentials, httpx.Auth):
        return credentials
    if isinstance(credentials, str) or callable(credentials):
        return Token(credentials)
    type_name = type(credentials).__name__
    raise TypeError(f"auth must be a str, a function, an APIKey or an httpx.Auth, not {type_name}")
