"""Agents of other frameworks as apcore modules, and so as A2A agents.

Names are loaded on first use, and no framework is imported before one of its agents is served.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Agent",
    "File",
    "FunctionAgent",
    "ObjectAgent",
    "Progress",
    "Turn",
    "Usage",
    "bridge",
    "build_agent_card",
    "load_adapter",
    "load_bridge",
    "meta_key",
    "part_in",
    "part_out",
    "register_adapter",
    "register_bridge",
    "serve_agent",
    "to_a2a",
]

if TYPE_CHECKING:
    from apcore_a2a_core import File, Progress, Usage

    from .agent import Agent
    from .callables import FunctionAgent, ObjectAgent
    from .detection import bridge, load_adapter, load_bridge, register_adapter, register_bridge
    from .parts import meta_key, part_in, part_out
    from .serving import build_agent_card, serve_agent, to_a2a
    from .turn import Turn
else:
    from importlib import import_module

    _ROOMS = {
        "apcore_a2a_core": ["File", "Progress", "Usage"],
        ".agent": ["Agent"],
        ".callables": ["FunctionAgent", "ObjectAgent"],
        ".detection": [
            "bridge",
            "load_adapter",
            "load_bridge",
            "register_adapter",
            "register_bridge",
        ],
        ".parts": ["meta_key", "part_in", "part_out"],
        ".serving": ["build_agent_card", "serve_agent", "to_a2a"],
        ".turn": ["Turn"],
    }
    _ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_ROOM_OF[name], __name__), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
