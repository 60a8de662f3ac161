"""Checks of hosts and origins, and security headers for our own pages."""

import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Scope

from .auth import headers_of
from .errors import SAFE_METHODS

DEFAULT_PORTS = {"http": 80, "https": 443}
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""The names by which a machine reaches itself, whatever DNS says."""
HOST_HEADER = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/?#@,]+?)\.?)(?::[0-9]*)?", re.ASCII)
NO_ORIGIN = SAFE_METHODS | {"OPTIONS"}
"""Methods that pages of other origins may use: only CORS lets them read the responses."""


class AllowedHosts:
    """The hosts that an agent serves; requests for others are refused.

    If the host name of a page is made to resolve to the agent's address (DNS rebinding), the
    browser takes the agent for the page's own server. Only the `Host` header shows the difference.

    Args:
        allowed: Names of hosts, on any port; `*.example.com` for all names below `example.com`.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        names = {name.strip("[]").lower() for name in allowed}
        self._names = frozenset(names)
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    def accepts(self, scope: Scope) -> bool:
        """Return whether a request names one of these hosts, and only one."""
        header = b",".join([value for name, value in scope["headers"] if name == b"host"])
        host = host_of(header.decode("latin-1"))
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


def is_foreign(scope: Scope, allowed: Collection[str]) -> bool:
    """Return whether an unsafe request comes from a page of another origin.

    Browsers send `Origin` (RFC 6454 §7) with every such request; other clients do not.

    Args:
        scope: The ASGI scope of the request.
        allowed: Allowed origins beside the agent's own; "*" for all.
    """
    if scope["method"] in NO_ORIGIN or b"origin" not in [name for name, _ in scope["headers"]]:
        return False
    headers = headers_of(scope)
    origin = headers["origin"]
    if origin in allowed or "*" in allowed:
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


def protect_page(start: Message) -> None:
    """Add the security headers that an HTML response lacks to its start message."""
    for name, value in start.get("headers", ()):
        if name == b"content-type":
            if value.lower().startswith(b"text/html"):
                headers = MutableHeaders(scope=start)
                for header, text in HEADERS.items():
                    headers.setdefault(header, text)
            return
