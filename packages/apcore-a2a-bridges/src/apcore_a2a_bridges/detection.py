"""Find the bridge for an agent by the full names of the agent's type and its base classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, TypeVar

from apcore import ModuleError

from .agent import Agent

T = TypeVar("T", bound=Callable[..., Any])

MISSING = re.compile(r"missing \d+ required [\w-]+(?: [\w-]+)? arguments?: '(\w+)'")
UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")
"""Python's messages about arguments that are missing, or that a function does not have."""
FUNCTION_BRIDGE = ".callables:FunctionAgent"
"""The import path of the bridge for functions."""
ENTRY_POINT_GROUP = "apcore_a2a.bridges"
"""Entry point group for other packages' bridges, which are named as in `register_bridge`."""

_BRIDGES: dict[str, str | Callable[..., Any]] = {
    "a2a.server.agent_execution.agent_executor.AgentExecutor": ".a2a_sdk:ExecutorAgent",
    "agents.agent.Agent": ".openai_agents:OpenAIAgent",
    "agno.agent.agent.Agent": ".agno:AgnoAgent",
    "agno.team.team.Team": ".agno:AgnoAgent",
    "crewai.crew.Crew": ".crewai:CrewAIAgent",
    "crewai.flow.flow.Flow": ".crewai_flows:CrewAIFlowAgent",
    "google.adk.agents.base_agent.BaseAgent": ".google_adk:ADKAgent",
    "langchain_core.runnables.base.Runnable": ".langchain:LangChainAgent",
    "langgraph.pregel.Pregel": ".langgraph:LangGraphAgent",
    "langgraph.pregel.main.Pregel": ".langgraph:LangGraphAgent",
    "pydantic_ai.agent.abstract.AbstractAgent": ".pydantic_ai:PydanticAIAgent",
    "strands.agent.agent.Agent": ".strands:StrandsAgent",
    # names for `load_bridge`
    "a2a-sdk": ".a2a_sdk:ExecutorAgent",
    "agno": ".agno:AgnoAgent",
    "claude-code": ".coding_agents:ClaudeCodeAgent",
    "codex": ".coding_agents:CodexAgent",
    "callable": FUNCTION_BRIDGE,
    "command": ".command:CommandAgent",
    "crewai": ".crewai:CrewAIAgent",
    "google-adk": ".google_adk:ADKAgent",
    "langchain": ".langchain:LangChainAgent",
    "langgraph": ".langgraph:LangGraphAgent",
    "n8n": ".n8n:N8nAgent",
    "openai-agents": ".openai_agents:OpenAIAgent",
    "openclaw": ".command:OpenClawAgent",
    "pydantic-ai": ".pydantic_ai:PydanticAIAgent",
    "strands": ".strands:StrandsAgent",
}
"""Bridges by the full name of a type, or by a short name.

The values are import paths, `module:name`, or the classes or functions themselves.
"""


class AgentConfigError(ModuleError, ValueError):
    """An invalid config; the message says what is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(code="AGENT_CONFIG_INVALID", message=message)


def bridge(agent: Any, **options: Any) -> Any:
    """Return the apcore module of an agent.

    Args:
        agent: An agent of a framework, a function, an object with a method `invoke`, or a module.
        options: Options of `Agent`, and those of the framework's bridge.

    Raises:
        TypeError: The agent is a class, no bridge fits its type, or an option is unknown.

    Example:
        ```python
        from apcore_a2a_bridges import bridge


        async def echo(text: str) -> str:
            return text


        print(bridge(echo).module_id)
        #> echo
        ```
    """
    module = bridge_or_none(agent, **options)
    if module is None:
        raise TypeError(
            f"No bridge fits {full_name(agent.__class__)}: write a subclass of Agent with the "
            "method run, or add a bridge with register_bridge"
        )
    return module


def bridge_or_none(agent: Any, **options: Any) -> Any:
    """Return the apcore module of an agent; None if no bridge fits its type."""
    if isinstance(agent, type):
        raise TypeError(f"{agent.__name__} is a class: pass an instance of it")
    if is_module(agent):
        if options:
            option = next(iter(options))
            raise TypeError(f"{option} is an option of bridges, but the agent is a module already")
        return agent
    for kind in type(agent).__mro__:
        if (target := _find_target(full_name(kind))) is not None:
            return _load(target)(agent, **options)
    if callable(getattr(agent, "invoke", None)):
        return _load(".callables:ObjectAgent")(agent, **options)
    return _load(FUNCTION_BRIDGE)(agent, **options) if callable(agent) else None


def is_module(value: Any) -> bool:
    """Return whether a value is an apcore module already."""
    names = ("execute", "description", "input_schema")
    return isinstance(value, Agent) or all(hasattr(value, name) for name in names)


def full_name(kind: type[Any]) -> str:
    """Return the full name of a type, as `register_bridge` takes it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def register_bridge(name: str, target: str | Callable[..., Any]) -> None:
    """Add a bridge, or replace one.

    Packages can also add bridges with an entry point of the group `apcore_a2a.bridges`.

    Args:
        name: The full name of a type (the bridge also fits its subclasses), or a short name for
            `load_bridge`.
        target: A function or class that returns a module; its arguments are the agent, if there is
            one, and the options. Or the import path of the function or class,
            `package.module:name`; it is imported on first use.

    >>> register_bridge("my_framework.Agent", "my_bridge:MyAgent")
    """
    _BRIDGES[name] = target


def register_adapter(name: str) -> Callable[[T], T]:
    """Register the decorated class or function as the bridge called *name*, for `load_bridge`.

    >>> @register_adapter("parrot")
    ... class Parrot(Agent):
    ...     def __init__(self, words="", **options):
    ...         super().__init__(**options)
    >>> load_bridge({"bridge": "parrot", "words": "Hello", "name": "Polly"}).module_id
    'polly'
    """

    def register(target: T) -> T:
        register_bridge(name, target)
        return target

    return register


def load_bridge(config: Mapping[str, Any]) -> Any:
    """Return the module that a config describes.

    Args:
        config: ``bridge`` (or ``adapter``) is the short name of a bridge; ``agent`` is an agent of
            a framework, or its import path, such as ``app:graph``; the other members are options.

    Raises:
        AgentConfigError: A bridge, an agent or an option is missing or unknown, or the import path
            of the agent is malformed.
        ImportError: The import path of the agent names a Python module that does not exist.
        TypeError: The agent is a class, or no bridge fits its type.

    >>> load_bridge({"agent": "platform:node", "name": "host"}).module_id
    'host'
    """
    options = dict(config)
    name, adapter_name = options.pop("bridge", None), options.pop("adapter", None)
    name = adapter_name if name is None else name
    agent = options.pop("agent", None)
    args = [] if agent is None else [import_object(agent) if isinstance(agent, str) else agent]
    if name is None:
        if not args:
            raise AgentConfigError("The config needs a bridge, an agent, or both")
        return _make_module(bridge, args, options)
    target = _find_target(str(name))
    if target is None:
        known_names = ", ".join(sorted(short for short in _BRIDGES if "." not in short))
        raise AgentConfigError(f"There is no bridge called {name}; known ones are {known_names}")
    return _make_module(_load(target), args, options, name if _takes_agent(target) else "")


load_adapter = load_bridge
"""The name that `load_bridge` has in the package a2a-adapter."""


def import_object(import_path: str) -> Any:
    """Return the object at an import path, such as ``package.module:name``.

    Raises:
        AgentConfigError: *import_path* has another form, or the module has no such attribute.
        ImportError: There is no such module.
    """
    module_name, colon, attribute_path = import_path.partition(":")
    if not (colon and attribute_path) or module_name[:1] in ("", "."):
        raise AgentConfigError(
            f"The import path of an agent is package.module:name, not {import_path}"
        )
    value = import_module(module_name)
    for name in attribute_path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise AgentConfigError(f"{module_name} has no attribute {attribute_path}") from None
    return value


def _takes_agent(target: str | Callable[..., Any]) -> bool:
    """Return whether a bridge takes an agent: bridges for functions and for agent types do."""
    return target == FUNCTION_BRIDGE or any(
        target == other for name, other in _BRIDGES.items() if "." in name
    )


def _make_module(
    make: Callable[..., Any], args: list[Any], options: Mapping[str, Any], agent_bridge: str = ""
) -> Any:
    """Call *make* to create a module; report options that are wrong or missing.

    If the bridge takes an agent, *agent_bridge* is the bridge's short name, which the message about
    a missing agent contains.
    """
    try:
        return make(*args, **options)
    except TypeError as error:
        if match := UNEXPECTED.search(str(error)):
            raise AgentConfigError(f"There is no option {match[1]}") from None
        if match := MISSING.search(str(error)):
            if agent_bridge and not args and "positional" in match[0]:
                raise AgentConfigError(
                    f"The bridge {agent_bridge} needs an agent, such as app:agent"
                ) from None
            raise AgentConfigError(f"The option {match[1]} is missing") from None
        raise


def _find_target(name: str) -> str | Callable[..., Any] | None:
    if name in _BRIDGES:
        return _BRIDGES[name]
    for entry_point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        _BRIDGES[name] = entry_point.value
        return entry_point.value
    return None


def _load(target: str | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(target, str):
        return target
    module_name, _, name = target.partition(":")
    loaded: Callable[..., Any] = attrgetter(name)(import_module(module_name, __package__))
    return loaded
