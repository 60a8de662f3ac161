"""How operations look on the wire: JSON-RPC of A2A 1.0 and 0.3, HTTP+JSON of 1.0.

Everything here is given and gives back the params and results of 1.0 (§9.4, §11.3); results of
0.3 are understood by the models themselves.
"""

from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from . import v03
from .codec import dump, load
from .errors import (
    A2AAuthError,
    A2AError,
    A2AProtocolError,
    A2AServerError,
    Json,
    ServerBusyError,
    is_object,
    server_error,
)
from .exchange import Answer, Call, media_type, path_of, retry_after


class Operation(NamedTuple):
    """What a client may ask for: its name in 1.0, in 0.3, and its address in HTTP+JSON."""

    name: str
    old_name: str
    verb: str
    path: str
    safe: bool = True
    stream: bool = False


PUSH = "tasks/pushNotificationConfig"
CONFIGS = "/tasks/{taskId}/pushNotificationConfigs"

SEND = Operation("SendMessage", "message/send", "POST", "/message:send", safe=False)
STREAM = Operation(
    "SendStreamingMessage", "message/stream", "POST", "/message:stream", safe=False, stream=True
)
GET = Operation("GetTask", "tasks/get", "GET", "/tasks/{id}")
LIST = Operation("ListTasks", "tasks/list", "GET", "/tasks")
CANCEL = Operation("CancelTask", "tasks/cancel", "POST", "/tasks/{id}:cancel", safe=False)
SUBSCRIBE = Operation(
    "SubscribeToTask", "tasks/resubscribe", "GET", "/tasks/{id}:subscribe", stream=True
)
SET_PUSH = Operation("CreateTaskPushNotificationConfig", f"{PUSH}/set", "POST", CONFIGS, safe=False)
GET_PUSH = Operation("GetTaskPushNotificationConfig", f"{PUSH}/get", "GET", CONFIGS + "/{id}")
LIST_PUSH = Operation("ListTaskPushNotificationConfigs", f"{PUSH}/list", "GET", CONFIGS)
DELETE_PUSH = Operation(
    "DeleteTaskPushNotificationConfig", f"{PUSH}/delete", "DELETE", CONFIGS + "/{id}", safe=False
)
EXTENDED_CARD = Operation(
    "GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", "GET", "/extendedAgentCard"
)


class Binding:
    """A protocol at an address.

    Attributes:
        version: Of A2A.
        tenant: Whose agent it is, where one address serves several (§4.4.6).
    """

    def __init__(self, url: httpx.URL, version: str, tenant: str = "") -> None:
        self.url, self.version, self.tenant = url, version, tenant

    def call(self, operation: Operation, params: Json, cursor: str | None = None) -> Call:
        """The request for *operation*; a stream begins behind the event *cursor*."""
        raise NotImplementedError

    def result(self, answer: Answer) -> Any:
        """The result in a whole answer."""
        if answer.status in (401, 403):
            raise A2AAuthError(answer.status, answer.headers.get("www-authenticate", ""))
        return self.event(answer.body, answer)

    def event(self, data: bytes, answer: Answer | None = None) -> Any:
        """The result in an event of a stream, or in the body of *answer*."""
        body = parsed(data if data.strip() else b"{}", answer)
        if body.get("error") is not None:
            raise told(server_error(body["error"], answer.status if answer else 200), answer)
        return self._result(body, answer)

    def _result(self, body: Json, answer: Answer | None) -> Any:
        raise NotImplementedError


class JSONRPC(Binding):
    """JSON-RPC 2.0 over HTTP POST, of A2A 1.0 (§9) or 0.3."""

    ids = count(1)

    def call(self, operation: Operation, params: Json, cursor: str | None = None) -> Call:
        """The request for *operation*; a stream begins behind the event *cursor*."""
        old = self.version == "0.3"
        tenant = {"tenant": self.tenant} if self.tenant else {}
        params = v03.params(operation.name, params) if old else {**params, **tenant}
        method = operation.old_name if old else operation.name
        body = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}
        headers = _headers("application/json", "" if old else self.version, operation, cursor)
        stream = operation.stream
        return Call("POST", self.url, operation.safe, stream, headers, content=dump(body))

    def _result(self, body: Json, answer: Answer | None) -> Any:
        if "result" not in body:
            raise no_a2a(answer)
        return body["result"]


class HTTPJSON(Binding):
    """HTTP+JSON of A2A 1.0 (§11)."""

    def call(self, operation: Operation, params: Json, cursor: str | None = None) -> Call:
        """The request for *operation*; a stream begins behind the event *cursor*."""
        path = operation.path
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                params = dict(params)
                if params[name] in (".", ".."):  # which would lead to another address
                    raise A2AProtocolError(f"No {name} can be {params[name]!r}")
                path = path.replace(f"{{{name}}}", quote(params.pop(name), safe=""))
        tenant = f"/{quote(self.tenant, safe='')}" if self.tenant else ""
        url = self.url.copy_with(raw_path=path_of(self.url) + f"{tenant}{path}".encode())
        sends = operation.verb == "POST"
        kind = "application/a2a+json" if sends else ""
        return Call(
            operation.verb,
            url,
            operation.safe,
            operation.stream,
            _headers(kind, self.version, operation, cursor),
            params=None if sends else params,
            content=dump(params) if sends else None,
        )

    def _result(self, body: Json, answer: Answer | None) -> Any:
        if answer and answer.status >= 300:
            raise no_a2a(answer)
        return body


def parsed(body: bytes, answer: Answer | None = None) -> Json:
    """The JSON object in *body*, which is all or a part of *answer*."""
    try:
        found = load(body)
    except A2AProtocolError:
        raise no_a2a(answer) from None
    if not is_object(found):
        raise no_a2a(answer)
    return found


def told(error: A2AServerError, answer: Answer | None) -> A2AServerError:
    """*error* with what the headers of *answer* tell of it."""
    if isinstance(error, ServerBusyError) and answer and "retry-after" in answer.headers:
        error.retry_after = retry_after(answer.headers, 0)
    return error


def no_a2a(answer: Answer | None) -> A2AError:
    """What to raise when *answer*, or an event of a stream, is not A2A."""
    if answer is None:
        return A2AProtocolError("An event of the stream is not A2A")
    if answer.status >= 429:
        return told(server_error({}, answer.status), answer)
    kind = media_type(answer.headers) or "no content type"
    return A2AProtocolError(f"The answer is not A2A: HTTP {answer.status}, {kind}")


def _headers(kind: str, version: str, operation: Operation, cursor: str | None) -> dict[str, str]:
    accept = "application/json, application/a2a+json"
    headers = {
        "accept": "text/event-stream, " + accept if operation.stream else accept,
        "content-type": kind,
        "a2a-version": version,
        "last-event-id": cursor or "",
    }
    return {name: value for name, value in headers.items() if value}
