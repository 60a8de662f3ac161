"""JSON-RPC 2.0 over HTTP: parse, find the method, answer (FR-SRV-004, A2A 1.0 §9)."""

from collections.abc import Mapping
from math import inf
from typing import Any
from urllib.parse import parse_qs

from a2a.utils import errors
from apcore_a2a_core import ErrorMapper
from apcore_a2a_core.schema import is_object
from apcore_a2a_store import Payload
from starlette.types import Receive, Scope, Send

from .decode import Json, invalid, parse_json
from .errors import TooMuchError
from .handler import Handler
from .http import caller_of, headers_of, read_body, respond, retry_after
from .operations import DIALECT_03, DIALECT_1, METHODS, perform
from .sse import EventStream

VERSIONS = frozenset({"", "0.3", "1.0"})


class JsonRpc:
    """The ASGI endpoint for JSON-RPC.

    Args:
        handler: Does what is asked for.
        mapper: From exceptions to errors.
        max_body: The largest body, in bytes.
    """

    def __init__(self, handler: Handler, mapper: ErrorMapper, *, max_body: int) -> None:
        self._handler = handler
        self._mapper = mapper
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] != "POST":
            hint = {"error": "Send JSON-RPC 2.0 here with POST"}
            await respond(send, hint, status=405, headers=[(b"allow", b"POST")])
            return
        body = await read_body(receive, send, self._max_body)
        if body is not None:
            await self._answer(body, scope, receive, send)

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        version = version_of(scope, headers)
        dialect = DIALECT_1 if version == "1.0" else DIALECT_03
        reply: Json = {"jsonrpc": "2.0", "id": None}
        try:
            check_media_type(headers)
            request = parse_json(body)
            reply["id"] = _id(request)
            method = _method(request)
            dialect = METHODS[method][0]
            if version not in VERSIONS:
                raise errors.VersionNotSupportedError
            caller = caller_of(scope, headers)
            result = await perform(method, _params(request), self._handler, caller)
        except Exception as error:  # whatever it is, the client gets what the map says
            reply["error"] = dialect.error(self._mapper.to_jsonrpc_error(error))
            status = error.status if isinstance(error, TooMuchError) else 200
            await respond(send, reply, status=status, headers=retry_after(error))
            return
        if isinstance(result, dict):
            await respond(send, {**reply, "result": result})
            return

        def encode(payload: Payload) -> Json:
            return {**reply, "result": dialect.event(payload)}

        await EventStream(result, encode)(scope, receive, send)


def version_of(scope: Scope, headers: Mapping[str, str]) -> str:
    """The protocol version asked for, without its patch number (A2A 1.0 §3.6)."""
    version = headers.get("a2a-version", "")
    if not version and scope["query_string"]:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        version = next((query[name][0] for name in query if name.lower() == "a2a-version"), "")
    return ".".join(version.strip().split(".")[:2])


def check_media_type(headers: Mapping[str, str]) -> None:
    """Refuse a body that says it is not JSON.

    Raises:
        ContentTypeNotSupportedError: It says so.
    """
    media_type = headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise errors.ContentTypeNotSupportedError("The body must be application/json")


def _id(request: Any) -> Any:
    """The id of a request that is one (JSON-RPC 2.0 §4); batches and notifications are not."""
    if not is_object(request):
        raise errors.InvalidRequestError("The request must be one JSON object")
    request_id = request.get("id", False)
    known = isinstance(request_id, str | int | float | None) and not isinstance(request_id, bool)
    if not known or request_id in (inf, -inf):
        raise errors.InvalidRequestError("The request must have an id: a string or a number")
    return request_id


def _method(request: Json) -> str:
    method = request.get("method")
    if request.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise errors.InvalidRequestError('The request must have "jsonrpc": "2.0" and a method')
    if method not in METHODS:
        raise errors.MethodNotFoundError
    return method


def _params(request: Json) -> Json:
    params = request.get("params")
    if params is not None and not is_object(params):
        raise invalid("params", "must be an object")
    return params or {}
