"""Wire formats of operations: JSON-RPC of A2A 1.0 and 0.3, and HTTP+JSON of 1.0.

Requests are made from the parameters of 1.0 (§9.4, §11.3). Results are returned unchanged: the
models read both versions.
"""

from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from . import v03
from .agent_urls import path_of
from .codec import dump, load
from .errors import A2AAuthError, A2AError, A2AProtocolError, Json, is_object, server_error
from .exchange import BufferedResponse, RequestSpec, media_type, retry_after


class Operation(NamedTuple):
    """An operation of the protocol.

    Attributes:
        name: The JSON-RPC method in 1.0.
        name_v03: The JSON-RPC method in 0.3.
        http_method: The HTTP method in HTTP+JSON.
        path: The path in HTTP+JSON.
        safe: Whether the operation is read-only, and may therefore be sent twice.
        stream: Whether the response is a stream of events.
    """

    name: str
    name_v03: str
    http_method: str
    path: str
    safe: bool = True
    stream: bool = False


PUSH_V03 = "tasks/pushNotificationConfig"
CONFIGS_PATH = "/tasks/{taskId}/pushNotificationConfigs"

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
SET_PUSH = Operation(
    "CreateTaskPushNotificationConfig", f"{PUSH_V03}/set", "POST", CONFIGS_PATH, safe=False
)
GET_PUSH = Operation(
    "GetTaskPushNotificationConfig", f"{PUSH_V03}/get", "GET", CONFIGS_PATH + "/{id}"
)
LIST_PUSH = Operation("ListTaskPushNotificationConfigs", f"{PUSH_V03}/list", "GET", CONFIGS_PATH)
DELETE_PUSH = Operation(
    "DeleteTaskPushNotificationConfig",
    f"{PUSH_V03}/delete",
    "DELETE",
    CONFIGS_PATH + "/{id}",
    safe=False,
)
# A2A does not define the next four operations, so they have no JSON-RPC methods.
TASK_WEBHOOKS_PATH = "/apcore/tasks/{taskId}/webhooks"
WEBHOOKS = Operation("", "", "GET", "/apcore/webhooks")
TASK_WEBHOOKS = Operation("", "", "GET", TASK_WEBHOOKS_PATH)
TEST_WEBHOOK = Operation("", "", "POST", TASK_WEBHOOKS_PATH + "/{id}/test", safe=False)
REDELIVER_WEBHOOK = Operation("", "", "POST", TASK_WEBHOOKS_PATH + "/{id}/redeliver", safe=False)
EXTENDED_CARD = Operation(
    "GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", "GET", "/extendedAgentCard"
)


class Binding:
    """A protocol binding at a URL.

    Attributes:
        version: The A2A version.
        tenant: The tenant, where one URL serves several (§4.4.6).
        supports_streams: Whether the agent supports streams.
    """

    supports_streams = True

    def __init__(self, url: httpx.URL, version: str, tenant: str = "") -> None:
        self.url, self.version, self.tenant = url, version, tenant

    def request(self, operation: Operation, params: Json, last_event_id: str = "") -> RequestSpec:
        """Return the request for *operation*; a stream starts after the event *last_event_id*."""
        raise NotImplementedError

    def result(self, response: BufferedResponse) -> Any:
        """Return the result in a response.

        Raises:
            A2AAuthError: The status is 401 or 403.
            A2AServerError: The agent refused the request, or a proxy did (HTTP 429 or higher).
            A2AProtocolError: The response is not A2A.
        """
        if response.status in (401, 403):
            raise A2AAuthError(response.status, response.headers.get("www-authenticate", ""))
        return self.parse(response.body, response)

    def parse(self, data: bytes, response: BufferedResponse | None = None) -> Any:
        """Return the result in *data*: the body of *response* if there is one, or else an event."""
        body = parse_object(data if data.strip() else b"{}", response)
        if body.get("error") is not None:
            raise refusal(body["error"], response)
        return self._unwrap(body, response)

    def _unwrap(self, body: Json, response: BufferedResponse | None) -> Any:
        raise NotImplementedError


class JSONRPC(Binding):
    """JSON-RPC 2.0 over HTTP POST, of A2A 1.0 (§9) or 0.3."""

    ids = count(1)

    def request(self, operation: Operation, params: Json, last_event_id: str = "") -> RequestSpec:
        """Return the request for *operation*; a stream starts after the event *last_event_id*."""
        is_v03 = self.version == "0.3"
        tenant = {"tenant": self.tenant} if self.tenant else {}
        params = v03.params(operation.name, params) if is_v03 else {**params, **tenant}
        method = operation.name_v03 if is_v03 else operation.name
        body = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}
        version = "" if is_v03 else self.version
        headers = _headers("application/json", version, operation, last_event_id)
        stream = operation.stream
        return RequestSpec("POST", self.url, operation.safe, stream, headers, content=dump(body))

    def _unwrap(self, body: Json, response: BufferedResponse | None) -> Any:
        if "result" not in body:
            raise not_a2a(response)
        return body["result"]


class HTTPJSON(Binding):
    """HTTP+JSON of A2A 1.0 (§11)."""

    def request(self, operation: Operation, params: Json, last_event_id: str = "") -> RequestSpec:
        """Return the request for *operation*; a stream starts after the event *last_event_id*."""
        path = operation.path
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                params = dict(params)
                # `quote` keeps dots, and a segment of only dots would change the path.
                if params[name] in (".", ".."):
                    raise A2AProtocolError(f"{params[name]!r} can't be the {name} in a path")
                path = path.replace(f"{{{name}}}", quote(params.pop(name), safe=""))
        tenant = f"/{quote(self.tenant, safe='')}" if self.tenant else ""
        url = self.url.copy_with(raw_path=path_of(self.url) + f"{tenant}{path}".encode())
        has_body = operation.http_method == "POST"
        content_type = "application/a2a+json" if has_body else ""
        headers = _headers(content_type, self.version, operation, last_event_id)
        spec = RequestSpec(operation.http_method, url, operation.safe, operation.stream, headers)
        return spec._replace(content=dump(params)) if has_body else spec._replace(params=params)

    def _unwrap(self, body: Json, response: BufferedResponse | None) -> Any:
        if response and response.status >= 300:
            raise not_a2a(response)
        return body


def parse_object(data: bytes, response: BufferedResponse | None = None) -> Json:
    """Return the JSON object in *data*, the body of *response* or an event of a stream."""
    try:
        value = load(data)
    except A2AProtocolError:
        raise not_a2a(response) from None
    if not is_object(value):
        raise not_a2a(response)
    return value


def refusal(error: Any, response: BufferedResponse | None) -> A2AError:
    """Return the exception for *error* in *response*, or in an event of a stream."""
    if response is None:
        return server_error(error, 200)
    delay = retry_after(response.headers, 0) if "retry-after" in response.headers else None
    return server_error(error, response.status, delay)


def not_a2a(response: BufferedResponse | None) -> A2AError:
    """Return the exception for a response, or an event of a stream, that is not A2A."""
    if response is None:
        return A2AProtocolError("An event of the stream is not A2A")
    # Proxies and load balancers respond with these statuses and an HTML page.
    if response.status >= 429:
        return refusal({}, response)
    content_type = media_type(response.headers) or "no content type"
    return A2AProtocolError(f"The response is not A2A: HTTP {response.status}, {content_type}")


def _headers(
    content_type: str, version: str, operation: Operation, last_event_id: str
) -> dict[str, str]:
    accept = "application/json, application/a2a+json"
    headers = {
        "accept": "text/event-stream, " + accept if operation.stream else accept,
        "content-type": content_type,
        "a2a-version": version,
        "last-event-id": last_event_id,
    }
    return {name: value for name, value in headers.items() if value}
