"""The outermost middleware: access log, unhandled exceptions, hosts, origins and page headers."""

import logging
import time
from collections.abc import Callable, Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import Refusal, is_public, refuse
from .logs import begin_request, log_request
from .origin import AllowedHosts, is_foreign, protect_page

logger = logging.getLogger("apcore_a2a.guards")

CLIENT_CLOSED_REQUEST = 499
"""The status in the log if the client disconnected before there was one, as in nginx."""
WRONG_HOST = "The agent does not serve this Host: add it with --url or --allowed-hosts"


class FrontMiddleware:
    """ASGI middleware that every request passes first, in one call.

    - It logs each response; see `log_request`. Reads of *public* paths are logged at DEBUG.
    - It turns unhandled exceptions into a 500 without details.
    - It answers 421 to requests for other hosts (RFC 9110 §15.5.20), and 403 to unsafe requests
      from pages of other origins.
    - It adds security headers to HTML responses that lack them.
    - It closes WebSockets, which agents do not support.

    Args:
        app: The wrapped application.
        public: Paths that monitoring reads often.
        allowed_hosts: Names of hosts that are served; empty for all. See `AllowedHosts`.
        allowed_origins: Allowed origins beside the agent's own; "*" for all.
        access_log: Whether each request is logged.
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
        began, status = time.perf_counter(), 0
        level = logging.DEBUG if is_public(scope, self._public) else logging.INFO

        async def tracking_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                protect_page(message)
                if self._on_response is not None:
                    self._on_response(status)
            await send(message)

        if self._logs_access:
            begin_request(str((scope.get("client") or ("",))[0]))
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
                log_request(scope["method"], scope["path"], status, began, level)

    def _refusal(self, scope: Scope) -> Refusal | None:
        if self._hosts is not None and not self._hosts.accepts(scope):
            return Refusal(421, WRONG_HOST)
        if is_foreign(scope, self._origins):
            return Refusal(403, "This origin may not call the agent")
        return None

    async def _handle_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)
