"""apcore modules as A2A agents: `serve` them, or call any agent with `A2AClient`.

Names resolve on first use, so importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "A2AClient",
    "APIKeyAuthenticator",
    "AgentCardBuilder",
    "ChainAuthenticator",
    "ClaimMapping",
    "ErrorMapper",
    "InMemoryTaskStore",
    "JWTAuthenticator",
    "Limits",
    "PartConverter",
    "SchemaConverter",
    "SkillMapper",
    "SyncA2AClient",
    "async_serve",
    "create_app",
    "serve",
]

if TYPE_CHECKING:
    from apcore_a2a_auth import (
        APIKeyAuthenticator,
        ChainAuthenticator,
        ClaimMapping,
        JWTAuthenticator,
    )
    from apcore_a2a_client import A2AClient, SyncA2AClient
    from apcore_a2a_core import (
        AgentCardBuilder,
        ErrorMapper,
        PartConverter,
        SchemaConverter,
        SkillMapper,
    )
    from apcore_a2a_server import InMemoryTaskStore, Limits, async_serve, create_app, serve
else:
    from ._parts import part

    _HOMES = {
        **dict.fromkeys(["A2AClient", "SyncA2AClient"], "apcore_a2a_client"),
        **dict.fromkeys(
            ["AgentCardBuilder", "ErrorMapper", "PartConverter", "SchemaConverter", "SkillMapper"],
            "apcore_a2a_core",
        ),
    }
    _AUTH = {"APIKeyAuthenticator", "ChainAuthenticator", "ClaimMapping", "JWTAuthenticator"}

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        extra = "auth" if name in _AUTH else "server"
        home = import_module(_HOMES[name]) if name in _HOMES else part(extra, name)
        value = globals()[name] = getattr(home, name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
