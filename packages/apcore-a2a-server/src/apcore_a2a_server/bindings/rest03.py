"""HTTP+JSON of A2A 0.3 at `/v1/…` (0.3 §3.5.3), over the same operations as JSON-RPC."""

import re
from collections.abc import Callable
from typing import Any, ClassVar

from apcore_a2a_core.dialects import V1, Json, protojson03
from starlette.types import Send

from .http import Headers, HttpRequest, respond
from .rest import PUSH, STATUSES, TASK, Rest, Routes

SET_PUSH = "tasks/pushNotificationConfig/set"
GET_PUSH = "tasks/pushNotificationConfig/get"
LIST_PUSH = "tasks/pushNotificationConfig/list"
DELETE_PUSH = "tasks/pushNotificationConfig/delete"
ROUTES = [
    (verb, re.compile(f"v1/{path}"), method)
    for verb, path, method in (
        ("POST", "message:send", "message/send"),
        ("POST", "message:stream", "message/stream"),
        ("GET", "tasks", "tasks/list"),
        ("GET", TASK, "tasks/get"),
        ("POST", f"{TASK}:cancel", "tasks/cancel"),
        # POST in the specification and the JavaScript SDK, GET in the .proto and the Python SDK
        ("POST", f"{TASK}:subscribe", "tasks/resubscribe"),
        ("GET", f"{TASK}:subscribe", "tasks/resubscribe"),
        ("POST", PUSH, SET_PUSH),
        ("GET", PUSH, LIST_PUSH),
        ("GET", f"{PUSH}/(?P<id>[^/]+)", GET_PUSH),
        ("DELETE", f"{PUSH}/(?P<id>[^/]+)", DELETE_PUSH),
        ("GET", "card", "agent/getAuthenticatedExtendedCard"),
    )
]
DIALECT = protojson03.V03ProtoJson()
READERS: dict[str, Callable[[Json], Json]] = {
    "message/send": protojson03.read_send,
    "message/stream": protojson03.read_send,
    SET_PUSH: protojson03.read_push_config,
}
"""Functions that convert bodies into params, by method."""
WRITERS: dict[str, Callable[[Any], Json]] = {
    SET_PUSH: protojson03.write_push_config,
    GET_PUSH: protojson03.write_push_config,
    LIST_PUSH: lambda configs: {"configs": [*map(protojson03.write_push_config, configs)]},
    DELETE_PUSH: lambda _: {},
}
"""Functions that convert results of the dialect into bodies, by method."""
STATUS_OF_CODE = {-32002: 409, -32003: 501, -32004: 501, -32007: 404}
"""HTTP statuses that differ from those of 1.0, by JSON-RPC code, as in the SDK of 0.3."""


class Rest03(Rest):
    """The ASGI endpoint for `/v1/…`: always 0.3, whatever `A2A-Version` says."""

    routes: ClassVar[Routes] = ROUTES
    media_type: ClassVar[bytes] = b"application/json"
    dialect: ClassVar[V1 | None] = DIALECT

    async def refuse(self, send: Send, error: Exception, headers: Headers = ()) -> None:
        """Send *error* with its JSON-RPC code and the name of its type."""
        rpc_error = self.mapper.to_jsonrpc_error(error)
        status, _ = STATUSES.get(type(error), (500, ""))
        status = STATUS_OF_CODE.get(rpc_error["code"], status)
        await respond(send, DIALECT.error(rpc_error), status=status, headers=headers)

    def check_version(self, request: HttpRequest) -> None:
        """Accept any `A2A-Version`: the path determines the version."""

    def body_params(self, method: str, request: HttpRequest) -> Json:
        """Return the params of a method that are in the body, as JSON-RPC would have them."""
        return READERS.get(method, dict)(super().body_params(method, request))

    def document(self, method: str, result: Any) -> Any:
        """Return the body for the *result* of a method, as the SDK of 0.3 writes it."""
        return WRITERS[method](result) if method in WRITERS else result
