"""HTTP+JSON of A2A 0.3: the JSON of its protocol buffers, with other member names than JSON-RPC.

The SDKs of 0.3 write and read ProtoJSON in this binding, while the specification (0.3 §3.2.3) has
the same objects as in JSON-RPC. Requests are accepted in both forms; results are ProtoJSON, since
the official Python SDK refuses members that it does not know.
"""

from typing import Any

from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP
from msgspec import to_builtins

from apcore_a2a_core.data import Data, Json, TaskState, TaskStatusUpdateEvent
from apcore_a2a_core.records import Payload
from apcore_a2a_core.states import SETTLED
from apcore_a2a_core.values import is_array, is_object

from .decode import invalid
from .encode import V1, Document

FILE_NAMES = {
    "fileWithUri": "uri",
    "file_with_uri": "uri",
    "fileWithBytes": "bytes",
    "file_with_bytes": "bytes",
    "mime_type": "mimeType",
}
"""Members of a file in ProtoJSON, and their names in JSON-RPC."""
PUSH_CONFIG_NAMES = {
    "pushNotification": "pushNotificationConfig",
    "push_notification": "pushNotificationConfig",
}
MESSAGE_FIELDS = ("messageId", "contextId", "taskId", "role", "metadata", "extensions")
ERROR_TYPES = {code: kind.__name__ for kind, code in JSON_RPC_ERROR_CODE_MAP.items()} | {
    -32007: "AuthenticatedExtendedCardNotConfiguredError"  # renamed in 1.0
}
"""Names of the errors of 0.3 (§8.2) by their JSON-RPC codes."""


def read_send(body: Json) -> Json:
    """Return the params of `message/send` from a body in the JSON of JSON-RPC or in ProtoJSON.

    ProtoJSON omits a false `blocking`, so it is false if a ProtoJSON configuration lacks it.

    Raises:
        InvalidParamsError: A member is given in two spellings.

    Example:
        ```python
        from apcore_a2a_core.dialects.protojson03 import read_send

        print(read_send({"request": {"content": [{"data": {"data": {"n": 1}}}]}}))
        #> {'message': {'parts': [{'data': {'n': 1}}], 'kind': 'message'}}
        ```
    """
    body = _renamed(body, {"request": "message"}, "params")
    message, configuration = body.get("message"), body.get("configuration")
    is_protojson = False
    if is_object(message) and "content" in message:
        is_protojson = True
        message = _renamed(message, {"content": "parts"}, "params.message")
        parts: Any = message["parts"]
        parts = [*map(_read_part, parts)] if is_array(parts) else parts
        body = {**body, "message": {**message, "parts": parts, "kind": "message"}}
    if is_object(configuration):
        configuration = _renamed(configuration, PUSH_CONFIG_NAMES, "params.configuration")
        defaults = {"blocking": False} if is_protojson else {}
        body = {**body, "configuration": {**defaults, **configuration}}
    return body


def read_push_config(body: Json) -> Json:
    """Return the push config in *body* as in JSON-RPC; the caller adds the task id."""
    config = body.get("config")
    config = config if is_object(config) else body
    names = {"push_notification_config": "pushNotificationConfig"}
    config = _renamed(config, names, "params.config")
    nested = config.get("pushNotificationConfig")
    if not is_object(nested):
        return config
    config_id = body.get("configId") or body.get("config_id")
    given_id = {"id": config_id} if config_id and not nested.get("id") else {}
    return {"pushNotificationConfig": {**nested, **given_id}}


def write_push_config(document: Json) -> Json:
    """Return a push config of 0.3 as ProtoJSON; its `name` contains the ids of task and config."""
    config = document["pushNotificationConfig"]
    name = f"tasks/{document['taskId']}/pushNotificationConfigs/{config['id']}"
    return {"name": name, "pushNotificationConfig": config}


def _renamed(value: Json, names: dict[str, str], path: str) -> Json:
    """Return *value* with its members renamed by *names*.

    Raises:
        InvalidParamsError: A member is given under two names.
    """
    if names.keys().isdisjoint(value):
        return value
    result: Json = {}
    for name, item in value.items():
        new_name = names.get(name, name)
        if new_name in result:
            raise invalid(f"{path}.{new_name}", "must not be given under two names")
        result[new_name] = item
    return result


def _read_part(part: Any) -> Any:
    """Return a part as in JSON-RPC; leave values that are not objects for the decoder to refuse."""
    if not is_object(part):
        return part
    file, data = part.get("file"), part.get("data")
    if is_object(file):
        return {**part, "file": _renamed(file, FILE_NAMES, "params.message.content.file")}
    if is_object(data) and data.keys() <= {"data"}:
        return {**part, "data": data.get("data", {})}
    return part


class V03ProtoJson(V1):
    """The dialect of HTTP+JSON of A2A 0.3."""

    version = "0.3"

    def document(self, value: Data) -> Json:
        """Return a task or an event in the dialect."""
        document: Json = to_builtins(value)
        _adapt(document)
        return document

    def event(
        self,
        payload: Payload,
        history_length: int | None = None,
        *,
        until: frozenset[TaskState] = SETTLED,
    ) -> Document:
        """Return one event of a stream; `final` in a status update is true if the stream ends."""
        if isinstance(payload, TaskStatusUpdateEvent):
            is_final = payload.status.state in until
            return {"statusUpdate": {**self.document(payload), "final": is_final}}
        return super().event(payload, history_length)

    def error(self, error: Json) -> Json:
        """Return a JSON-RPC error with the name of its type, since some SDKs read only that."""
        kind = ERROR_TYPES.get(error["code"])
        return {**error, "type": kind} if kind else error


def _adapt(document: Json) -> None:
    """Convert a task or an event from 1.0, in place."""
    for artifact in [*document.get("artifacts", ()), *_member(document, "artifact")]:
        artifact["parts"] = [*map(_part, artifact.get("parts", ()))]
    for status in _member(document, "status"):
        if status.get("state") == TaskState.TASK_STATE_CANCELED:
            status["state"] = "TASK_STATE_CANCELLED"
        if "message" in status:
            status["message"] = _message(status["message"])
    if "history" in document:
        document["history"] = [*map(_message, document["history"])]


def _member(document: Json, name: str) -> list[Json]:
    """Return a list with the member; empty if it is missing."""
    return [document[name]] if name in document else []


def _part(part: Json) -> Json:
    """Convert a part; wrap data in an object if it is not one, as the SDK does."""
    metadata = part.get("metadata", {})
    if "text" in part:
        result: Json = {"text": part["text"]}
    elif "data" not in part:
        result = {"file": _file(part)}
    elif isinstance(part["data"], dict):
        result = {"data": {"data": part["data"]}}
    else:
        result = {"data": {"data": {"value": part["data"]}}}
        metadata = {**metadata, "data_part_compat": True}
    return {**result, "metadata": metadata} if metadata else result


def _file(part: Json) -> Json:
    """Convert a file, whose bytes become a `data:` URI (RFC 2397).

    The SDKs for Python encode `fileWithBytes` in base64 twice, and those for JavaScript once, so
    there is no value that both would read correctly.
    """
    media_type, encoded = part.get("mediaType", ""), part.get("raw")
    uri = part.get("url") if encoded is None else f"data:{media_type};base64,{encoded}"
    members = {"fileWithUri": uri, "mimeType": media_type, "name": part.get("filename")}
    return {name: value for name, value in members.items() if value}


def _message(message: Json) -> Json:
    """Convert a message; omit members that the protocol buffers of 0.3 do not have."""
    members = {name: item for name, item in message.items() if name in MESSAGE_FIELDS}
    return {**members, "content": [*map(_part, message.get("parts", ()))]}
