"""JSON-RPC 2.0 over HTTP: parse, find the method, respond (FR-SRV-004, A2A 1.0 §9)."""

from collections.abc import Mapping
from math import inf
from urllib.parse import parse_qs

from a2a.utils import errors
from apcore_a2a_core import ErrorMapper
from apcore_a2a_core.dialects import BodySizeError, Json, invalid, parse_json
from apcore_a2a_core.values import dump_json, is_object
from starlette.types import Scope, Send

from apcore_a2a_server.engine.handler import Handler
from apcore_a2a_server.engine.limits import Memory
from apcore_a2a_server.errors import RetryLaterError, forget_frames
from apcore_a2a_server.middleware import log_context

from .http import Endpoint, Headers, HttpRequest, Stream, respond, retry_headers, send_event
from .landing import LandingPage
from .operations import DIALECT_03, DIALECT_1, METHODS, perform, read_params

VERSIONS = frozenset({"", "0.3", "1.0"})
"""Accepted protocol versions, without patch numbers; the method name decides the dialect."""
ID_TYPES = frozenset({str, int, float, type(None)})
MISSING_ID = "The request must have an id: a string or a number"
STREAMS_OF_0_3 = frozenset({"message/stream", "tasks/resubscribe"})
"""Methods that send errors as events (A2A 0.3 §3.3.1), unless the status is 413, 429 or 503."""


class JsonRpc(Endpoint):
    """The ASGI endpoint for JSON-RPC.

    Args:
        handler: The operations of the protocol.
        mapper: Converts exceptions into JSON-RPC errors.
        landing: Responds to requests other than POST.
        memory: Counts and limits the bytes that the process keeps.
        max_body: Maximum size of a body, in bytes.
        max_values: Maximum number of JSON values in a body.
    """

    def __init__(
        self,
        handler: Handler,
        mapper: ErrorMapper,
        landing: LandingPage,
        *,
        memory: Memory,
        max_body: int,
        max_values: int,
    ) -> None:
        limits = {"max_body": max_body, "max_values": max_values}
        super().__init__(handler, mapper, memory=memory, **limits)
        self._landing = landing

    async def find(self, scope: Scope, send: Send) -> bool | None:
        """Return True for POST; otherwise send the landing page or 405."""
        if scope["method"] == "POST":
            return True
        await self._landing.respond(scope, send)
        return None

    async def refuse(self, send: Send, error: errors.A2AError, headers: Headers = ()) -> None:
        """Send an error without id and dialect: both are in the body, which was dropped."""
        code, status = -32600, 413
        if isinstance(error, RetryLaterError):
            code, status = error.code, error.status
        response = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": error.message}}
        await respond(send, response, status=status, headers=headers)

    async def answer(self, target: object, request: HttpRequest, send: Send) -> Stream | None:
        """Perform the method in the body; send its result or error, or return its stream."""
        version = protocol_version(request)
        # the dialect of errors until the method is known
        dialect = DIALECT_1 if version == "1.0" else DIALECT_03
        response: Json = {"jsonrpc": "2.0", "id": None}
        method = ""
        try:
            check_media_type(request.caller.headers)
            body = request.take_body()
            envelope = await self.decode(request, parse_json, body, self.max_values)
            del body
            if not is_object(envelope):
                raise errors.InvalidRequestError("The request must be one JSON object")
            has_id = _has_id(envelope)
            if "id" in envelope and not has_id:
                raise errors.InvalidRequestError("The id of a request must be a string or a number")
            response["id"] = envelope["id"] if has_id else None
            method = _method_of(envelope)
            dialect = METHODS[method][0]
            log_context(operation=method)
            if version not in VERSIONS:
                raise errors.VersionNotSupportedError
            params = await self.decode(request, read_params, method, _params_of(envelope))
            if not has_id:  # A2A has no JSON-RPC notifications; the errors above come first
                raise errors.InvalidRequestError(MISSING_ID)
            result = await perform(method, params, self.handler, request.caller)
        except Exception as error:  # the mapper decides what clients see of any exception
            response["error"] = dialect.error(self.mapper.to_jsonrpc_error(error))
            if isinstance(error, RetryLaterError | BodySizeError):
                headers = retry_headers(error)
                await respond(send, response, status=error.status, headers=headers)
            elif method in STREAMS_OF_0_3:
                await send_event(send, response)
            else:
                await respond(send, response)
            forget_frames(error)
            return None
        if isinstance(result, Stream):
            return result._replace(prefix=_before_result(response), suffix=b"}")
        await respond(send, _success(response, result))
        return None


def _success(response: Json, result: Json | bytes) -> Json | bytes:
    """Return the response with its result, which may be encoded already."""
    if not isinstance(result, bytes):
        return {**response, "result": result}
    return b"".join((_before_result(response), result, b"}"))  # one copy: it may be megabytes


def _before_result(response: Json) -> bytes:
    """Return the encoded response up to its result."""
    return dump_json(response).removesuffix(b"}") + b',"result":'


def protocol_version(request: HttpRequest) -> str:
    """Return the protocol version of a request, without its patch number (A2A 1.0 §3.6)."""
    version = request.caller.headers.get("a2a-version", "")
    if not version and request.scope["query_string"]:
        query = parse_qs(request.scope["query_string"].decode("latin-1"))
        version = next((query[name][0] for name in query if name.lower() == "a2a-version"), "")
    return ".".join(version.strip().split(".")[:2])


class BodyTypeError(errors.ContentTypeNotSupportedError):
    """The body of a request is not JSON, by its `Content-Type`."""


def check_media_type(headers: Mapping[str, str]) -> None:
    """Refuse a body whose `Content-Type` is not JSON; a body without the header is accepted.

    Raises:
        BodyTypeError: The media type is not JSON.
    """
    media_type = headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        # clients see the name of A2A's own error type, not BodyTypeError
        data = {"type": errors.ContentTypeNotSupportedError.__name__}
        raise BodyTypeError("The body must be application/json", data)


def _has_id(envelope: Json) -> bool:
    """Return whether a request has a valid id; null is valid, too (JSON-RPC 2.0 §4)."""
    request_id = envelope.get("id", False)
    # JSON like 1e999 is read as infinity
    return type(request_id) in ID_TYPES and request_id not in (inf, -inf)


def _method_of(envelope: Json) -> str:
    method = envelope.get("method")
    if envelope.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise errors.InvalidRequestError('The request must have "jsonrpc": "2.0" and a method')
    if method not in METHODS:
        raise errors.MethodNotFoundError
    return method


def _params_of(envelope: Json) -> Json:
    params = envelope.get("params")
    if params is not None and not is_object(params):
        raise invalid("params", "must be an object")
    return params or {}
