"""apcore modules as A2A agents: `serve` them.

Names resolve on first use, so importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "AgentCardBuilder",
    "ErrorMapper",
    "InMemoryTaskStore",
    "PartConverter",
    "SchemaConverter",
    "SkillMapper",
    "async_serve",
    "create_app",
    "serve",
]

if TYPE_CHECKING:
    from apcore_a2a_core import (
        AgentCardBuilder,
        ErrorMapper,
        PartConverter,
        SchemaConverter,
        SkillMapper,
    )
    from apcore_a2a_server import async_serve, create_app, serve
    from apcore_a2a_store import InMemoryTaskStore
else:
    from ._parts import part

    _CORE = frozenset(
        {"AgentCardBuilder", "ErrorMapper", "PartConverter", "SchemaConverter", "SkillMapper"}
    )

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        extra = "store" if name == "InMemoryTaskStore" else "server"
        home = import_module("apcore_a2a_core") if name in _CORE else part(extra, name)
        value = globals()[name] = getattr(home, name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
