"""Error responses of middleware, and the check for requests that only read public paths."""

from collections.abc import Collection, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from apcore_a2a_server.errors import RateStorageDownError

SAFE_METHODS = frozenset({"GET", "HEAD"})
"""Methods that only read (RFC 9110 §9.2.1)."""
TENANT = "apcore_a2a.tenant"
"""Key of the tenant's name in an ASGI scope; `TenantPaths` sets it."""


class Refusal(NamedTuple):
    """A response that refuses a request: HTTP status, message and headers."""

    status: int
    message: str
    headers: Mapping[str, str] = MappingProxyType({})


def rate_storage_down_refusal(error: RateStorageDownError) -> Refusal:
    """Return the refusal of a request that can't be counted towards a rate limit."""
    return Refusal(error.status, error.message, {"retry-after": str(error.retry_after)})


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send an error response with a `google.rpc.Status` in JSON (A2A 1.0 §11.6)."""
    error: dict[str, Any] = {"code": status, "status": GRPC_NAMES[status], "message": message}
    response = JSONResponse({"error": {**error, "details": []}}, status, headers)
    await response(scope, receive, send)


def path_of(scope: Scope) -> str:
    """Return a request's path within the application, without the application's mount path."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def is_public(scope: Scope, public: Collection[str]) -> bool:
    """Return whether a request only reads a *public* path.

    Of a tenant's paths, only those below `/.well-known/` are public, such as the path of the card.
    """
    if scope["method"] not in SAFE_METHODS:
        return False
    path = path_of(scope)
    return path in public and (TENANT not in scope or path.startswith("/.well-known/"))


GRPC_NAMES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "UNAUTHENTICATED",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.MISDIRECTED_REQUEST: "FAILED_PRECONDITION",
    HTTPStatus.INTERNAL_SERVER_ERROR: "INTERNAL",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
}
"""The gRPC names of HTTP statuses (`google.rpc.Code`); 421 has none there."""
