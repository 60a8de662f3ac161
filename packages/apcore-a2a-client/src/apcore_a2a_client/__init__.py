"""Call any A2A agent, of protocol 1.0 or 0.3, over httpx alone."""

from typing import TYPE_CHECKING

from .auth import APIKey
from .client import A2AClient
from .errors import (
    A2AAuthError,
    A2AConnectionError,
    A2ADiscoveryError,
    A2AError,
    A2AProtocolError,
    A2AServerError,
    A2ATimeoutError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    ExtensionSupportRequiredError,
    InputRequired,
    InvalidAgentResponseError,
    InvalidParamsError,
    MethodNotFoundError,
    PushNotificationNotSupportedError,
    ServerBusyError,
    SkillNotFoundError,
    TaskFailedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from .sync import SyncA2AClient
from .tasks import (
    Artifact,
    AuthenticationInfo,
    Event,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskPage,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from .cards import (
        AgentCapabilities,
        AgentCard,
        AgentExtension,
        AgentInterface,
        AgentProvider,
        AgentSkill,
        SecurityScheme,
    )
else:

    def __getattr__(name):
        """The models of cards are imported when they are wanted, or when there is a card."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import cards

        return getattr(cards, name)


__all__ = [
    "A2AAuthError",
    "A2AClient",
    "A2AConnectionError",
    "A2ADiscoveryError",
    "A2AError",
    "A2AProtocolError",
    "A2AServerError",
    "A2ATimeoutError",
    "APIKey",
    "AgentCapabilities",
    "AgentCard",
    "AgentExtension",
    "AgentInterface",
    "AgentProvider",
    "AgentSkill",
    "Artifact",
    "AuthenticationInfo",
    "ContentTypeNotSupportedError",
    "Event",
    "ExtendedAgentCardNotConfiguredError",
    "ExtensionSupportRequiredError",
    "InputRequired",
    "InvalidAgentResponseError",
    "InvalidParamsError",
    "Message",
    "MethodNotFoundError",
    "Part",
    "PushNotificationConfig",
    "PushNotificationNotSupportedError",
    "Role",
    "SecurityScheme",
    "ServerBusyError",
    "SkillNotFoundError",
    "SyncA2AClient",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskFailedError",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TaskPage",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "UnsupportedOperationError",
    "VersionNotSupportedError",
]
