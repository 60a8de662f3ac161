"""Clients of each binding that validate every response against the protocol's definitions."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar

import httpx
from a2a import types as a2a
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2  # type: ignore[import-untyped]  # no py.typed
from jsonschema import Draft7Validator

from tests.e2e.wire import Json, Rpc, events, parse

SCHEMA = Path(__file__).parents[1] / "data" / "a2a-0.3.0.schema.json"
OLD_METHODS = {
    "SendMessage": ("message/send", "SendMessageResponse"),
    "SendStreamingMessage": ("message/stream", "SendStreamingMessageResponse"),
    "GetTask": ("tasks/get", "GetTaskResponse"),
    "CancelTask": ("tasks/cancel", "CancelTaskResponse"),
    "SubscribeToTask": ("tasks/resubscribe", "SendStreamingMessageResponse"),
    "CreateTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/set",
        "SetTaskPushNotificationConfigResponse",
    ),
    "GetTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/get",
        "GetTaskPushNotificationConfigResponse",
    ),
    "ListTaskPushNotificationConfigs": (
        "tasks/pushNotificationConfig/list",
        "ListTaskPushNotificationConfigResponse",
    ),
    "DeleteTaskPushNotificationConfig": (
        "tasks/pushNotificationConfig/delete",
        "DeleteTaskPushNotificationConfigResponse",
    ),
    "GetExtendedAgentCard": (
        "agent/getAuthenticatedExtendedCard",
        "GetAuthenticatedExtendedCardResponse",
    ),
}
"""For each method of 1.0: its name in 0.3, and the schema of its response there."""

RESULTS: dict[str, type[Message]] = {
    "SendMessage": a2a.SendMessageResponse,
    "SendStreamingMessage": a2a.StreamResponse,
    "GetTask": a2a.Task,
    "ListTasks": a2a.ListTasksResponse,
    "CancelTask": a2a.Task,
    "SubscribeToTask": a2a.StreamResponse,
    "CreateTaskPushNotificationConfig": a2a.TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": a2a.TaskPushNotificationConfig,
    "ListTaskPushNotificationConfigs": a2a.ListTaskPushNotificationConfigsResponse,
    "DeleteTaskPushNotificationConfig": Empty,
}
"""The message types of results in 1.0."""

ROUTES = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


def schema_of(name: str, *, closed: bool = True) -> Draft7Validator:
    """Return the validator of a definition of 0.3; *closed* forbids undefined members."""
    schema: Json = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for definition in schema["definitions"].values() if closed else ():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return Draft7Validator({**schema, "$ref": f"#/definitions/{name}"})


SCHEMAS = {name: schema_of(name) for name in {name for _, name in OLD_METHODS.values()} | {"Task"}}


class BindingClient(ABC):
    """Client of one binding that takes methods and params of 1.0 and checks every response."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    @abstractmethod
    def ask(self, method: str, params: Json) -> Json:
        """Call *method*; return the result, or an object with the `error`."""

    @abstractmethod
    def open(
        self, method: str, params: Json, last_id: int | None = None
    ) -> AbstractContextManager[Iterator[Json]]:
        """Open a stream and yield an iterator over its events."""

    def read(self, method: str, params: Json, last_id: int | None = None) -> list[Json]:
        """Return all events of a stream."""
        with self.open(method, params, last_id) as stream:
            return list(stream)

    def send(self, params: Json) -> Json:
        """Send a message and return its task."""
        result = self.ask("SendMessage", params)
        task: Json = result.get("task") or result
        return task


class JsonRpc(BindingClient):
    """1.0 over JSON-RPC."""

    headers: ClassVar = {"a2a-version": "1.0"}

    def __init__(self, http: httpx.Client) -> None:
        super().__init__(http)
        self.rpc = Rpc(http, **self.headers)

    def method_name(self, method: str) -> str:
        return method

    def translate_params(self, params: Json) -> Json:
        return params

    def ask(self, method: str, params: Json) -> Json:
        return self.check_result(
            method, self.rpc.call(self.method_name(method), self.translate_params(params))
        )

    @contextmanager
    def open(
        self, method: str, params: Json, last_id: int | None = None
    ) -> Iterator[Iterator[Json]]:
        with self.rpc.stream(
            self.method_name(method), self.translate_params(params), last_id
        ) as stream:
            yield (self.check_result(method, answer) for _, answer in stream)

    def check_result(self, method: str, answer: Json) -> Json:
        """Check a response and return its result, or the whole response if it is an error."""
        assert set(answer) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
        if "error" in answer:
            check_details(answer["error"]["data"])
            return answer
        ParseDict(answer["result"], RESULTS[method]())
        result: Json = answer["result"]
        return result


class OldJsonRpc(JsonRpc):
    """0.3 over JSON-RPC."""

    headers: ClassVar = {}

    def method_name(self, method: str) -> str:
        return OLD_METHODS[method][0] if method in OLD_METHODS else "tasks/list"

    def translate_params(self, params: Json) -> Json:
        """Translate params of 1.0 to 0.3."""
        if "message" in params:
            parts = [old_part(part) for part in params["message"]["parts"]]
            base = {"kind": "message", "role": "user"}
            params = {**params, "message": {**params["message"], **base, "parts": parts}}
        if "configuration" in params:
            wait = not params["configuration"]["returnImmediately"]
            params = {**params, "configuration": {"blocking": wait}}
        if "url" in params:
            config = {name: value for name, value in params.items() if name != "taskId"}
            return {"taskId": params["taskId"], "pushNotificationConfig": config}
        if "taskId" in params:
            config_ref = {"pushNotificationConfigId": params["id"]} if "id" in params else {}
            return {"id": params["taskId"], **config_ref}
        return params

    def check_result(self, method: str, answer: Json) -> Json:
        if method in OLD_METHODS:
            SCHEMAS[OLD_METHODS[method][1]].validate(without_status(answer))
        else:
            for task in answer["result"]["tasks"]:
                SCHEMAS["Task"].validate(task)
        result: Json = answer if "error" in answer else answer["result"]
        return result


class Rest(BindingClient):
    """1.0 over HTTP+JSON."""

    def ask(self, method: str, params: Json) -> Json:
        verb, url, options = self.request(method, params)
        response = self.http.request(verb, url, **options)
        assert response.headers["content-type"] == "application/a2a+json"
        answer: Json = parse(response.text)
        if response.is_error:
            error = answer["error"]
            assert set(error) == {"code", "status", "message", "details"}
            assert error["code"] == response.status_code
            assert code_pb2.Code.Value(error["status"])
            check_details(error["details"])
        else:
            ParseDict(answer, RESULTS[method]())
        return answer

    @contextmanager
    def open(
        self, method: str, params: Json, last_id: int | None = None
    ) -> Iterator[Iterator[Json]]:
        verb, url, options = self.request(method, params)
        headers = {} if last_id is None else {"last-event-id": str(last_id)}
        with self.http.stream(verb, url, headers=headers, **options) as response:
            yield (self.check_result(method, event) for _, event in events(response))

    def check_result(self, method: str, event: Json) -> Json:
        ParseDict(event, RESULTS[method]())
        return event

    def request(self, method: str, params: Json) -> tuple[str, str, Json]:
        verb, path = ROUTES[method]
        other_params = {name: value for name, value in params.items() if f"{{{name}}}" not in path}
        options: Json = {"json": other_params} if verb == "POST" else {"params": other_params}
        return verb, path.format(**params), options


def without_status(answer: Json) -> Json:
    """Remove the status of push configs (our extension of the protocol) from a response."""
    result = answer.get("result")
    if isinstance(result, list):
        return {**answer, "result": [strip_status(config) for config in result]}
    return {**answer, "result": strip_status(result)} if isinstance(result, dict) else answer


def strip_status(config: Json) -> Json:
    if "pushNotificationConfig" not in config:
        return config
    assert config["status"] == "active"
    return {name: value for name, value in config.items() if name != "status"}


def check_details(details: list[Json]) -> None:
    """Check that error details are typed, and the first is an ErrorInfo (A2A 1.0 §9.5, §11.6)."""
    type_name = error_details_pb2.ErrorInfo.DESCRIPTOR.full_name
    assert details[0]["@type"] == f"type.googleapis.com/{type_name}"
    for detail in details:
        ParseDict(detail, AnyMessage())


def old_part(part: Json) -> Json:
    """Translate a part of 1.0 to 0.3."""
    if "text" in part or "data" in part:
        return {"kind": "text" if "text" in part else "data", **part}
    names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
    return {"kind": "file", "file": {names[name]: value for name, value in part.items()}}
