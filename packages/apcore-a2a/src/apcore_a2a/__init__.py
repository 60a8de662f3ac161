"""apcore modules as A2A agents: `serve` them, or call any agent with `A2AClient`.

Names are loaded on first use, so importing this package is fast.
"""

from typing import TYPE_CHECKING

__all__ = [
    "A2AClient",
    "APIKeyAuthenticator",
    "Agent",
    "AgentCardBuilder",
    "ApprovalRequired",
    "ChainAuthenticator",
    "ClaimMapping",
    "ErrorMapper",
    "File",
    "InMemoryTaskStore",
    "InputRequiredError",
    "JWTAuthenticator",
    "Limits",
    "N8nAgent",
    "OpenClawAgent",
    "PartConverter",
    "Progress",
    "Prompt",
    "RemoteAgent",
    "Reply",
    "SchemaConverter",
    "Services",
    "SkillMapper",
    "SyncA2AClient",
    "Turn",
    "Usage",
    "async_serve",
    "bridge",
    "build_agent_card",
    "create_app",
    "load_adapter",
    "load_bridge",
    "register_adapter",
    "register_bridge",
    "serve",
    "serve_agent",
    "to_a2a",
    "tools",
]

if TYPE_CHECKING:
    from apcore_a2a_auth import (
        APIKeyAuthenticator,
        ChainAuthenticator,
        ClaimMapping,
        JWTAuthenticator,
    )
    from apcore_a2a_bridges import (
        Agent,
        N8nAgent,
        OpenClawAgent,
        Turn,
        bridge,
        build_agent_card,
        load_adapter,
        load_bridge,
        register_adapter,
        register_bridge,
        serve_agent,
        to_a2a,
    )
    from apcore_a2a_client import A2AClient, SyncA2AClient
    from apcore_a2a_core import (
        AgentCardBuilder,
        ApprovalRequired,
        ErrorMapper,
        File,
        InputRequiredError,
        PartConverter,
        Progress,
        Prompt,
        Reply,
        SchemaConverter,
        Services,
        SkillMapper,
        Usage,
    )
    from apcore_a2a_remote import RemoteAgent, tools
    from apcore_a2a_server import InMemoryTaskStore, Limits, async_serve, create_app, serve
else:
    from ._parts import import_part

    _NAMES_BY_PART = {
        "auth": ["APIKeyAuthenticator", "ChainAuthenticator", "ClaimMapping", "JWTAuthenticator"],
        "bridges": [
            "Agent",
            "N8nAgent",
            "OpenClawAgent",
            "Turn",
            "bridge",
            "build_agent_card",
            "load_adapter",
            "load_bridge",
            "register_adapter",
            "register_bridge",
            "serve_agent",
            "to_a2a",
        ],
        "client": ["A2AClient", "SyncA2AClient"],
        "remote": ["RemoteAgent", "tools"],
        "server": ["InMemoryTaskStore", "Limits", "async_serve", "create_app", "serve"],
    }
    _PART_BY_NAME = {name: part for part, names in _NAMES_BY_PART.items() for name in names}

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_part(_PART_BY_NAME.get(name, "core"), name), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
