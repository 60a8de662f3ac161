"""JSON-RPC 2.0 over HTTP: parse, find the method, answer (FR-SRV-004, A2A 1.0 §9)."""

from collections.abc import Mapping
from math import inf
from typing import Any
from urllib.parse import parse_qs

from a2a.utils import errors
from apcore_a2a_core.dialects import Json, invalid, parse_json
from apcore_a2a_core.schema import is_object
from starlette.types import Scope, Send

from apcore_a2a_server.errors import TooMuchError
from apcore_a2a_server.middleware import log_context
from apcore_a2a_server.store import Payload

from .http import Asked, Endpoint, respond, retry_after, send_events
from .operations import DIALECT_03, DIALECT_1, METHODS, Stream, perform

VERSIONS = frozenset({"", "0.3", "1.0"})


class JsonRpc(Endpoint):
    """The ASGI endpoint for JSON-RPC."""

    async def find(self, scope: Scope, send: Send) -> bool | None:
        """True for what may be JSON-RPC."""
        if scope["method"] == "POST":
            return True
        hint = {"error": "Send JSON-RPC 2.0 here with POST"}
        await respond(send, hint, status=405, headers=[(b"allow", b"POST")])
        return None

    async def answer(self, found: object, asked: Asked, send: Send) -> None:
        """Do what the body says."""
        version = version_of(asked)
        dialect = DIALECT_1 if version == "1.0" else DIALECT_03
        reply: Json = {"jsonrpc": "2.0", "id": None}
        try:
            check_media_type(asked.headers)
            request = parse_json(asked.body)
            reply["id"] = _id(request)
            method = _method(request)
            dialect = METHODS[method][0]
            log_context(operation=method)
            if version not in VERSIONS:
                raise errors.VersionNotSupportedError
            result = await perform(method, _params(request), self.handler, asked.caller)
        except Exception as error:  # whatever it is, the client gets what the map says
            reply["error"] = dialect.error(self.mapper.to_jsonrpc_error(error))
            status = error.status if isinstance(error, TooMuchError) else 200
            await respond(send, reply, status=status, headers=retry_after(error))
            return
        if not isinstance(result, Stream):
            await respond(send, {**reply, "result": result})
            return

        def encode(payload: Payload) -> Json:
            return {**reply, "result": result.encode(payload)}

        await send_events(send, asked.connection, result.events, encode)


def version_of(asked: Asked) -> str:
    """The protocol version asked for, without its patch number (A2A 1.0 §3.6)."""
    version = asked.headers.get("a2a-version", "")
    if not version and asked.scope["query_string"]:
        query = parse_qs(asked.scope["query_string"].decode("latin-1"))
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
