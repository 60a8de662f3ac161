"""Messages, tasks and events: one model of each for A2A 1.0 and 0.3 (A2A 1.0 §4.1, §4.2)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from .codec import Model, ProtocolEnum, StreamedModel, empty_object, model
from .errors import A2AProtocolError, Json, is_list, is_object


class TaskState(ProtocolEnum):
    """The state of a task (§4.1.3). Each state equals its spelling in 0.3, such as `"working"`."""

    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    INPUT_REQUIRED = "input-required"
    REJECTED = "rejected"
    AUTH_REQUIRED = "auth-required"
    UNSPECIFIED = "unknown"

    @property
    def is_terminal(self) -> bool:
        """Whether the task has ended."""
        return self in ("completed", "failed", "canceled", "rejected")

    @property
    def is_paused(self) -> bool:
        """Whether the task waits for input or authentication."""
        return self in ("input-required", "auth-required")

    @property
    def is_settled(self) -> bool:
        """Whether the task has ended, or is paused until the client answers."""
        return self.is_terminal or self.is_paused


CONTENT_FIELDS = ("text", "raw", "url", "data")
"""The fields for the content of a part; exactly one of them is set."""


class Role(ProtocolEnum):
    """The sender of a message."""

    USER = "user"
    AGENT = "agent"
    UNSPECIFIED = "unspecified"


@model
class Part(Model):
    """A piece of content: either `text`, `raw`, `url` or `data`, which may be any JSON (§4.1.6).

    Example:
        ```python
        from apcore_a2a_client import Part

        print(Part(data={"n": 5}).to_dict())
        #> {'data': {'n': 5}}
        ```
    """

    text: str | None = None
    data: Any = None
    raw: bytes | None = None
    url: str | None = None
    filename: str = ""
    media_type: str = ""
    metadata: Mapping[str, Any] = field(default_factory=empty_object)

    @property
    def value(self) -> Any:
        """The content: text, bytes, a JSON value, or the URL of a file."""
        contents = (self.text, self.raw, self.url)
        return next((content for content in contents if content is not None), self.data)

    def to_dict(self) -> Json:
        """Return the JSON of A2A 1.0; `data` that is null is kept."""
        result = Model.to_dict(self)
        return result if result.keys() & set(CONTENT_FIELDS) else {"data": None, **result}

    @classmethod
    def of(cls, content: Any) -> "Part":
        """Return *content* as a part: a str as text, bytes as a file, anything else as data."""
        if isinstance(content, cls):
            return content
        if isinstance(content, str):
            return cls(text=content)
        return cls(raw=content) if isinstance(content, bytes) else cls(data=content)

    @classmethod
    def _upgrade(cls, data: Json) -> Json:
        file = data.pop("file", None)
        if is_object(file):
            v1_names = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
            data |= {v1_names.get(name, name): value for name, value in file.items()}
        metadata, wrapper = data.get("metadata"), data.get("data")
        if is_object(metadata) and "data_part_compat" in metadata and is_object(wrapper):
            # Data of 0.3 must be an object: a2a-sdk wraps other values like this.
            data["data"] = wrapper.get("value")
            data["metadata"] = {k: v for k, v in metadata.items() if k != "data_part_compat"}
        kind = data.pop("kind", None)
        kind = kind[:50] if isinstance(kind, str) else "none"
        content_fields = [name for name in CONTENT_FIELDS if data.get(name) is not None]
        if len(content_fields) > 1 or not (content_fields or "data" in data):
            raise A2AProtocolError(
                f"the part has no content, several contents, or an unknown kind: {kind!r}"
            )
        return data


def value_of(parts: Sequence[Part]) -> Any:
    """Return the content of *parts* as a Python value; see `Artifact.value`."""
    values = [part.value for part in parts]
    if len(values) < 2:
        return values[0] if values else None
    if all(part.text is not None for part in parts):
        return "".join(values)
    if is_object(values[0]) and all(part.raw is not None and part.filename for part in parts[1:]):
        combined = {**values[0], **{part.filename: part.raw for part in parts[1:]}}
        if len(combined) == len(values[0]) + len(values) - 1:  # no name occurs twice
            return combined
    return values


@model
class Message(StreamedModel):
    """A message from the user or the agent (§4.1.4)."""

    parts: tuple[Part, ...] = ()
    role: Role = Role.UNSPECIFIED
    message_id: str = ""
    context_id: str = ""
    task_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=empty_object)
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def value(self) -> Any:
        """The content as a Python value; see `Artifact.value`."""
        return value_of(self.parts)

    @classmethod
    def of(
        cls, content: Any, *, context_id: str | None = None, task_id: str | None = None
    ) -> "Message":
        """Return *content* as a message; a missing role becomes user, and a missing id is added.

        Args:
            content: A str, bytes (a file), a dict (data) or a Part; a list of these; or a Message.
            context_id: The conversation; by default that of the message.
            task_id: The task to answer; by default that of the message.
        """
        from uuid import uuid4  # slow to import

        message = content if isinstance(content, Message) else cls(_parts(content))
        return replace(
            message,
            role=Role.USER if message.role == Role.UNSPECIFIED else message.role,
            message_id=message.message_id or str(uuid4()),
            context_id=context_id or message.context_id,
            task_id=task_id or message.task_id,
        )


def _parts(content: Any) -> tuple[Part, ...]:
    is_one = not isinstance(content, Sequence) or isinstance(
        content, str | bytes | bytearray | memoryview
    )
    contents: Sequence[Any] = [content] if is_one else [*content]
    return tuple(map(Part.of, contents))


@model
class TaskStatus(Model):
    """The state of a task, a message about it, and the time of this status (RFC 3339; §4.1.2)."""

    state: TaskState
    message: Message | None = None
    timestamp: str = ""


@model
class Artifact(Model):
    """An output of a task (§4.1.7)."""

    artifact_id: str = ""
    parts: tuple[Part, ...] = ()
    name: str = ""
    description: str = ""
    metadata: Mapping[str, Any] = field(default_factory=empty_object)
    extensions: tuple[str, ...] = ()

    @property
    def value(self) -> Any:
        """The content as a Python value.

        A single part becomes its value, several texts are joined, and an object followed by named
        files becomes one dict, if no name occurs twice. Other parts become a list of values; no
        parts become None.
        """
        return value_of(self.parts)


@model
class TaskStatusUpdateEvent(StreamedModel):
    """A change of a task's status (§4.2.1)."""

    task_id: str
    status: TaskStatus
    context_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=empty_object)


@model
class Restarted(TaskStatusUpdateEvent):
    """A restart of the task, reported just before the event that showed it.

    The replica that ran the task was lost, and another one runs it again from the start: discard
    the chunks so far, since they will be repeated. Agents do not send this event: the client adds
    it when it sees a restart. Signs of a restart are the metadata of a status (agents of this
    project), an artifact that is gone, or an artifact of several parts that suddenly has other or
    fewer parts. The status in this event is the one before the restart.
    """


@model
class TaskArtifactUpdateEvent(StreamedModel):
    """A new artifact, or a further chunk of one (§4.2.2)."""

    task_id: str
    artifact: Artifact
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False
    metadata: Mapping[str, Any] = field(default_factory=empty_object)


@model
class Task(StreamedModel):
    """A unit of work (§4.1.1).

    An agent may answer with a message instead of a task. The client then returns a completed task
    with that message in its status, and with an empty id.
    """

    id: str
    status: TaskStatus
    context_id: str = ""
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=empty_object)

    @property
    def value(self) -> Any:
        """The result of the task, as a Python value.

        That is the value of the artifact, a list of the values of several artifacts, or the value
        of the status message if there is no artifact; None if there is neither.
        """
        if self.artifacts:
            values = [artifact.value for artifact in self.artifacts]
            return values[0] if len(values) == 1 else values
        return self.status.message.value if self.status.message else None


@model
class AuthenticationInfo(Model):
    """The credentials with which an agent calls a webhook (§4.3.2)."""

    scheme: str
    credentials: str = field(default="", repr=False)


@model
class PushNotificationConfig(Model):
    """The configuration of a webhook for a task (§4.3.1)."""

    url: str
    task_id: str = ""
    id: str = ""
    token: str = field(default="", repr=False)
    authentication: AuthenticationInfo | None = None

    @classmethod
    def _upgrade(cls, data: Json) -> Json:
        nested = data.pop("pushNotificationConfig", None)
        data |= nested if is_object(nested) else {}
        authentication = data.get("authentication")
        if is_object(authentication) and "schemes" in authentication:
            members = dict(authentication)
            schemes = members.pop("schemes")
            has_scheme = is_list(schemes) and schemes
            data["authentication"] = {"scheme": schemes[0], **members} if has_scheme else None
        return data


@model
class TaskPage(Model):
    """One page of a list of tasks (§3.1.4).

    Attributes:
        next_cursor: The cursor of the next page; empty on the last one.
        total_size: The number of tasks on all pages; None if unknown.
    """

    tasks: tuple[Task, ...] = ()
    next_cursor: str = ""
    page_size: int | None = None
    total_size: int | None = None

    @classmethod
    def _upgrade(cls, data: Json) -> Json:
        # the attribute is named as in 0.3: `next_cursor`
        if "nextPageToken" in data:
            data["nextCursor"] = data.pop("nextPageToken")
        return data

    def to_dict(self) -> Json:
        """Return the JSON of A2A 1.0."""
        result = Model.to_dict(self)
        if "nextCursor" in result:
            result["nextPageToken"] = result.pop("nextCursor")
        return result


Event: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""An event of a stream; a `Restarted` is a `TaskStatusUpdateEvent`."""

EVENT_MODELS: dict[str, type[Event]] = {
    "task": Task,
    "message": Message,
    "statusUpdate": TaskStatusUpdateEvent,
    "status-update": TaskStatusUpdateEvent,
    "artifactUpdate": TaskArtifactUpdateEvent,
    "artifact-update": TaskArtifactUpdateEvent,
}


def read_event(data: Any) -> Event:
    """Return the event in *data*: the result of sending a message, or an event of a stream.

    In 1.0 the key of the object names the type of the event; in 0.3 the member `kind` does.

    Raises:
        A2AProtocolError: *data* is not an event, or its type is unknown.
    """
    data = data if is_object(data) else {}
    kind = data.get("kind")
    if isinstance(kind, str) and kind in EVENT_MODELS:
        return EVENT_MODELS[kind].from_dict(data)
    for name, event_model in EVENT_MODELS.items():
        if data.get(name) is not None:
            return event_model.from_dict(data[name])
    raise A2AProtocolError("The response is neither a task nor a message nor an update of a task")


def apply_event(task: Task | None, event: Event) -> Task:
    """Return *task* as it is after *event*; None stands for a task before its first event."""
    if isinstance(event, Task):
        return event
    if isinstance(event, Message):
        status = TaskStatus(TaskState.COMPLETED, event)
        return Task("", status, event.context_id)
    unknown_status = TaskStatus(TaskState.UNSPECIFIED)
    task = task or Task(event.task_id, unknown_status, event.context_id)
    task = replace(task, event_id=event.event_id or task.event_id)
    if isinstance(event, TaskStatusUpdateEvent):
        artifacts = () if is_restart(event) else task.artifacts
        # an event that settles the task has the task's metadata; earlier events only their own
        has_task_metadata = event.status.state.is_settled and event.metadata
        metadata = {**task.metadata, **event.metadata} if has_task_metadata else task.metadata
        return replace(task, status=event.status, artifacts=artifacts, metadata=metadata)
    return with_chunks(task, [event])


def is_restart(event: TaskStatusUpdateEvent) -> bool:
    """Return whether *event* reports discarded artifacts; only agents of this project do so."""
    details = event.metadata.get("apcore")
    return is_object(details) and details.get("restarted") is True


def added_parts(known_parts: Sequence[Part], parts: Sequence[Part]) -> Sequence[Part] | None:
    """Return the *parts* that follow *known_parts*; None if *parts* does not begin with them.

    Agents may join the texts of chunks into one part, so the joined texts are compared too.
    """
    count = len(known_parts)
    try:
        if [*parts[:count]] == [*known_parts]:
            return parts[count:]
    except RecursionError:  # deep JSON can be read, but not compared: treat all parts as added
        return parts
    if any(part.text is None for part in (*known_parts, *parts)):
        return None
    known_text, text = value_of([Part(text=""), *known_parts]), value_of([Part(text=""), *parts])
    if not text.startswith(known_text):
        return None
    added_text = text.removeprefix(known_text)
    return [Part(text=added_text)] if added_text else []


def with_chunks(task: Task, chunks: Iterable[TaskArtifactUpdateEvent]) -> Task:
    """Return *task* with *chunks* added to its artifacts.

    Each call copies all parts, so add many chunks at once.
    """
    artifacts = {artifact.artifact_id: artifact for artifact in task.artifacts}
    parts = {key: list(artifact.parts) for key, artifact in artifacts.items()}
    for chunk in chunks:
        addition, artifact_id = chunk.artifact, chunk.artifact.artifact_id
        if chunk.append and artifact_id in artifacts:
            parts[artifact_id].extend(addition.parts)
            metadata = {**artifacts[artifact_id].metadata, **addition.metadata}
            artifacts[artifact_id] = replace(artifacts[artifact_id], metadata=metadata)
        else:
            artifacts[artifact_id], parts[artifact_id] = addition, list(addition.parts)
    complete = (replace(artifact, parts=tuple(parts[key])) for key, artifact in artifacts.items())
    return replace(task, artifacts=tuple(complete))
