"""What is sent to agents of A2A 0.3, made of the same in 1.0."""

from __future__ import annotations

from typing import Any

from .errors import Json, is_object
from .tasks import Message, Part, PushNotificationConfig, TaskState


def params(operation: str, given: Json) -> Json:
    """The params of *operation* (by its name in 1.0) as 0.3 has them."""
    result = dict(given)
    if "message" in result:
        result["message"] = message(Message.from_dict(result["message"]))
        if "configuration" in result:
            result["configuration"] = _configuration(result["configuration"])
    elif operation == "CreateTaskPushNotificationConfig":
        result = {"taskId": given["taskId"], "pushNotificationConfig": push_config(given)}
    elif "taskId" in result:
        result = {"id": given["taskId"], "pushNotificationConfigId": given.get("id")}
        result = {name: value for name, value in result.items() if value is not None}
    elif operation == "ListTasks":
        names = {"pageSize": "limit", "pageToken": "cursor"}
        result = {names.get(name, name): value for name, value in given.items()}
        if "status" in result:
            result["status"] = TaskState.read(result["status"]).value
    return result


def message(source: Message) -> Json:
    """A message as 0.3 has it.

    Example:
        ```python
        from apcore_a2a_client import Message
        from apcore_a2a_client.v03 import message

        print(message(Message.of("hi"))["parts"])
        #> [{'kind': 'text', 'text': 'hi'}]
        ```
    """
    parts = [part(each) for each in source.parts]
    return {**source.to_dict(), "kind": "message", "role": source.role.value, "parts": parts}


def part(source: Part) -> Json:
    """A part as 0.3 has it: data that is no object stands in one, as with a2a-sdk."""
    metadata = dict(source.metadata)
    names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
    given = source.to_dict()
    result: Json = {name: given[name] for name in source.extra}
    if source.text is not None:
        result |= {"kind": "text", "text": source.text}
    elif "data" not in given:
        file = {names[name]: given[name] for name in names if name in given}
        result |= {"kind": "file", "file": file}
    elif is_object(source.data):
        result |= {"kind": "data", "data": source.data}
    else:
        result |= {"kind": "data", "data": {"value": source.data}}
        metadata["data_part_compat"] = True
    return {**result, "metadata": metadata} if metadata else result


def push_config(given: Json) -> Json:
    """A webhook as 0.3 has it, without its task."""
    config = PushNotificationConfig.from_dict(given)
    result: Json = {k: v for k, v in config.to_dict().items() if k not in ("taskId", "tenant")}
    if config.authentication:
        known = config.authentication.to_dict()
        result["authentication"] = {"schemes": [known.pop("scheme")], **known}
    return result


def _configuration(given: Json) -> Json:
    result: dict[str, Any] = dict(given)
    result["blocking"] = not result.pop("returnImmediately", False)
    if "taskPushNotificationConfig" in result:
        config = result.pop("taskPushNotificationConfig")
        result["pushNotificationConfig"] = push_config(config)
    return result
