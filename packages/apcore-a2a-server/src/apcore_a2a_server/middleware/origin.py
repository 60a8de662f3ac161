"""Protection against pages of other hosts and origins, and security headers for our own pages."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import headers_of
from .errors import SAFE_METHODS, refuse

DEFAULT_PORTS = {"http": 80, "https": 443}
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""The names by which a machine reaches itself, whatever DNS says."""
HOST_HEADER = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/?#@,]+?)\.?)(?::[0-9]*)?", re.ASCII)
WRONG_HOST = "The agent does not serve this Host: add it with --url or --allowed-hosts"


class HostGuard:
    """ASGI middleware that answers 421 to requests for other hosts (RFC 9110 §15.5.20).

    If the host name of a page is made to resolve to the agent's address (DNS rebinding), the
    browser takes the agent for the page's own server. Only the `Host` header shows the difference.

    Args:
        app: The wrapped application.
        allowed: Names of hosts, on any port; `*.example.com` for all names below `example.com`.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str]) -> None:
        self._app = app
        names = {name.strip("[]").lower() for name in allowed}
        self._names = frozenset(names)
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        header = b",".join(value for name, value in scope["headers"] if name == b"host")
        if self._accepts(host_of(header.decode("latin-1"))):
            await self._app(scope, receive, send)
            return
        await refuse(scope, receive, send, 421, WRONG_HOST)

    def _accepts(self, host: str) -> bool:
        return host in self._names or (bool(self._suffixes) and host.endswith(self._suffixes))


def host_of(header: str) -> str:
    """Return the name in a `Host` header in lower case, without its port; "" if it is invalid.

    Example:
        ```python
        from apcore_a2a_server.middleware.origin import host_of

        print(host_of("LocalHost:8000"), host_of("[::1]:8000"), host_of("me@localhost") or "-")
        #> localhost ::1 -
        ```
    """
    parsed = HOST_HEADER.fullmatch(header.lower())
    return (parsed[1] or parsed[2]) if parsed else ""


class OriginGuard:
    """ASGI middleware that answers 403 to unsafe requests from pages of other origins.

    Browsers send `Origin` (RFC 6454 §7) with every such request; other clients do not.

    Args:
        app: The wrapped application.
        allowed: Allowed origins beside the agent's own; "*" for all.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str] = ()) -> None:
        self._app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        is_safe = scope["type"] != "http" or scope["method"] in {*SAFE_METHODS, "OPTIONS"}
        if is_safe or not self._is_foreign(scope):
            await self._app(scope, receive, send)
        else:
            await refuse(scope, receive, send, 403, "This origin may not call the agent")

    def _is_foreign(self, scope: Scope) -> bool:
        if not any(name == b"origin" for name, _ in scope["headers"]):
            return False
        headers = headers_of(scope)
        origin = headers["origin"]
        if origin in self._allowed or "*" in self._allowed:
            return False
        try:
            parsed = urlsplit(origin)
        except ValueError:  # an invalid origin is not the agent's
            return True
        return parsed.netloc != headers.get("host") or parsed.scheme != scope["scheme"]


def origin_of(url: str) -> str:
    """Return the origin of the pages at *url*, as browsers write it (RFC 6454 §6.2).

    Raises:
        ValueError: *url* is not a URL.

    Example:
        ```python
        from apcore_a2a_server.middleware.origin import origin_of

        print(origin_of("HTTPS://Agent.Example.com:443/a/"), origin_of("http://[::1]:8000"))
        #> https://agent.example.com http://[::1]:8000
        ```
    """
    try:
        parsed = urlsplit(url)
        host, port = parsed.hostname or "", parsed.port
    except ValueError as error:
        raise ValueError(f"url must be a URL, not {url!r}") from error
    bracketed = f"[{host}]" if ":" in host else host
    suffix = "" if port in (None, DEFAULT_PORTS.get(parsed.scheme)) else f":{port}"
    return f"{parsed.scheme}://{bracketed}{suffix}"


HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class PageHeaders:
    """ASGI middleware that adds security headers to HTML responses that lack them.

    Args:
        app: The wrapped application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and complete the headers of its response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").lower().startswith("text/html"):
                    for name, value in HEADERS.items():
                        headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
