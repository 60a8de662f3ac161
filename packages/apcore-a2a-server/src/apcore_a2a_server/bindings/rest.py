"""HTTP+JSON, the REST binding of A2A 1.0 (§11), over the same operations as JSON-RPC."""

import re
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from a2a.utils.errors import A2A_ERROR_MAPPING, JSONParseError, VersionNotSupportedError
from apcore_a2a_core import error_details
from apcore_a2a_core.dialects import Json, invalid, parse_json
from apcore_a2a_core.schema import is_object
from starlette.types import Scope, Send

from apcore_a2a_server.errors import DrainingError, TooMuchError
from apcore_a2a_server.middleware import log_context
from apcore_a2a_server.middleware.errors import path_of

from .http import Asked, Endpoint, respond, retry_after, send_events
from .jsonrpc import check_media_type, version_of
from .operations import Stream, perform

MEDIA_TYPE = b"application/a2a+json"
TASK = r"tasks/(?P<id>[^/:]+)"
PUSH = r"tasks/(?P<taskId>[^/:]+)/pushNotificationConfigs"
ROUTES = [
    (verb, re.compile(rf"(?:(?P<tenant>(?!tasks/)[^/]+)/)?{path}"), method)
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
STATUSES: dict[type[Exception], tuple[int, str]] = {
    TooMuchError: (429, "RESOURCE_EXHAUSTED"),
    DrainingError: (503, "UNAVAILABLE"),
    JSONParseError: (400, "INVALID_ARGUMENT"),
    **{kind: (row.http_code, row.grpc_status) for kind, row in A2A_ERROR_MAPPING.items()},
}


class Rest(Endpoint):
    """The ASGI endpoint for the REST routes, with or without a tenant before them."""

    async def find(self, scope: Scope, send: Send) -> tuple[str, Json] | None:
        """The method, and the params that the path holds."""
        found = route(scope["method"], path_of(scope).strip("/"))
        if found is None:
            await respond(send, _status(404, "There is nothing at this address"), status=404)
        return found

    async def answer(self, found: tuple[str, Json], asked: Asked, send: Send) -> None:
        """Do what the verb and the path say."""
        method, path = found
        log_context(operation=method)
        try:
            if version_of(asked) not in ("", "1.0"):
                raise VersionNotSupportedError
            params = {**_query(asked.scope), **_body(asked), **path}
            result = await perform(method, params, self.handler, asked.caller)
        except Exception as error:  # whatever it is, the client gets what the map says
            mapped = self.mapper.to_jsonrpc_error(error)
            code, name = STATUSES.get(type(error), (500, "INTERNAL"))
            status = _status(code, mapped["message"], name, error_details(mapped))
            extra = retry_after(error)
            await respond(send, status, status=code, media_type=MEDIA_TYPE, headers=extra)
            return
        if isinstance(result, Stream):
            await send_events(send, asked.connection, *result)
        else:
            await respond(send, result, media_type=MEDIA_TYPE)


def route(verb: str, path: str) -> tuple[str, Json] | None:
    """The method at a path, and the params that the path holds (§11.3).

    Example:
        ```python
        from apcore_a2a_server.bindings.rest import route

        print(route("POST", "acme/tasks/t1:cancel"))
        #> ('CancelTask', {'tenant': 'acme', 'id': 't1'})
        ```
    """
    for known, pattern, method in ROUTES:
        match = pattern.fullmatch(path) if verb == known else None
        if match is not None:
            return method, {name: text for name, text in match.groupdict().items() if text}
    return None


def _query(scope: Scope) -> Json:
    """Query parameters (§11.5), numbers and booleans as what they stand for."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"))
    return {name: _typed(name, text) for name, text in pairs}


def _typed(name: str, text: str) -> Any:
    if name in ("historyLength", "pageSize") and text.isascii() and text.isdigit():
        return int(text[:20])
    if name == "includeArtifacts" and text in ("true", "false"):
        return text == "true"
    return text


def _body(asked: Asked) -> Json:
    if not asked.body:
        return {}
    check_media_type(asked.headers)
    value = parse_json(asked.body)
    if not is_object(value):
        raise invalid("body", "must be an object")
    return value


def _status(code: int, message: str, status: str = "", details: Any = ()) -> Json:
    """A `google.rpc.Status` in JSON (§11.6)."""
    name = status or HTTPStatus(code).name
    return {"error": {"code": code, "status": name, "message": message, "details": details}}
