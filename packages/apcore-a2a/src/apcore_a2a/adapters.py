"""The adapters of `apcore_a2a_core` under their `apcore_a2a` name."""

from apcore_a2a_core import (
    AgentCardBuilder,
    ErrorMapper,
    PartConverter,
    SchemaConverter,
    SkillMapper,
)

__all__ = ["AgentCardBuilder", "ErrorMapper", "PartConverter", "SchemaConverter", "SkillMapper"]
