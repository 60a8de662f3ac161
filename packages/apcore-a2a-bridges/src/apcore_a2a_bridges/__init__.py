"""Agents of other frameworks as apcore modules, which can be served as A2A agents.

Names are loaded on first use, and no framework is imported before one of its agents is bridged.
"""

from typing import TYPE_CHECKING

__all__ = [
    "ADKAgent",
    "Agent",
    "AgnoAgent",
    "ClaudeCodeAgent",
    "CodexAgent",
    "CommandAgent",
    "CrewAIAgent",
    "CrewAIFlowAgent",
    "ExecutorAgent",
    "File",
    "FunctionAgent",
    "LangChainAgent",
    "LangGraphAgent",
    "N8nAgent",
    "ObjectAgent",
    "OpenAIAgent",
    "OpenClawAgent",
    "Progress",
    "PydanticAIAgent",
    "StrandsAgent",
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

    from .a2a_sdk import ExecutorAgent
    from .agent import Agent
    from .agno import AgnoAgent
    from .callables import FunctionAgent, ObjectAgent
    from .coding_agents import ClaudeCodeAgent, CodexAgent
    from .command import CommandAgent, OpenClawAgent
    from .crewai import CrewAIAgent
    from .crewai_flows import CrewAIFlowAgent
    from .detection import bridge, load_adapter, load_bridge, register_adapter, register_bridge
    from .google_adk import ADKAgent
    from .langchain import LangChainAgent
    from .langgraph import LangGraphAgent
    from .n8n import N8nAgent
    from .openai_agents import OpenAIAgent
    from .parts import meta_key, part_in, part_out
    from .pydantic_ai import PydanticAIAgent
    from .serving import build_agent_card, serve_agent, to_a2a
    from .strands import StrandsAgent
    from .turn import Turn
else:
    from importlib import import_module

    _NAMES_BY_MODULE = {
        "apcore_a2a_core": ["File", "Progress", "Usage"],
        ".a2a_sdk": ["ExecutorAgent"],
        ".agent": ["Agent"],
        ".agno": ["AgnoAgent"],
        ".callables": ["FunctionAgent", "ObjectAgent"],
        ".coding_agents": ["ClaudeCodeAgent", "CodexAgent"],
        ".command": ["CommandAgent", "OpenClawAgent"],
        ".crewai": ["CrewAIAgent"],
        ".crewai_flows": ["CrewAIFlowAgent"],
        ".detection": [
            "bridge",
            "load_adapter",
            "load_bridge",
            "register_adapter",
            "register_bridge",
        ],
        ".google_adk": ["ADKAgent"],
        ".langchain": ["LangChainAgent"],
        ".langgraph": ["LangGraphAgent"],
        ".n8n": ["N8nAgent"],
        ".openai_agents": ["OpenAIAgent"],
        ".parts": ["meta_key", "part_in", "part_out"],
        ".pydantic_ai": ["PydanticAIAgent"],
        ".serving": ["build_agent_card", "serve_agent", "to_a2a"],
        ".strands": ["StrandsAgent"],
        ".turn": ["Turn"],
    }
    _MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name], __name__), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
