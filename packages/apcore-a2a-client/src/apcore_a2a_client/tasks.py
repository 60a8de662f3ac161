"""Messages, tasks and events: one model of each for A2A 1.0 and 0.3 (A2A 1.0 §4.1, §4.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from .codec import Model, Streamed, Word, model, nothing
from .errors import A2AProtocolError, Json, is_list, is_object


class TaskState(Word):
    """What a task is up to (§4.1.3). Compares equal to its 0.3 spelling, such as `"working"`."""

    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    INPUT_REQUIRED = "input-required"
    REJECTED = "rejected"
    AUTH_REQUIRED = "auth-required"
    UNSPECIFIED = "unknown"

    @classmethod
    def _prefix(cls) -> str:
        return "TASK_STATE_"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""
        return self in ("completed", "failed", "canceled", "rejected")

    @property
    def is_paused(self) -> bool:
        """Whether the task waits for its client."""
        return self in ("input-required", "auth-required")

    @property
    def is_settled(self) -> bool:
        """Whether nothing changes unless the client does something."""
        return self.is_terminal or self.is_paused


CONTENTS = ("text", "raw", "url", "data")


class Role(Word):
    """Who says a message."""

    USER = "user"
    AGENT = "agent"
    UNSPECIFIED = "unspecified"

    @classmethod
    def _prefix(cls) -> str:
        return "ROLE_"


@model
class Part(Model):
    """A piece of content: one of `text`, `raw`, `url`, else `data`, which may be any JSON (§4.1.6).

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
    metadata: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def value(self) -> Any:
        """The content: a str, bytes, or what JSON has; of a file elsewhere its URL."""
        contents = (self.text, self.raw, self.url)
        return next((content for content in contents if content is not None), self.data)

    def to_dict(self) -> Json:
        """The JSON form of A2A 1.0, with its content even if that is null."""
        result = Model.to_dict(self)
        return result if result.keys() & set(CONTENTS) else {"data": None, **result}

    @classmethod
    def of(cls, content: Any) -> "Part":
        """*content* as a part: a str is text, bytes are a file, the rest is data."""
        if isinstance(content, cls):
            return content
        if isinstance(content, str):
            return cls(text=content)
        return cls(raw=content) if isinstance(content, bytes) else cls(data=content)

    @classmethod
    def _upgraded(cls, data: Json) -> Json:
        file = data.pop("file", None)
        if is_object(file):
            names = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
            data |= {names.get(name, name): value for name, value in file.items()}
        metadata, wrapped = data.get("metadata"), data.get("data")
        if is_object(metadata) and "data_part_compat" in metadata and is_object(wrapped):
            # what is no object, as a2a-sdk puts it into a data part of 0.3
            data["data"] = wrapped.get("value")
            data["metadata"] = {k: v for k, v in metadata.items() if k != "data_part_compat"}
        kind = data.pop("kind", None)
        kind = kind[:50] if isinstance(kind, str) else "none"
        contents = [name for name in CONTENTS if data.get(name) is not None]
        if len(contents) > 1 or not (contents or "data" in data):
            raise A2AProtocolError(f"a part of an unknown kind: {kind!r}")
        return data


def value_of(parts: Sequence[Part]) -> Any:
    """What *parts* are together: one value, one text, one object with its files, or a list."""
    values = [part.value for part in parts]
    if len(values) < 2:
        return values[0] if values else None
    if all(part.text is not None for part in parts):
        return "".join(values)
    if is_object(values[0]) and all(p.raw is not None and p.filename for p in parts[1:]):
        return {**values[0], **{part.filename: part.raw for part in parts[1:]}}
    return values


@model
class Message(Streamed):
    """What the user or the agent says (§4.1.4)."""

    parts: tuple[Part, ...] = ()
    role: Role = Role.UNSPECIFIED
    message_id: str = ""
    context_id: str = ""
    task_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=nothing)
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def value(self) -> Any:
        """Its content as a Python value, as `Artifact.value`."""
        return value_of(self.parts)

    @classmethod
    def of(
        cls, content: Any, *, context_id: str | None = None, task_id: str | None = None
    ) -> "Message":
        """*content* as a message of the user, with an id of its own unless it has one.

        Args:
            content: A str, a dict (which is data), a list of parts, or a Message.
            context_id: The conversation; else the message's own.
            task_id: The task that is answered; else the message's own.
        """
        from uuid import uuid4  # the slowest of what this package would import

        given = content if isinstance(content, Message) else cls(_parts(content))
        return replace(
            given,
            role=Role.USER if given.role == Role.UNSPECIFIED else given.role,
            message_id=given.message_id or str(uuid4()),
            context_id=context_id or given.context_id,
            task_id=task_id or given.task_id,
        )


def _parts(content: Any) -> tuple[Part, ...]:
    items: Sequence[Any] = [*content] if isinstance(content, (list, tuple)) else [content]
    return tuple(map(Part.of, items))


@model
class TaskStatus(Model):
    """A task's state, since when (RFC 3339), and what the agent says about it (§4.1.2)."""

    state: TaskState
    message: Message | None = None
    timestamp: str = ""


@model
class Artifact(Model):
    """What a task has made (§4.1.7)."""

    artifact_id: str = ""
    parts: tuple[Part, ...] = ()
    name: str = ""
    description: str = ""
    metadata: Mapping[str, Any] = field(default_factory=nothing)
    extensions: tuple[str, ...] = ()

    @property
    def value(self) -> Any:
        """Its content as a Python value.

        One part is its own value, several texts are one text; data with named files are one
        dict; other parts are a list.
        """
        return value_of(self.parts)


@model
class TaskStatusUpdateEvent(Streamed):
    """A task is in another state (§4.2.1)."""

    task_id: str
    status: TaskStatus
    context_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=nothing)


@model
class TaskArtifactUpdateEvent(Streamed):
    """There is an artifact, or more of one (§4.2.2)."""

    task_id: str
    artifact: Artifact
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False
    metadata: Mapping[str, Any] = field(default_factory=nothing)


@model
class Task(Streamed):
    """A unit of work (§4.1.1).

    An agent may answer with a message and without a task. Then the task is completed, has that
    message in its status, and an empty id.
    """

    id: str
    status: TaskStatus
    context_id: str = ""
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def value(self) -> Any:
        """What came of it, as a Python value.

        That is the value of its artifact, the list of the values of several, or without one
        what its status message says; None when there is neither.
        """
        if self.artifacts:
            values = [artifact.value for artifact in self.artifacts]
            return values[0] if len(values) == 1 else values
        return self.status.message.value if self.status.message else None


@model
class AuthenticationInfo(Model):
    """How an agent shows a webhook who it is (§4.3.2)."""

    scheme: str
    credentials: str = field(default="", repr=False)


@model
class PushNotificationConfig(Model):
    """A webhook that is told about a task (§4.3.1)."""

    url: str
    task_id: str = ""
    id: str = ""
    token: str = field(default="", repr=False)
    authentication: AuthenticationInfo | None = None

    @classmethod
    def _upgraded(cls, data: Json) -> Json:
        nested = data.pop("pushNotificationConfig", None)
        data |= nested if is_object(nested) else {}
        authentication = data.get("authentication")
        if is_object(authentication) and "schemes" in authentication:
            rest = dict(authentication)
            schemes = rest.pop("schemes")
            some = is_list(schemes) and schemes
            data["authentication"] = {"scheme": schemes[0], **rest} if some else None
        return data


@model
class TaskPage(Model):
    """One page of a list of tasks (§3.1.4).

    Attributes:
        next_cursor: What gives the next page; empty behind the last one.
        total_size: How many there are on all pages, if the agent tells.
    """

    tasks: tuple[Task, ...] = ()
    next_cursor: str = ""
    page_size: int | None = None
    total_size: int | None = None

    @classmethod
    def _upgraded(cls, data: Json) -> Json:
        if "nextPageToken" in data:
            data["nextCursor"] = data.pop("nextPageToken")
        return data

    def to_dict(self) -> Json:
        """The JSON form of A2A 1.0."""
        result = Model.to_dict(self)
        if "nextCursor" in result:
            result["nextPageToken"] = result.pop("nextCursor")
        return result


Event: TypeAlias = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""What a stream consists of."""

EVENTS: dict[str, type[Event]] = {
    "task": Task,
    "message": Message,
    "statusUpdate": TaskStatusUpdateEvent,
    "status-update": TaskStatusUpdateEvent,
    "artifactUpdate": TaskArtifactUpdateEvent,
    "artifact-update": TaskArtifactUpdateEvent,
}


def read_event(data: Any) -> Event:
    """The answer to a send, or an event of a stream: named by its key in 1.0, its kind in 0.3.

    Raises:
        A2AProtocolError: It is neither.
    """
    data = data if is_object(data) else {}
    kind = data.get("kind")
    if isinstance(kind, str) and kind in EVENTS:
        return EVENTS[kind].from_dict(data)
    for name, event in EVENTS.items():
        if data.get(name) is not None:
            return event.from_dict(data[name])
    raise A2AProtocolError("The answer is neither a task nor a message")


def after(task: Task | None, event: Event) -> Task:
    """*task* with what *event* tells of it."""
    if isinstance(event, Task):
        return event
    if isinstance(event, Message):
        status = TaskStatus(TaskState.COMPLETED, event)
        return Task("", status, event.context_id)
    unknown = TaskStatus(TaskState.UNSPECIFIED)
    known = task or Task(event.task_id, unknown, event.context_id)
    place = event.event_id or known.event_id
    if isinstance(event, TaskStatusUpdateEvent):
        return replace(known, status=event.status, event_id=place)
    artifacts = {artifact.artifact_id: artifact for artifact in known.artifacts}
    new = event.artifact
    old = artifacts.get(new.artifact_id) if event.append else None
    if old:
        metadata = {**old.metadata, **new.metadata}
        new = replace(old, parts=old.parts + new.parts, metadata=metadata)
    artifacts[new.artifact_id] = new
    return replace(known, artifacts=tuple(artifacts.values()), event_id=place)
