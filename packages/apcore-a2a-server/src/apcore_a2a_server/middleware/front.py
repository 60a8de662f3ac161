"""The outermost middleware: access log, unhandled exceptions, hosts, origins and page headers."""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apcore_a2a_server.trace_context import Trace, received_trace

from .auth import headers_of
from .errors import SAFE_METHODS, Refusal, is_public, refuse
from .logs import begin_facts, log_request

logger = logging.getLogger("apcore_a2a.middleware")

CLIENT_CLOSED_REQUEST = 499
"""The status in the log if the client disconnected before the response, as in nginx."""
DEFAULT_PORTS = {"http": 80, "https": 443}
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""The names by which a machine reaches itself, whatever DNS says."""
HOST_HEADER = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/?#@,]+?)\.?)(?::[0-9]*)?", re.ASCII)
CROSS_ORIGIN_METHODS = SAFE_METHODS | {"OPTIONS"}
"""Methods open to pages of all origins: without CORS, browsers withhold the responses."""
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""The security headers of pages."""
TRACE = "apcore_a2a.trace"
"""Key of the `Trace` in an ASGI scope; the value is None if the client sent no usable trace."""
WRONG_HOST = "The agent does not serve this Host: add it with --url or --allowed-hosts"


class FrontMiddleware:
    """ASGI middleware that every request goes through first, or right after `TenantPaths`.

    - It logs each response; see `log_request`. Reads of *public* paths are logged at DEBUG.
    - It turns unhandled exceptions into a 500 without details.
    - It answers 421 to requests for hosts that are not allowed (RFC 9110 §15.5.20), and 403 to
      unsafe requests from pages of origins that are not allowed.
    - It adds security headers to HTML responses that lack them.
    - It closes WebSockets, which agents do not support.

    Args:
        app: The wrapped application.
        public: Exact paths whose reads are logged at DEBUG, since monitoring reads them often.
        allowed_hosts: Names of hosts that are served; empty for all. See `AllowedHosts`.
        allowed_origins: Allowed origins in addition to the agent's own; "*" for all.
        access_log: Whether requests are logged, and facts about them added to other log records.
        on_response: Function to call with the status of each response.

    Example:
        ```python
        from apcore_a2a_server.middleware import FrontMiddleware
        from starlette.applications import Starlette

        app = FrontMiddleware(Starlette(), allowed_hosts=["agent.example.com"])
        ```
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        public: Collection[str] = (),
        allowed_hosts: Collection[str] = (),
        allowed_origins: Collection[str] = (),
        access_log: bool = True,
        on_response: Callable[[int], None] | None = None,
    ) -> None:
        self._app = app
        self._public = frozenset(public)
        self._hosts = AllowedHosts(allowed_hosts) if allowed_hosts else None
        self._origins = frozenset(allowed_origins)
        self._logs_access = access_log
        self._on_response = on_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""
        if scope["type"] != "http":
            await self._handle_other(scope, receive, send)
            return
        start, status = time.perf_counter(), 0
        level = logging.DEBUG if is_public(scope, self._public) else logging.INFO

        async def tracking_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                protect_page(message)
                if self._on_response is not None:
                    self._on_response(status)
            await send(message)

        scope[TRACE] = trace = _trace_of(scope)
        if self._logs_access:
            trace_facts = {} if trace is None else {"trace_id": trace.trace_id}
            begin_facts(client=str((scope.get("client") or ("",))[0]), **trace_facts)
        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, receive, tracking_send)
            else:
                await refuse(scope, receive, tracking_send, *refusal)
        except Exception:  # the last chance to answer in JSON
            logger.exception("Unhandled exception in a request", extra={"event": "request_failed"})
            if not status:
                await refuse(scope, receive, tracking_send, 500, "Internal error")
        finally:
            if self._logs_access:
                status = status or CLIENT_CLOSED_REQUEST
                log_request(scope["method"], scope["path"], status, start, level)

    def _refusal(self, scope: Scope) -> Refusal | None:
        if self._hosts is not None and not self._hosts.accepts(scope):
            return Refusal(421, WRONG_HOST)
        if has_foreign_origin(scope, self._origins):
            return Refusal(403, "This origin may not call the agent")
        return None

    async def _handle_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)


def _trace_of(scope: Scope) -> Trace | None:
    is_traced = b"traceparent" in dict(scope["headers"])
    # a repeated `traceparent` is joined with commas, and so invalid
    return received_trace(headers_of(scope)) if is_traced else None


class AllowedHosts:
    """The hosts that an agent serves; requests for other hosts are refused.

    If the host name of a page is made to resolve to the agent's address (DNS rebinding), the
    browser takes the agent for the page's own server. Only the `Host` header shows the difference.

    Args:
        host_names: Names of hosts, on any port; `*.example.com` for all names below `example.com`.
    """

    def __init__(self, host_names: Iterable[str]) -> None:
        names = {name.strip("[]").lower() for name in host_names}
        self._names = frozenset(names)
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    def accepts(self, scope: Scope) -> bool:
        """Return whether a request has only one `Host` header, which names one of these hosts."""
        header = b",".join([value for name, value in scope["headers"] if name == b"host"])
        host = host_of(header.decode("latin-1"))
        return host in self._names or (bool(self._suffixes) and host.endswith(self._suffixes))


# cached, since parsing takes 2 percent of a small request; a small cache, since clients can fill it
@lru_cache(maxsize=32)
def host_of(header: str) -> str:
    """Return the name in a `Host` header in lower case, without its port; "" if it is invalid.

    Example:
        ```python
        from apcore_a2a_server.middleware.front import host_of

        print(host_of("LocalHost:8000"), host_of("[::1]:8000"), host_of("me@localhost") or "-")
        #> localhost ::1 -
        ```
    """
    match = HOST_HEADER.fullmatch(header.lower())
    return (match[1] or match[2]) if match else ""


def has_foreign_origin(scope: Scope, allowed_origins: Collection[str]) -> bool:
    """Return whether an unsafe request comes from a page of an origin that is not allowed.

    Browsers send `Origin` (RFC 6454 §7) with every unsafe request; other clients do not.

    Args:
        scope: The ASGI scope of the request.
        allowed_origins: Origins that may call in addition to the agent's own; "*" for all.
    """
    if scope["method"] in CROSS_ORIGIN_METHODS or b"origin" not in dict(scope["headers"]):
        return False
    headers = headers_of(scope)
    origin = headers["origin"]
    if origin in allowed_origins or "*" in allowed_origins:
        return False
    try:
        parsed = urlsplit(origin)
    except ValueError:  # an invalid origin is not the agent's
        return True
    return parsed.netloc != headers.get("host") or parsed.scheme != scope["scheme"]


def origin_of(url: str) -> str:
    """Return the origin of the pages at *url*, as browsers write it (RFC 6454 §6.2).

    Raises:
        ValueError: *url* can't be parsed.

    Example:
        ```python
        from apcore_a2a_server.middleware.front import origin_of

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


def protect_page(start: Message) -> None:
    """Add missing security headers to the start message of an HTML response."""
    for name, value in start.get("headers", ()):
        if name == b"content-type":
            if value.lower().startswith(b"text/html"):
                headers = MutableHeaders(scope=start)
                for header, text in PAGE_HEADERS.items():
                    headers.setdefault(header, text)
            return
