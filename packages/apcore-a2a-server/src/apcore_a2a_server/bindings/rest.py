"""HTTP+JSON: the REST binding of A2A 1.0 (§11), over the same operations as JSON-RPC."""

import re
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qsl, unquote

from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    JSONParseError,
    MethodNotFoundError,
    VersionNotSupportedError,
)
from apcore_a2a_core import ErrorMapper, error_details
from apcore_a2a_core.dialects import V1, BodySizeError, Json, invalid, parse_json
from apcore_a2a_core.values import dump_json, is_object
from starlette.responses import Response
from starlette.types import Scope, Send

from apcore_a2a_server.errors import (
    DrainingError,
    NotStartedError,
    RateStorageDownError,
    RetryLaterError,
    StoreDownError,
    forget_frames,
)
from apcore_a2a_server.middleware import log_context
from apcore_a2a_server.middleware.errors import path_of

from .http import Endpoint, Headers, HttpRequest, Stream, respond, retry_headers
from .jsonrpc import BodyTypeError, check_media_type, protocol_version
from .operations import perform, read_params

NO_ROUTE = "No operation has this path"
MEDIA_TYPE = b"application/a2a+json"
TASK = r"tasks/(?P<id>[^/:]+)"
PUSH = r"tasks/(?P<taskId>[^/:]+)/pushNotificationConfigs"
Routes: TypeAlias = list[tuple[str, re.Pattern[str], str]]
"""Verbs, patterns of paths, and the names of JSON-RPC methods (or of the agent's own routes)."""
ROUTES: Routes = [
    (verb, re.compile(path), method)
    for verb, path, method in (
        ("POST", "message:send", "SendMessage"),
        ("POST", "message:stream", "SendStreamingMessage"),
        ("GET", "tasks", "ListTasks"),
        ("GET", TASK, "GetTask"),
        ("POST", f"{TASK}:cancel", "CancelTask"),
        ("POST", f"{TASK}:subscribe", "SubscribeToTask"),
        ("GET", f"{TASK}:subscribe", "SubscribeToTask"),
        ("POST", PUSH, "CreateTaskPushNotificationConfig"),
        ("GET", PUSH, "ListTaskPushNotificationConfigs"),
        ("GET", f"{PUSH}/(?P<id>[^/]+)", "GetTaskPushNotificationConfig"),
        ("DELETE", f"{PUSH}/(?P<id>[^/]+)", "DeleteTaskPushNotificationConfig"),
        ("GET", "extendedAgentCard", "GetExtendedAgentCard"),
    )
]
ENCODED_SLASH = "\udc2f"
"""Placeholder for `%2F` in a path: servers decode `%2F` into a slash, which would end the segment.

No client can send this character, since UTF-8 cannot encode it.
"""
NUMBERS = {"historyLength", "history_length", "limit", "pageSize", "page_size"}
BOOLEANS = {"includeArtifacts", "include_artifacts"}
"""Query parameters that are numbers or booleans, in all their spellings."""
IDS = {"taskId", "task_id", "pushNotificationConfigId", "push_notification_config_id"}
"""Names, besides `id`, under which a query or a body may repeat the ids of the path."""


class MethodNotAllowedError(MethodNotFoundError):
    """The path has operations, but none with the verb of the request."""


STATUSES: dict[type[Exception], tuple[int, str]] = {
    RetryLaterError: (429, "RESOURCE_EXHAUSTED"),
    DrainingError: (503, "UNAVAILABLE"),
    NotStartedError: (503, "UNAVAILABLE"),
    RateStorageDownError: (503, "UNAVAILABLE"),
    StoreDownError: (503, "UNAVAILABLE"),
    BodySizeError: (413, "INVALID_ARGUMENT"),
    JSONParseError: (400, "INVALID_ARGUMENT"),
    **{cls: (row.http_code, row.grpc_status) for cls, row in A2A_ERROR_MAPPING.items()},
    BodyTypeError: (415, "INVALID_ARGUMENT"),
    MethodNotAllowedError: (405, "UNIMPLEMENTED"),
}
"""The HTTP status and the name of `google.rpc.Code` for each error (§5.4).

A message part of a type that the skill does not take gets 400, as 1.0.1 demands (1.0.0 had 415).
A body that is not JSON gets 415 (RFC 9110 §15.5.16).
"""


class Rest(Endpoint):
    """The ASGI endpoint for the REST routes."""

    routes: ClassVar[Routes] = ROUTES
    media_type: ClassVar[bytes] = MEDIA_TYPE
    dialect: ClassVar[V1 | None] = None
    """The dialect of results, if it is not that of the methods."""

    async def find(self, scope: Scope, send: Send) -> tuple[str, Json] | None:
        """Return the method and the params in the path; refuse wrong paths and verbs (404, 405)."""
        path = operation_path(scope)
        target = find_route(scope["method"], path, self.routes)
        if target is None and (verbs := allowed_verbs(path, self.routes)):
            allow = (b"allow", ", ".join(verbs).encode())
            message = f"This path takes {' or '.join(verbs)} only"
            await self.refuse(send, MethodNotAllowedError(message), [allow])
        elif target is None:
            await self.refuse(send, MethodNotFoundError(NO_ROUTE))
        return target

    async def refuse(self, send: Send, error: Exception, headers: Headers = ()) -> None:
        """Send *error* as a `google.rpc.Status` in JSON (§11.6)."""
        status, document = error_status(self.mapper.to_jsonrpc_error(error), error)
        await respond(send, document, status=status, media_type=MEDIA_TYPE, headers=headers)

    async def answer(
        self, target: tuple[str, Json], request: HttpRequest, send: Send
    ) -> Stream | None:
        """Perform the method of the route; send its result or error, or return its stream."""
        method, path_params = target
        log_context(operation=method)
        try:
            self.check_version(request)
            body = await self.decode(request, self.body_params, method, request)
            json_params = with_path(path_params, {**query_params(request.scope), **body})
            params = await self.decode(request, read_params, method, json_params)
            result = await perform(method, params, self.handler, request.caller, self.dialect)
        except Exception as error:  # the mapper decides what clients see of any exception
            await self.refuse(send, error, retry_headers(error))
            forget_frames(error)
            return None
        if isinstance(result, Stream):
            return result
        await respond(send, self.document(method, result), media_type=self.media_type)
        return None

    def check_version(self, request: HttpRequest) -> None:
        """Refuse requests of protocol versions other than 1.0.

        Raises:
            VersionNotSupportedError: `A2A-Version` names another version.
        """
        if protocol_version(request) not in ("", "1.0"):
            raise VersionNotSupportedError

    def document(self, method: str, result: Any) -> Any:
        """Return the body for the *result* of a method."""
        return result

    def body_params(self, method: str, request: HttpRequest) -> Json:
        """Return the params of a method that are in the body.

        Raises:
            A2AError: The `Content-Type` is not JSON, or the body is not a JSON object or has too
                many values.
        """
        if not request.body:
            return {}
        check_media_type(request.caller.headers)
        value = parse_json(request.take_body(), self.max_values)
        if not is_object(value):
            raise invalid("body", "must be an object")
        return value


def error_status(rpc_error: Json, error: Exception) -> tuple[int, Json]:
    """Return the HTTP status and the `google.rpc.Status` for an error."""
    status, name = STATUSES.get(type(error), (500, "INTERNAL"))
    members = {"code": status, "status": name, "message": rpc_error["message"]}
    return status, {"error": {**members, "details": error_details(rpc_error)}}


def not_found() -> Response:
    """Return the response for a path that has no route, or whose tenant was not found."""
    error = MethodNotFoundError(NO_ROUTE)
    status, document = error_status(ErrorMapper().to_jsonrpc_error(error), error)
    headers = {"cache-control": "private, no-store"}
    return Response(dump_json(document), status, headers, MEDIA_TYPE.decode())


def find_route(verb: str, path: str, routes: Routes = ROUTES) -> tuple[str, Json] | None:
    """Return the method of a route and the params in its path (§11.3); None if no route matches.

    Example:
        ```python
        from apcore_a2a_server.bindings.rest import find_route

        print(find_route("POST", "tasks/t1:cancel"))
        #> ('CancelTask', {'id': 't1'})
        ```
    """
    for route_verb, pattern, method in routes:
        match = pattern.fullmatch(path) if verb == route_verb else None
        if match is not None:
            params = match.groupdict()
            return method, {name: text.replace(ENCODED_SLASH, "/") for name, text in params.items()}
    return None


def allowed_verbs(path: str, routes: Routes = ROUTES) -> list[str]:
    """Return the verbs with which a path has operations."""
    verbs = (verb for verb, pattern, _ in routes if pattern.fullmatch(path))
    return [*dict.fromkeys(verbs)]


def operation_path(scope: Scope) -> str:
    """Return the path within the application, with `ENCODED_SLASH` for each `%2F`."""
    raw_path: bytes = scope.get("raw_path") or b""
    if b"%2f" not in raw_path.lower():
        return path_of(scope).strip("/")
    root_path: str = scope.get("root_path", "")
    root_segments = root_path.count("/") if scope["path"].startswith(root_path) else 0
    segments = raw_path.decode("latin-1").split("/")[1 + root_segments :]
    return "/".join(unquote(segment).replace("/", ENCODED_SLASH) for segment in segments).strip("/")


def with_path(path_params: Json, params: Json) -> Json:
    """Return *params* with *path_params*, which replace the `IDS` of the query and the body."""
    if not path_params:
        return params
    other_params = {name: value for name, value in params.items() if name not in IDS}
    return {**other_params, **path_params}


def query_params(scope: Scope) -> Json:
    """Return the query parameters (§11.5), with numbers and booleans converted."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"))
    return {name: _convert_param(name, text) for name, text in pairs}


def _convert_param(name: str, text: str) -> Any:
    if name in NUMBERS and text.isascii() and text.isdigit():
        # int() raises for thousands of digits; 20 are more than any valid number has
        return int(text[:20])
    if name in BOOLEANS and text in ("true", "false"):
        return text == "true"
    return text
