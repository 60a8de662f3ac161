"""Adapters between apcore modules and A2A types, without I/O or an event loop."""

from typing import TYPE_CHECKING, Any

from .agent_card import EXTENSION_URI, AgentCardBuilder, card_to_dict
from .authoring import (
    INPUT_REQUIRED,
    ApprovalRequired,
    File,
    InputRequiredError,
    Progress,
    Services,
    Usage,
)
from .error_mapper import ErrorMapper, error_details
from .errors import (
    MediaTypeError,
    OutputError,
    PartError,
    RefusalReason,
    TokenRefusedError,
    clean,
)
from .parts import PartConverter
from .protocols import (
    Authenticator,
    Companion,
    Executor,
    Identity,
    Registry,
    Validation,
    missing_methods,
)
from .records import TaskListResult, TaskRecord, TaskStore
from .schema import SchemaConverter
from .sdk import from_sdk, to_sdk
from .skill_mapper import SkillMapper
from .values import load_json, narrow, to_json

if TYPE_CHECKING:
    from .models import Prompt, Reply

__all__ = [
    "EXTENSION_URI",
    "INPUT_REQUIRED",
    "AgentCardBuilder",
    "ApprovalRequired",
    "Authenticator",
    "Companion",
    "ErrorMapper",
    "Executor",
    "File",
    "Identity",
    "InputRequiredError",
    "MediaTypeError",
    "OutputError",
    "PartConverter",
    "PartError",
    "Progress",
    "Prompt",
    "RefusalReason",
    "Registry",
    "Reply",
    "SchemaConverter",
    "Services",
    "SkillMapper",
    "TaskListResult",
    "TaskRecord",
    "TaskStore",
    "TokenRefusedError",
    "Usage",
    "Validation",
    "card_to_dict",
    "clean",
    "error_details",
    "from_sdk",
    "load_json",
    "missing_methods",
    "narrow",
    "to_json",
    "to_sdk",
]


def __getattr__(name: str) -> Any:
    """Load `Prompt` and `Reply` on first use, since pydantic takes long to import."""
    if name not in ("Prompt", "Reply"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import models

    globals().update(Prompt=models.Prompt, Reply=models.Reply)
    return globals()[name]
