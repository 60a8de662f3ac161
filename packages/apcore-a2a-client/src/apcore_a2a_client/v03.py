"""Conversion of requests from A2A 1.0 to 0.3."""

from __future__ import annotations

from typing import Any

from .errors import Json, is_object
from .tasks import Message, Part, PushNotificationConfig, TaskState


def params(operation: str, params_v1: Json) -> Json:
    """Return the parameters of *operation*, a method name of 1.0, in the format of 0.3."""
    result = dict(params_v1)
    if "message" in result:
        result["message"] = message(Message.from_dict(result["message"]))
        if "configuration" in result:
            result["configuration"] = _configuration(result["configuration"])
    elif operation == "CreateTaskPushNotificationConfig":
        config = push_config(params_v1)
        result = {"taskId": params_v1["taskId"], "pushNotificationConfig": config}
    elif "taskId" in result:  # the other operations on push configs
        result = {"id": params_v1["taskId"], "pushNotificationConfigId": params_v1.get("id")}
        result = {name: value for name, value in result.items() if value is not None}
    elif operation == "ListTasks":
        v03_names = {"pageSize": "limit", "pageToken": "cursor"}
        result = {v03_names.get(name, name): value for name, value in params_v1.items()}
        if "status" in result:
            result["status"] = TaskState.read(result["status"]).value
    return result


def message(source: Message) -> Json:
    """Return a message in the format of 0.3.

    Example:
        ```python
        from apcore_a2a_client import Message
        from apcore_a2a_client.v03 import message

        print(message(Message.of("hi"))["parts"])
        #> [{'kind': 'text', 'text': 'hi'}]
        ```
    """
    parts = [part(part_v1) for part_v1 in source.parts]
    return {**source.to_dict(), "kind": "message", "role": source.role.value, "parts": parts}


def part(source: Part) -> Json:
    """Return a part in the format of 0.3, where data must be an object.

    As in a2a-sdk, other data is wrapped in an object, and the metadata says so.
    """
    metadata = dict(source.metadata)
    file_names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
    fields_v1 = source.to_dict()
    result: Json = {name: fields_v1[name] for name in source.extra}
    if source.text is not None:
        result |= {"kind": "text", "text": source.text}
    elif "data" not in fields_v1:
        file = {file_names[name]: fields_v1[name] for name in file_names if name in fields_v1}
        result |= {"kind": "file", "file": file}
    elif is_object(source.data):
        result |= {"kind": "data", "data": source.data}
    else:
        result |= {"kind": "data", "data": {"value": source.data}}
        metadata["data_part_compat"] = True
    return {**result, "metadata": metadata} if metadata else result


def push_config(config_v1: Json) -> Json:
    """Return a push config in the format of 0.3, without its task id and tenant."""
    config = PushNotificationConfig.from_dict(config_v1)
    result: Json = {k: v for k, v in config.to_dict().items() if k not in ("taskId", "tenant")}
    if config.authentication:
        authentication = config.authentication.to_dict()
        scheme = authentication.pop("scheme")
        result["authentication"] = {"schemes": [scheme], **authentication}
    return result


def _configuration(configuration_v1: Json) -> Json:
    result: dict[str, Any] = dict(configuration_v1)
    result["blocking"] = not result.pop("returnImmediately", False)
    if "taskPushNotificationConfig" in result:
        config = result.pop("taskPushNotificationConfig")
        result["pushNotificationConfig"] = push_config(config)
    return result
