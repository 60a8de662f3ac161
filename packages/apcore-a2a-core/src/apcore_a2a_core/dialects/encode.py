"""Conversion of the SDK's 1.0 types to JSON of A2A 1.0 or 0.3.

The conversion follows the descriptors of the SDK, but does not use its converters, which take
several times as long and turn integers into floats. Tests compare the results with theirs.
"""

import base64
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from a2a import types as a2a
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from apcore_a2a_core import error_details, from_struct, from_value
from apcore_a2a_core.records import Payload, Version, shortened
from apcore_a2a_core.states import NAMES, SETTLED

Json: TypeAlias = dict[str, Any]

STREAMED: dict[type[Payload], str] = {
    a2a.Task: "task",
    a2a.TaskStatusUpdateEvent: "statusUpdate",
    a2a.TaskArtifactUpdateEvent: "artifactUpdate",
}


class V1:
    """The dialect of A2A 1.0 (ProtoJSON, §5.5)."""

    version: Version = "1.0"
    shapes: ClassVar[dict[type[Message], Callable[[Json], Json]]] = {}
    """Functions that adapt the JSON of a message to the dialect, by type of message."""

    def __init__(self) -> None:
        self._writers: dict[FieldDescriptor, tuple[str, Callable[[Any], Any]]] = {}

    def message(self, message: Message) -> Json:
        """Return the JSON of any message of the SDK."""
        result: Json = {}
        for field, value in message.ListFields():
            name, write = self._writers.get(field) or self._writer(field)
            result[name] = write(value)
        shape = self.shapes.get(type(message))
        return result if shape is None else shape(result)

    def _writer(self, field: FieldDescriptor) -> tuple[str, Callable[[Any], Any]]:
        write = self._write(field)
        if field.is_repeated:
            self._writers[field] = field.json_name, lambda values: [write(v) for v in values]
        else:
            self._writers[field] = field.json_name, write
        return self._writers[field]

    def _write(self, field: FieldDescriptor) -> Callable[[Any], Any]:
        if field.message_type is not None:
            return _WELL_KNOWN.get(field.message_type.name, self.message)
        if field.enum_type is not None:
            return {value.number: value.name for value in field.enum_type.values}.__getitem__
        return _base64 if field.type == field.TYPE_BYTES else lambda value: value

    def task(
        self, task: a2a.Task, history_length: int | None = None, *, artifacts: bool = True
    ) -> Json:
        """Return the JSON of a task with its *history_length* latest messages (§3.2.4)."""
        return self.message(shortened(task, history_length, artifacts=artifacts))

    def sent(self, task: a2a.Task, history_length: int | None) -> Json:
        """Return the result of a send."""
        return {"task": self.task(task, history_length)}

    def event(
        self,
        payload: Payload,
        history_length: int | None = None,
        *,
        until: frozenset[int] = SETTLED,
    ) -> Json:
        """Return the result of one event of a stream (§3.2.3).

        Args:
            payload: The event.
            history_length: The number of messages that a task has at most; None for all.
            until: The states in which the stream ends, for the `final` of 0.3.
        """
        return {STREAMED[type(payload)]: self._payload(payload, history_length)}

    def _payload(self, payload: Payload, history_length: int | None) -> Json:
        if isinstance(payload, a2a.Task):
            return self.task(payload, history_length)
        return self.message(payload)

    def error(self, error: Json) -> Json:
        """Return a JSON-RPC error object (§9.5), whose details are a list of typed objects."""
        return {**error, "data": error_details(error)}


class V03(V1):
    """The dialect of A2A 0.3: types are named by `kind`, states and roles are in lower case."""

    version = "0.3"

    def _write(self, field: FieldDescriptor) -> Callable[[Any], Any]:
        if field.enum_type is None:
            return super()._write(field)
        return NAMES.__getitem__ if field.enum_type.name == "TaskState" else _role

    def sent(self, task: a2a.Task, history_length: int | None) -> Json:
        """Return the result of a send: the task itself."""
        return self.task(task, history_length)

    def event(
        self,
        payload: Payload,
        history_length: int | None = None,
        *,
        until: frozenset[int] = SETTLED,
    ) -> Json:
        """Return the result of one event of a stream: the payload itself."""
        result = self._payload(payload, history_length)
        if isinstance(payload, a2a.TaskStatusUpdateEvent):
            result["final"] = payload.status.state in until
        return result

    def error(self, error: Json) -> Json:
        """Return *error* unchanged."""
        return error


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _role(role: int) -> str:
    return "agent" if role == a2a.Role.ROLE_AGENT else "user"


def _part(part: Json) -> Json:
    """Convert a part to 0.3, where data must be objects; others are wrapped as the SDK does."""
    metadata = part.get("metadata", {})
    if "text" in part:
        result: Json = {"kind": "text", "text": part["text"]}
    elif "data" not in part:
        result = {"kind": "file", "file": _file(part)}
    elif isinstance(part["data"], dict):
        result = {"kind": "data", "data": part["data"]}
    else:
        result = {"kind": "data", "data": {"value": part["data"]}}
        metadata = {**metadata, "data_part_compat": True}
    return {**result, "metadata": metadata} if metadata else result


def _file(part: Json) -> Json:
    names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
    return {new: part[old] for old, new in names.items() if old in part}


_WELL_KNOWN: dict[str, Callable[[Any], Any]] = {
    "Struct": from_struct,
    "Value": from_value,
    "Timestamp": lambda value: value.ToJsonString(),
}
_FINAL = frozenset(NAMES[state] for state in SETTLED)

V03.shapes = {
    a2a.Part: _part,
    a2a.Message: lambda body: {"kind": "message", **body},
    a2a.Task: lambda body: {"kind": "task", **body},
    a2a.TaskStatusUpdateEvent: lambda body: {
        "kind": "status-update",
        **body,
        "final": body["status"]["state"] in _FINAL,
    },
    a2a.TaskArtifactUpdateEvent: lambda body: {
        "kind": "artifact-update",
        "append": False,
        **body,
    },
}
