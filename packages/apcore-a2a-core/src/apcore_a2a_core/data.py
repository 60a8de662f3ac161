"""The types of A2A 1.0 as plain data: the tasks, messages and requests inside the server.

Their attributes have the names of the protocol's `.proto` file, as in the official SDK, and their
JSON is that of A2A 1.0. Values in `data` and `metadata` are JSON, in which integers are exact at
any size. Objects are shared, not copied: to change a task, replace its lists. Never change a
message, a part or a status, because other objects may refer to it. Only one list is appended to:
that of an artifact's parts, while the artifact arrives in chunks.
"""

from enum import StrEnum
from typing import Any, NewType, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

Json: TypeAlias = dict[str, Any]
"""A JSON object."""
Base64 = NewType("Base64", str)
"""Bytes in the standard alphabet of base64, padded (RFC 4648 §4)."""
Timestamp = NewType("Timestamp", str)
"""A time in UTC, such as `2026-01-31T12:00:00.000Z` (A2A 1.0 §5.6.1)."""


class TaskState(StrEnum):
    """The state of a task (A2A 1.0 §4.1.3)."""

    TASK_STATE_UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    TASK_STATE_SUBMITTED = "TASK_STATE_SUBMITTED"
    TASK_STATE_WORKING = "TASK_STATE_WORKING"
    TASK_STATE_COMPLETED = "TASK_STATE_COMPLETED"
    TASK_STATE_FAILED = "TASK_STATE_FAILED"
    TASK_STATE_CANCELED = "TASK_STATE_CANCELED"
    TASK_STATE_INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    TASK_STATE_REJECTED = "TASK_STATE_REJECTED"
    TASK_STATE_AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"

    __hash__ = str.__hash__  # the same hash as that of Enum, but without running Python code


class Role(StrEnum):
    """The sender of a message (A2A 1.0 §4.1.5)."""

    ROLE_UNSPECIFIED = "ROLE_UNSPECIFIED"
    ROLE_USER = "ROLE_USER"
    ROLE_AGENT = "ROLE_AGENT"


# JSON has no cycles, so the garbage collector need not scan these objects. An agent with many open
# streams has so many of them that scanning took an eighth of its time.
class Data(Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """The base of all types; members with their default value are left out of the JSON."""


class Part(Data):
    """A part of a message or an artifact: text, data, or a file as bytes or as a URL."""

    text: str | UnsetType = UNSET
    data: Any = UNSET
    raw: Base64 | UnsetType = UNSET
    url: str | UnsetType = UNSET
    filename: str = ""
    media_type: str = ""
    metadata: Json = {}


class Message(Data):
    """A message of the client or the agent (A2A 1.0 §4.1.4)."""

    message_id: str = ""
    context_id: str = ""
    task_id: str = ""
    role: Role = Role.ROLE_UNSPECIFIED
    parts: list[Part] = []
    metadata: Json = {}
    extensions: list[str] = []
    reference_task_ids: list[str] = []


class TaskStatus(Data):
    """The state of a task, the agent's message about it, and the time of this status."""

    state: TaskState = TaskState.TASK_STATE_UNSPECIFIED
    message: Message | None = None
    timestamp: Timestamp = Timestamp("")


class Artifact(Data):
    """A result of a task (A2A 1.0 §4.1.7)."""

    artifact_id: str = ""
    name: str = ""
    description: str = ""
    parts: list[Part] = []
    metadata: Json = {}
    extensions: list[str] = []


class Task(Data):
    """A task as clients see it (A2A 1.0 §4.1.1)."""

    id: str = ""
    context_id: str = ""
    status: TaskStatus = field(default_factory=TaskStatus)
    artifacts: list[Artifact] = []
    history: list[Message] = []
    metadata: Json = {}


class TaskStatusUpdateEvent(Data):
    """The event for a new status of a task (A2A 1.0 §4.2.1)."""

    task_id: str = ""
    context_id: str = ""
    status: TaskStatus = field(default_factory=TaskStatus)
    metadata: Json = {}


class TaskArtifactUpdateEvent(Data):
    """The event for parts of an artifact, which may continue earlier parts (A2A 1.0 §4.2.2)."""

    task_id: str = ""
    context_id: str = ""
    artifact: Artifact = field(default_factory=Artifact)
    append: bool = False
    last_chunk: bool = False
    metadata: Json = {}


class AuthenticationInfo(Data):
    """The agent's credentials for a webhook; schemes of 0.3 are joined with commas."""

    scheme: str = ""
    credentials: str = ""


class TaskPushNotificationConfig(Data):
    """A push config of a task (A2A 1.0 §4.3.1)."""

    tenant: str = ""
    id: str = ""
    task_id: str = ""
    url: str = ""
    token: str = ""
    authentication: AuthenticationInfo | None = None


class SendMessageConfiguration(Data):
    """The options for sending a message (A2A 1.0 §3.2.2)."""

    accepted_output_modes: list[str] = []
    task_push_notification_config: TaskPushNotificationConfig | None = None
    history_length: int | None = None
    return_immediately: bool = False


class SendMessageRequest(Data):
    """The params of `SendMessage` and `SendStreamingMessage`."""

    tenant: str = ""
    message: Message = field(default_factory=Message)
    configuration: SendMessageConfiguration = field(default_factory=SendMessageConfiguration)
    metadata: Json = {}


class GetTaskRequest(Data):
    """The params of `GetTask`."""

    tenant: str = ""
    id: str = ""
    history_length: int | None = None


class ListTasksRequest(Data):
    """The params of `ListTasks`."""

    tenant: str = ""
    context_id: str = ""
    status: TaskState = TaskState.TASK_STATE_UNSPECIFIED
    page_size: int | None = None
    page_token: str = ""
    history_length: int | None = None
    status_timestamp_after: Timestamp = Timestamp("")
    include_artifacts: bool = False


class ListTasksResponse(Data, omit_defaults=False):
    """A page of tasks; all of its members are always present (A2A 1.0 §3.1.4)."""

    tasks: list[Task] = []
    next_page_token: str = ""
    page_size: int = 0
    total_size: int = 0


class CancelTaskRequest(Data):
    """The params of `CancelTask`."""

    tenant: str = ""
    id: str = ""
    metadata: Json = {}


class SubscribeToTaskRequest(Data):
    """The params of `SubscribeToTask`."""

    tenant: str = ""
    id: str = ""


class GetTaskPushNotificationConfigRequest(Data):
    """The params of `GetTaskPushNotificationConfig`."""

    tenant: str = ""
    task_id: str = ""
    id: str = ""


class DeleteTaskPushNotificationConfigRequest(Data):
    """The params of `DeleteTaskPushNotificationConfig`."""

    tenant: str = ""
    task_id: str = ""
    id: str = ""


class ListTaskPushNotificationConfigsRequest(Data):
    """The params of `ListTaskPushNotificationConfigs`."""

    tenant: str = ""
    task_id: str = ""
    page_size: int | None = None
    page_token: str = ""


class GetExtendedAgentCardRequest(Data):
    """The params of `GetExtendedAgentCard`."""

    tenant: str = ""


D = TypeVar("D", bound=Data)
