"""Conversion of our data (`apcore_a2a_core.data`) to the JSON of A2A 1.0 and 0.3."""

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import UNSET

from apcore_a2a_core import error_details
from apcore_a2a_core.data import (
    Artifact,
    Data,
    Json,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core.records import Payload, Version, shortened
from apcore_a2a_core.states import AGENT, NAMES, SETTLED

Document: TypeAlias = Json | Data
"""Our data, or a JSON object that may contain our data; see `values.dump_json`."""


class V1:
    """The dialect of A2A 1.0, which is the JSON of our data."""

    version: Version = "1.0"

    def document(self, value: Data) -> Document:
        """Return *value* in the dialect."""
        return value

    def task(
        self, task: Task, history_length: int | None = None, *, artifacts: bool = True
    ) -> Document:
        """Return a task with its *history_length* latest messages (§3.2.4)."""
        return self.document(shortened(task, history_length, artifacts=artifacts))

    def send_result(self, task: Task, history_length: int | None) -> Document:
        """Return the result of a request that sends a message."""
        return {"task": self.task(task, history_length)}

    def event(
        self,
        payload: Payload,
        history_length: int | None = None,
        *,
        until: frozenset[TaskState] = SETTLED,
    ) -> Document:
        """Return the result that carries one event of a stream (§3.2.3).

        Args:
            payload: The event.
            history_length: Maximum number of messages in a task; None for all.
            until: The states in which the stream ends; in 0.3, their status updates are `final`.
        """
        # most frequent type first: an `isinstance` that fails is slow for structs
        if isinstance(payload, TaskArtifactUpdateEvent):
            return {"artifactUpdate": self.document(payload)}
        if isinstance(payload, TaskStatusUpdateEvent):
            return {"statusUpdate": self.document(payload)}
        return {"task": self.task(payload, history_length)}

    def error(self, error: Json) -> Json:
        """Return a JSON-RPC error object (§9.5), whose `data` is a list of typed objects."""
        return {**error, "data": error_details(error)}


class V03(V1):
    """The dialect of A2A 0.3: types are named by `kind`, and states and roles are in lower case."""

    version = "0.3"

    def document(self, value: Data) -> Json:
        """Return a message, a part, an artifact, a task or an event in the dialect."""
        document: Json = WRITERS_03[type(value)](value)
        return document

    def send_result(self, task: Task, history_length: int | None) -> Document:
        """Return the result of a request that sends a message: the task itself."""
        return self.task(task, history_length)

    def event(
        self,
        payload: Payload,
        history_length: int | None = None,
        *,
        until: frozenset[TaskState] = SETTLED,
    ) -> Document:
        """Return the result that carries one event of a stream: the payload itself."""
        if isinstance(payload, TaskArtifactUpdateEvent):
            return self.document(payload)
        if isinstance(payload, TaskStatusUpdateEvent):
            return {**self.document(payload), "final": payload.status.state in until}
        return self.task(payload, history_length)

    def error(self, error: Json) -> Json:
        """Return *error* unchanged."""
        return error


def _non_empty(**members: Any) -> Json:
    """Return the members that are not empty."""
    return {name: value for name, value in members.items() if value}


# Most of the following functions test each member by itself: `_non_empty` takes twice as long.


def _task(task: Task) -> Json:
    document: Json = {"kind": "task"}
    if task.id:
        document["id"] = task.id
    if task.context_id:
        document["contextId"] = task.context_id
    document["status"] = _status(task.status)
    if task.artifacts:
        document["artifacts"] = [*map(_artifact, task.artifacts)]
    if task.history:
        document["history"] = [*map(_message, task.history)]
    if task.metadata:
        document["metadata"] = task.metadata
    return document


def _status(status: TaskStatus) -> Json:
    document: Json = {"state": NAMES[status.state]}
    if status.message is not None:
        document["message"] = _message(status.message)
    if status.timestamp:
        document["timestamp"] = status.timestamp
    return document


def _message(message: Message) -> Json:
    document: Json = {"kind": "message"}
    if message.message_id:
        document["messageId"] = message.message_id
    if message.context_id:
        document["contextId"] = message.context_id
    if message.task_id:
        document["taskId"] = message.task_id
    document["role"] = "agent" if message.role is AGENT else "user"
    if message.parts:
        document["parts"] = [*map(_part, message.parts)]
    if message.metadata:
        document["metadata"] = message.metadata
    if message.extensions:
        document["extensions"] = message.extensions
    if message.reference_task_ids:
        document["referenceTaskIds"] = message.reference_task_ids
    return document


def _artifact(artifact: Artifact) -> Json:
    document: Json = {}
    if artifact.artifact_id:
        document["artifactId"] = artifact.artifact_id
    if artifact.name:
        document["name"] = artifact.name
    if artifact.description:
        document["description"] = artifact.description
    if artifact.parts:
        document["parts"] = [*map(_part, artifact.parts)]
    if artifact.metadata:
        document["metadata"] = artifact.metadata
    if artifact.extensions:
        document["extensions"] = artifact.extensions
    return document


def _status_update(event: TaskStatusUpdateEvent) -> Json:
    return {
        "kind": "status-update",
        "taskId": event.task_id,
        "contextId": event.context_id,
        "status": _status(event.status),
        "final": event.status.state in SETTLED,
        **_non_empty(metadata=event.metadata),
    }


def _artifact_update(event: TaskArtifactUpdateEvent) -> Json:
    document: Json = {
        "kind": "artifact-update",
        "taskId": event.task_id,
        "contextId": event.context_id,
        "artifact": _artifact(event.artifact),
        "append": event.append,
    }
    if event.last_chunk:
        document["lastChunk"] = True
    if event.metadata:
        document["metadata"] = event.metadata
    return document


def _part(part: Part) -> Json:
    """Convert a part to 0.3, where data must be an object: wrap other values as the SDK does."""
    metadata = part.metadata
    if part.text is not UNSET:
        result: Json = {"kind": "text", "text": part.text}
    elif part.data is UNSET:
        result = {"kind": "file", "file": file_03(part)}
    elif part.data.__class__ is dict:
        result = {"kind": "data", "data": part.data}
    else:
        result = {"kind": "data", "data": {"value": part.data}}
        metadata = {**metadata, "data_part_compat": True}
    if metadata:
        result["metadata"] = metadata
    return result


def file_03(part: Part) -> Json:
    """Return the `file` object of a part in 0.3."""
    # tasks in an SDK store may have parts without content: such a part gets an empty URL
    content: Json = {"uri": part.url or ""} if part.raw is UNSET else {"bytes": part.raw}
    return {**content, **_non_empty(name=part.filename, mimeType=part.media_type)}


WRITERS_03: dict[type[Data], Callable[[Any], Json]] = {
    Part: _part,
    Message: _message,
    Artifact: _artifact,
    Task: _task,
    TaskStatusUpdateEvent: _status_update,
    TaskArtifactUpdateEvent: _artifact_update,
}
