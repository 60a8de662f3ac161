"""Refusals, and the 500 for exceptions that nothing else caught."""

import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = frozenset({"GET", "HEAD"})


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer with *status* and a `google.rpc.Status` in JSON (A2A 1.0 §11.6)."""
    error: dict[str, Any] = {"code": status, "status": NAMES[status], "message": message}
    response = JSONResponse({"error": {**error, "details": []}}, status, headers)
    await response(scope, receive, send)


def path_of(scope: Scope) -> str:
    """The path within the application, without what it is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def is_public(scope: Scope, public: Collection[str]) -> bool:
    """Whether a request only reads one of the *public* paths, exactly."""
    return scope["method"] in SAFE and path_of(scope) in public


NAMES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "UNAUTHENTICATED",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.INTERNAL_SERVER_ERROR: "INTERNAL",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
}
"""Statuses by the names that gRPC has for them (AIP-193)."""


logger = logging.getLogger("apcore_a2a.guards")


class ErrorMiddleware:
    """ASGI middleware: turn unhandled exceptions into a bare 500.

    Web sockets are refused: an agent has none.

    Args:
        app: The application behind.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:  # the last place before the server's own answer
            logger.exception("A request failed")
            if not begun:
                await refuse(scope, receive, send, 500, "Internal error")
