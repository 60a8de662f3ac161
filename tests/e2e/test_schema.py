"""Every answer held against the protocol's own definitions: 0.3's schema, and 1.0's types."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import httpx
import pytest
from a2a import types as a2a
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from google.rpc.code_pb2 import Code
from jsonschema import Draft7Validator

from tests.e2e.wire import Json, Rpc, events, parse

SCHEMA = Path(__file__).parents[1] / "data" / "a2a-0.3.0.schema.json"
ANSWERS = {
    "message/send": "SendMessageResponse",
    "message/stream": "SendStreamingMessageResponse",
    "tasks/get": "GetTaskResponse",
    "tasks/cancel": "CancelTaskResponse",
    "tasks/resubscribe": "SendStreamingMessageResponse",
    "tasks/pushNotificationConfig/set": "SetTaskPushNotificationConfigResponse",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfigResponse",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigResponse",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfigResponse",
    "agent/getAuthenticatedExtendedCard": "GetAuthenticatedExtendedCardResponse",
}
RESULTS: dict[str, type[Message]] = {
    "SendMessage": a2a.SendMessageResponse,
    "SendStreamingMessage": a2a.StreamResponse,
    "GetTask": a2a.Task,
    "ListTasks": a2a.ListTasksResponse,
    "CancelTask": a2a.Task,
    "SubscribeToTask": a2a.StreamResponse,
}
PUSH = {"taskId": "t", "id": "c", "url": "https://example.com"}
OLD_PUSH = {"taskId": "t", "pushNotificationConfig": {"url": "https://example.com"}}


def definitions(*, closed: bool) -> Json:
    """The schema of 0.3; *closed*: without room for members that it does not name."""
    schema: Json = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for definition in schema["definitions"].values() if closed else ():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return schema


def checker(name: str, *, closed: bool = True) -> Draft7Validator:
    schema = {**definitions(closed=closed), "$ref": f"#/definitions/{name}"}
    return Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER)


CHECKERS = {name: checker(name) for name in {*ANSWERS.values(), "Task", "JSONRPCErrorResponse"}}


class Wire(Protocol):
    """One binding, every answer of which is checked before it is given."""

    def send(self, skill: str | None, *parts: Any, wait: bool = True, **message: str) -> Json:
        """The task of a message."""

    def stream(self, skill: str, *parts: Any) -> list[Json]:
        """The events of a message."""

    def get(self, task: Json, **params: Any) -> Json:
        """A task."""

    def cancel(self, task: Json) -> Json:
        """A task, canceled."""

    def tasks(self, **params: Any) -> list[Json]:
        """A page of tasks."""

    @contextmanager
    def subscribed(self, task: Json, last: int | None = None) -> Iterator[Iterator[Json]]:
        """The events of a task, while the stream is open."""

    def state(self, event: Json) -> str:
        """The state that a task or an event tells of."""


def old_message(skill: str | None, parts: tuple[Any, ...], **message: str) -> Json:
    content = [part if isinstance(part, dict) else {"kind": "text", "text": part} for part in parts]
    base = {"kind": "message", "messageId": str(uuid4()), "role": "user", "parts": content}
    return {"message": {**base, **message}, **({"metadata": {"skillId": skill}} if skill else {})}


class Old(Rpc):
    """A2A 0.3 over JSON-RPC."""

    def checked(self, method: str, answer: Json) -> Json:
        CHECKERS[ANSWERS[method]].validate(answer)
        return answer

    def result(self, method: str, params: Any) -> Any:
        answer = self.checked(method, self.call(method, params))
        assert "error" not in answer, answer
        return answer["result"]

    def send(self, skill: str | None, *parts: Any, wait: bool = True, **message: str) -> Json:
        params = old_message(skill, parts, **message)
        result: Json = self.result(
            "message/send", {**params, "configuration": {"blocking": wait}}
        )
        return result

    def stream_of(self, method: str, stream: Iterator[tuple[int, Json]]) -> Iterator[Json]:
        for _, answer in stream:
            yield self.checked(method, answer)["result"]

    def stream(self, skill: str, *parts: Any, method: str = "message/stream") -> list[Json]:
        with super().stream(method, old_message(skill, parts)) as stream:
            return list(self.stream_of(method, stream))

    def get(self, task: Json, **params: Any) -> Json:
        result: Json = self.result("tasks/get", {"id": task["id"], **params})
        return result

    def cancel(self, task: Json) -> Json:
        result: Json = self.result("tasks/cancel", {"id": task["id"]})
        return result

    def tasks(self, **params: Any) -> list[Json]:
        found: list[Json] = self.call("tasks/list", params)["result"]["tasks"]
        for task in found:
            CHECKERS["Task"].validate(task)
        return found
