"""Agents as A2A servers: an application, a running server, or an Agent Card."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from apcore import Registry

from .detection import bridge, bridge_or_none, load_bridge
from .parts import is_mapping

if TYPE_CHECKING:
    from a2a.types import AgentCard
    from starlette.applications import Starlette

CARD_OPTIONS = ("name", "description", "version")
"""Names of the options for the Agent Card and, if a single agent is served, for its skill."""


def to_a2a(agents: Any, **options: Any) -> Starlette:
    """Return the ASGI application that serves an agent, or several as the skills of one agent.

    Args:
        agents: An agent (see `bridge`), or a mapping from skill ids to agents.
        options: Options of `create_app` in apcore-a2a-server, of `Agent`, and of the bridge.

    Raises:
        ImportError: apcore-a2a-server is not installed.

    Example:
        ```python
        from apcore_a2a_bridges import to_a2a


        async def echo(text: str) -> str:
            return text


        app = to_a2a(echo, url="https://agent.example.com")
        ```
    """
    with _explain_missing_server("to_a2a"):
        from apcore_a2a_server import create_app
        from apcore_a2a_server.app.options import Settings
    modules, server_options = _modules_and_options(agents, options, Settings)
    return create_app(modules, **server_options)


def serve_agent(agents: Any, *, host: str = "127.0.0.1", port: int = 8000, **options: Any) -> None:
    """Serve an agent, or several as the skills of one agent, until SIGINT or SIGTERM.

    Args:
        agents: An agent (see `bridge`), or a mapping from skill ids to agents.
        host: The address to listen on; `0.0.0.0` for all. Other machines can then call the agent,
            so set `auth` as well.
        port: The port to listen on.
        options: Options of `serve` in apcore-a2a-server, of `Agent`, and of the bridge.

    Raises:
        ImportError: apcore-a2a-server is not installed.

    Example:
        ```python test="lint"
        from apcore_a2a_bridges import serve_agent


        async def echo(text: str) -> str:
            return text


        serve_agent(echo)
        ```
    """
    with _explain_missing_server("serve_agent"):
        from apcore_a2a_server import serve
        from apcore_a2a_server.app.options import ServeSettings
    modules, server_options = _modules_and_options(agents, options, ServeSettings)
    serve(modules, host=host, port=port, **server_options)


def build_agent_card(
    agents: Any, *, url: str = "http://127.0.0.1:8000", **options: Any
) -> AgentCard:
    """Return a2a-sdk's `AgentCard` of an agent, or of several as the skills of one agent.

    Args:
        agents: An agent (see `bridge`), or a mapping from skill ids to agents.
        url: The URL of the agent.
        options: Options of `Agent` and of the agent's bridge.

    >>> build_agent_card(lambda text: text, name="Echo").skills[0].id
    'echo'
    """
    from a2a.types import AgentCapabilities
    from apcore_a2a_core import AgentCardBuilder, SkillMapper

    registry, card_values = registry_of(agents, options)
    return AgentCardBuilder(SkillMapper()).build(
        registry,
        name=card_values.get("name", ""),
        description=card_values.get("description", ""),
        version=card_values.get("version", ""),
        url=url,
        capabilities=AgentCapabilities(streaming=True),
    )


def registry_of(agents: Any, options: Mapping[str, Any]) -> tuple[Registry, dict[str, str]]:
    """Return a registry of the agents' modules, and the values of `CARD_OPTIONS`."""
    registry = Registry()
    if is_mapping(agents):
        bridge_options = {
            name: value for name, value in options.items() if name not in CARD_OPTIONS
        }
        for module_id, agent in agents.items():
            registry.register(module_id, bridge(agent, **bridge_options))
        return registry, {name: options[name] for name in CARD_OPTIONS if name in options}
    module = bridge(agents, **options)
    registry.register(getattr(module, "module_id", "agent"), module)
    card_values = {name: getattr(module, name, None) for name in CARD_OPTIONS}
    return registry, {name: value for name, value in card_values.items() if isinstance(value, str)}


def module_of(value: Any) -> Any:
    """Return an agent, or the agent that a config describes, as an apcore module.

    Return None if *value* is a class, or if no bridge fits it. The server finds this function by
    an entry point, to serve agents along with modules.

    Raises:
        AgentConfigError: The config describes no agent.
        ImportError: The config names an agent in a Python module that does not exist.
        TypeError: The agent in the config is a class, or no bridge fits its type.
    """
    if is_mapping(value):
        return load_bridge(value)
    return None if isinstance(value, type) else bridge_or_none(value)


def _modules_and_options(
    agents: Any, options: dict[str, Any], settings: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the modules of agents by module id, and the options for the server."""
    setting_names = {setting.name for setting in fields(settings)}
    shared_names = () if is_mapping(agents) else CARD_OPTIONS
    bridge_options = {
        n: v for n, v in options.items() if n not in setting_names or n in shared_names
    }
    server_options = {n: v for n, v in options.items() if n in setting_names}
    registry, card_values = registry_of(agents, bridge_options)
    modules = {module_id: registry.get(module_id) for module_id in registry.list()}
    return modules, {**card_values, **server_options}


@contextmanager
def _explain_missing_server(feature: str) -> Generator[None]:
    """Explain how to install the server if the block fails to import it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "apcore_a2a_server":
            raise
        message = f"{feature} needs the server part: pip install 'apcore-a2a[server]'"
        raise ImportError(message, name="apcore_a2a_server") from None
