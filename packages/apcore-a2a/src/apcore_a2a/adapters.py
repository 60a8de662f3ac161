"""The adapters of `apcore_a2a_core`, re-exported."""

from apcore_a2a_core import (
    AgentCardBuilder,
    ErrorMapper,
    PartConverter,
    SchemaConverter,
    SkillMapper,
)

__all__ = ["AgentCardBuilder", "ErrorMapper", "PartConverter", "SchemaConverter", "SkillMapper"]
