"""Adapters between apcore modules and A2A types: pure functions, no I/O, no event loop."""

from .agent_card import EXTENSION_URI, AgentCardBuilder, card_to_dict
from .errors import (
    ErrorMapper,
    MediaTypeError,
    OutputError,
    PartError,
    RefusalReason,
    TokenRefusedError,
    clean,
    error_details,
)
from .parts import PartConverter
from .protocols import Authenticator, Executor, Identity, Registry, Validation, missing_methods
from .records import TaskListResult, TaskRecord, TaskStore
from .schema import SchemaConverter
from .sdk import from_sdk, to_sdk
from .skill_mapper import SkillMapper
from .values import load_json, narrow, to_json

__all__ = [
    "EXTENSION_URI",
    "AgentCardBuilder",
    "Authenticator",
    "ErrorMapper",
    "Executor",
    "Identity",
    "MediaTypeError",
    "OutputError",
    "PartConverter",
    "PartError",
    "RefusalReason",
    "Registry",
    "SchemaConverter",
    "SkillMapper",
    "TaskListResult",
    "TaskRecord",
    "TaskStore",
    "TokenRefusedError",
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
