"""The agent's own routes under `/apcore/`, beyond A2A: for the explorer and for operators.

They are behind the same middleware as all other routes. Their own errors have the format
`{"error": {"code": "NOT_FOUND", "message": "…"}}`.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from apcore_a2a_core import ErrorMapper, Identity
from apcore_a2a_core.dialects import Json
from msgspec import Struct
from starlette.types import Scope, Send

from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.engine.handler import Handler
from apcore_a2a_server.engine.limits import Memory
from apcore_a2a_server.middleware import caller_of, log_context
from apcore_a2a_server.store import UnavailableError

from .http import Endpoint, Headers, HttpRequest, respond, retry_headers
from .operations import store_down_error
from .rest import (
    STATUSES,
    MethodNotAllowedError,
    Routes,
    allowed_verbs,
    find_route,
    operation_path,
    query_params,
)

PATH = "/apcore/{path:path}"
"""The Starlette path of all these routes; its first segment can't be the name of a tenant."""
CODES = {
    400: "BAD_REQUEST",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "CONTENT_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "TOO_MANY_REQUESTS",
    500: "INTERNAL_SERVER_ERROR",
    501: "NOT_IMPLEMENTED",
    503: "SERVICE_UNAVAILABLE",
}
"""The codes of errors, by HTTP status (RFC 9110 §15, RFC 6585 §4)."""
PARAMETER = re.compile(r"\{(\w+)\}")


class OwnRequest(Struct, frozen=True):
    """A request for one of the agent's own routes.

    Attributes:
        caller: The sender.
        path_params: The variable segments of the path, by their names in the route's path.
        query: The query parameters, as `query_params` returns them.
    """

    caller: Caller
    path_params: Mapping[str, str]
    query: Mapping[str, Any]


Respond: TypeAlias = Callable[[OwnRequest], Awaitable[Any]]
"""Function that returns the JSON for a request; its exceptions become error responses."""


class OwnRoute(NamedTuple):
    """One of the agent's own routes.

    Attributes:
        verb: The HTTP method; GET includes HEAD.
        path: The path below `/apcore/`, such as `tasks/{id}/trace`.
        respond: Returns the body of the response, as JSON.
        for_operators: Whether only operators may call the route; other callers get 403.
        status: The HTTP status of a response without an error.
    """

    verb: str
    path: str
    respond: Respond
    for_operators: bool = False
    status: int = 200

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern for paths of this route, as `operation_path` returns them."""
        return re.compile("apcore/" + PARAMETER.sub(r"(?P<\1>[^/]+)", self.path))


class OwnError(Exception):
    """An error that becomes the response.

    Args:
        status: The HTTP status, a key of `CODES`.
        message: The message.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class OwnRoutes(Endpoint):
    """The ASGI endpoint of the agent's own routes.

    Args:
        routes: The routes.
        is_operator: Takes the identity of a caller; returns whether the caller is an operator.
        handler: The operations of the protocol.
        mapper: Converts exceptions into errors.
        memory: Counts and limits the bytes that the process keeps.
        max_body: Maximum size of a body, in bytes.
        max_values: Maximum number of JSON values in a body.

    Example:
        ```python
        from apcore_a2a_server.bindings.own_routes import OwnRoute


        async def trace(request):
            return {"taskId": request.path_params["id"], "spans": []}


        print(OwnRoute("GET", "tasks/{id}/trace", trace).pattern.pattern)
        #> apcore/tasks/(?P<id>[^/]+)/trace
        ```
    """

    def __init__(
        self,
        routes: Sequence[OwnRoute],
        is_operator: Callable[[Identity | None], bool],
        handler: Handler,
        mapper: ErrorMapper,
        *,
        memory: Memory,
        max_body: int,
        max_values: int,
    ) -> None:
        super().__init__(handler, mapper, memory=memory, max_body=max_body, max_values=max_values)
        self._is_operator = is_operator
        self._routes = {f"{route.verb} {route.path}": route for route in routes}
        self._patterns: Routes = [
            (route.verb, route.pattern, name) for name, route in self._routes.items()
        ]

    async def find(self, scope: Scope, send: Send) -> tuple[OwnRoute, Json] | None:
        """Return the route and the parameters in its path; refuse with 403, 404 or 405."""
        verb = "GET" if scope["method"] == "HEAD" else scope["method"]
        path = operation_path(scope)
        match = find_route(verb, path, self._patterns)
        if match is None:
            await self._refuse_path(path, send)
            return None
        name, params = match
        route = self._routes[name]
        log_context(operation=name)
        if route.for_operators and not self._is_operator(caller_of(scope)[1]):
            await self.refuse(send, OwnError(403, "Only operators may do this"))
            return None
        return route, params

    async def _refuse_path(self, path: str, send: Send) -> None:
        verbs = allowed_verbs(path, self._patterns)
        if not verbs:
            await self.refuse(send, OwnError(404, "No route of the agent has this path"))
            return
        allow = ", ".join("GET, HEAD" if verb == "GET" else verb for verb in verbs)
        error = MethodNotAllowedError(f"This path takes {allow} only")
        await self.refuse(send, error, [(b"allow", allow.encode())])

    async def refuse(self, send: Send, error: Exception, headers: Headers = ()) -> None:
        """Send an error."""
        if isinstance(error, OwnError):
            status, message = error.status, str(error)
        else:
            status, _ = STATUSES.get(type(error), (500, ""))
            message = self.mapper.to_jsonrpc_error(error)["message"]
        document = {"error": {"code": CODES[status], "message": message}}
        await respond(send, document, status=status, headers=headers)

    async def answer(self, target: tuple[OwnRoute, Json], request: HttpRequest, send: Send) -> None:
        """Send the response of a route, or its error."""
        route, path_params = target
        try:
            query = query_params(request.scope)
            document = await route.respond(OwnRequest(request.caller, path_params, query))
        except UnavailableError as error:
            down = store_down_error(error)
            await self.refuse(send, down, retry_headers(down))
        except Exception as error:  # the mapper decides what clients see of any exception
            await self.refuse(send, error, retry_headers(error))
        else:
            await respond(send, document, status=route.status)
