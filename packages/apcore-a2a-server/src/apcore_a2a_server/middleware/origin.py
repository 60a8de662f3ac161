"""Keep web pages of other origins from driving the agent, and protect its own."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import headers_of
from .errors import SAFE, refuse

PORTS = {"http": 80, "https": 443}


class OriginGuard:
    """ASGI middleware: 403 for requests that change something and come from a foreign page.

    A browser sends `Origin` (RFC 6454 §7) with every such request; other clients send none.

    Args:
        app: The application behind.
        allowed: The origins that may, beside the agent's own; "*" for all.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str] = ()) -> None:
        self._app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        harmless = scope["type"] != "http" or scope["method"] in {*SAFE, "OPTIONS"}
        if harmless or not self._is_foreign(scope):
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
        except ValueError:  # it is no origin at all
            return True
        return parsed.netloc != headers.get("host") or parsed.scheme != scope["scheme"]


def origin_of(url: str) -> str:
    """The origin of the pages at *url*, as browsers write it (RFC 6454 §6.2).

    Raises:
        ValueError: *url* is no address.

    Example:
        ```python
        from apcore_a2a_server.middleware.origin import origin_of

        print(origin_of("HTTPS://Agent.Example.com:443/a/"), origin_of("http://[::1]:8000"))
        #> https://agent.example.com http://[::1]:8000
        ```
    """
    try:
        parsed = urlsplit(url)
        host, number = parsed.hostname or "", parsed.port
    except ValueError as error:
        raise ValueError(f"url is no address: {url!r}") from error
    name = f"[{host}]" if ":" in host else host
    port = "" if number in (None, PORTS.get(parsed.scheme)) else f":{number}"
    return f"{parsed.scheme}://{name}{port}"


HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class PageHeaders:
    """ASGI middleware: security headers for HTML that does not set them itself.

    Args:
        app: The application behind.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look at its answer."""

        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").lower().startswith("text/html"):
                    for name, value in HEADERS.items():
                        headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, adding if scope["type"] == "http" else send)
