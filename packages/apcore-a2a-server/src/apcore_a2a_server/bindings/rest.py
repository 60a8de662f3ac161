"""HTTP+JSON: the REST binding of A2A 1.0 (§11), over the same operations as JSON-RPC."""

import re
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    ContentTypeNotSupportedError,
    JSONParseError,
    VersionNotSupportedError,
)
from apcore_a2a_core import error_details
from apcore_a2a_core.dialects import BodySizeError, Json, invalid, parse_json
from apcore_a2a_core.schema import is_object
from starlette.types import Scope, Send

from apcore_a2a_server.errors import DrainingError, TooMuchError
from apcore_a2a_server.middleware import log_context
from apcore_a2a_server.middleware.errors import path_of

from .http import Endpoint, HttpRequest, respond, retry_headers, send_events
from .jsonrpc import check_media_type, protocol_version
from .operations import Stream, perform, read_params

MEDIA_TYPE = b"application/a2a+json"
TASK = r"tasks/(?P<id>[^/:]+)"
PUSH = r"tasks/(?P<taskId>[^/:]+)/pushNotificationConfigs"
ROUTES = [
    (verb, re.compile(rf"(?:(?P<tenant>(?!tasks/)[^/]+)/)?{path}"), method)
    # a first segment that is not "tasks" is a tenant (§11.3)
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
NUMBERS = {"historyLength", "history_length", "pageSize", "page_size"}
BOOLEANS = {"includeArtifacts", "include_artifacts"}
"""Query parameters that are not strings, in both spellings of ProtoJSON."""
STATUSES: dict[type[Exception], tuple[int, str]] = {
    TooMuchError: (429, "RESOURCE_EXHAUSTED"),
    DrainingError: (503, "UNAVAILABLE"),
    BodySizeError: (413, "INVALID_ARGUMENT"),
    JSONParseError: (400, "INVALID_ARGUMENT"),
    **{kind: (row.http_code, row.grpc_status) for kind, row in A2A_ERROR_MAPPING.items()},
    ContentTypeNotSupportedError: (415, "INVALID_ARGUMENT"),
}
"""The HTTP status and the name of `google.rpc.Code` for each error (§11.6).

For media types the protocol names 415 in 1.0.0 and 400 in 1.0.1. 415 is what HTTP has for them
(RFC 9110 §15.5.16), and the reason in the error says the same.
"""


class Rest(Endpoint):
    """The ASGI endpoint for the REST routes, with or without a tenant as first segment."""

    async def find(self, scope: Scope, send: Send) -> tuple[str, Json] | None:
        """Return the method and the params in the path; answer unknown paths with 404."""
        target = route(scope["method"], path_of(scope).strip("/"))
        if target is None:
            reason = "No operation has this verb and path"
            await respond(send, _status(404, reason), status=404)
        return target

    async def answer(self, target: tuple[str, Json], request: HttpRequest, send: Send) -> None:
        """Perform the method of the route, and send its result or error."""
        method, path_params = target
        log_context(operation=method)
        try:
            if protocol_version(request) not in ("", "1.0"):
                raise VersionNotSupportedError
            # the path comes last: neither query nor body may name another task
            params = {**_query(request.scope), **self._body(request), **path_params}
            message = read_params(method, params)
            result = await perform(method, message, self.handler, request.caller)
        except Exception as error:  # the mapper decides what clients see of any exception
            rpc_error = self.mapper.to_jsonrpc_error(error)
            code, name = STATUSES.get(type(error), (500, "INTERNAL"))
            status = _status(code, rpc_error["message"], name, error_details(rpc_error))
            headers = retry_headers(error)
            await respond(send, status, status=code, media_type=MEDIA_TYPE, headers=headers)
            return
        if isinstance(result, Stream):
            await send_events(send, request.caller.connection, *result)
        else:
            await respond(send, result, media_type=MEDIA_TYPE)

    def _body(self, request: HttpRequest) -> Json:
        if not request.body:
            return {}
        check_media_type(request.caller.headers)
        value = parse_json(request.body, self.max_values)
        if not is_object(value):
            raise invalid("body", "must be an object")
        return value


def route(verb: str, path: str) -> tuple[str, Json] | None:
    """Return the method for verb and path, and the params in the path (§11.3).

    Example:
        ```python
        from apcore_a2a_server.bindings.rest import route

        print(route("POST", "acme/tasks/t1:cancel"))
        #> ('CancelTask', {'tenant': 'acme', 'id': 't1'})
        ```
    """
    for route_verb, pattern, method in ROUTES:
        match = pattern.fullmatch(path) if verb == route_verb else None
        if match is not None:
            return method, {name: text for name, text in match.groupdict().items() if text}
    return None


def _query(scope: Scope) -> Json:
    """Return the query parameters (§11.5), with numbers and booleans converted."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"))
    return {name: _typed(name, text) for name, text in pairs}


def _typed(name: str, text: str) -> Any:
    if name in NUMBERS and text.isascii() and text.isdigit():
        # int() raises for thousands of digits; 20 are more than any valid number has
        return int(text[:20])
    if name in BOOLEANS and text in ("true", "false"):
        return text == "true"
    return text


def _status(code: int, message: str, status: str = "", details: Any = ()) -> Json:
    """Return a `google.rpc.Status` in JSON (§11.6)."""
    name = status or HTTPStatus(code).name
    return {"error": {"code": code, "status": name, "message": message, "details": details}}
