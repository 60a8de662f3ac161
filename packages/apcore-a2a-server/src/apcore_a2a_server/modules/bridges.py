"""Modules for agents of other frameworks, made by the entry points of packages.

apcore-a2a-bridges is such a package. The server does not need it.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import yaml
from apcore_a2a_core import clean
from apcore_a2a_core.values import is_object

from .importing import TARGET_FORMATS, TargetError, make_importable
from .loading import reason_of

logger = logging.getLogger("apcore_a2a.modules")

ENTRY_POINT_GROUP, ENTRY_POINT = "apcore_a2a.modules", "module_of"
"""The group and the name of entry points whose functions make modules from other objects.
A function takes an object, such as an agent of a framework, or the config of an agent. It returns a
module, or None for an object that it does not know."""
HINT = "Agents of other frameworks need the bridges: pip install 'apcore-a2a[bridges]'"
AGENTS = "agents"
"""The key under which a file describes several agents, by the ids of their skills."""
MAX_FILE = 1_000_000
"""Maximum size of a file that describes agents, in bytes."""
CLOSE_TIMEOUT = 5.0  # seconds


def module_of(agent: Any) -> Any:
    """Return the module that a bridge makes from an agent, function or config; None if none can."""
    return next((module for make in _makers() if (module := make(agent)) is not None), None)


def hint() -> str:
    """Return a line for messages that says how to install bridges; empty if some are installed."""
    return "" if _makers() else f"\n{HINT}"


def module_of_config(config: Mapping[str, Any], place: str) -> Any:
    """Return the module of the agent that a config describes.

    Args:
        config: The name of a bridge, an agent or its import path, and options.
        place: The file or skill of the config, for messages.

    Raises:
        TargetError: The config describes no agent, or no module can be made of the agent.
    """
    try:
        module = module_of(config)
    except Exception as error:  # from the bridge, and from the code that the config names
        raise TargetError(f"{place} can't be served: {reason_of(error)}") from None
    if module is None:
        raise TargetError(f"{place} describes no agent{hint()}")
    return module


def modules_in_file(path: Path) -> dict[str | None, Any]:
    """Return the modules of the agents that a YAML file describes, by skill id.

    Args:
        path: The file. It is the config of one agent, or has the configs of several under the key
            `agents`, by skill id. The agents that it names can be imported from its folder.

    Returns:
        The modules. If the file is the config of one agent, the key is None instead of an id.

    Raises:
        TargetError: The file can't be read or describes no agents, or an agent can't be served.
    """
    content = _read(path)
    make_importable(path.parent)
    agents = content.get(AGENTS)
    if agents is None:
        return {None: module_of_config(content, str(path))}
    if not is_object(agents) or not all(map(is_object, agents.values())) or len(content) > 1:
        problem = "must be the only one, and map the ids of skills to agents"
        raise TargetError(f"In {path}, the key {AGENTS} {problem}")
    return {
        str(skill_id): module_of_config(config, f"{skill_id} in {path}")
        for skill_id, config in agents.items()
    }


async def close_modules(modules: Mapping[str, object]) -> None:
    """Close the modules that have a coroutine function `close`.

    A `close` that fails, or takes longer than `CLOSE_TIMEOUT`, is logged.

    Args:
        modules: The modules by their ids.
    """
    skill_ids = {id(module): skill_id for skill_id, module in modules.items()}  # each module once
    closing = [_close(skill_id, modules[skill_id]) for skill_id in skill_ids.values()]
    await asyncio.gather(*closing, return_exceptions=True)


async def _close(skill_id: str, module: object) -> None:
    try:
        close = getattr(module, "close", None)
        if inspect.iscoroutinefunction(close):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await close()
    # modules may raise anything; the others must be closed too
    except (Exception, asyncio.CancelledError, SystemExit):
        extra = {"event": "module_close_failed"}
        logger.exception("The module %s could not be closed", clean(skill_id), extra=extra)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        is_too_large = path.stat().st_size > MAX_FILE
        content: Any = None if is_too_large else yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise TargetError(f"{path} can't be read as YAML: {clean(str(error), 500)}") from None
    if is_too_large:
        raise TargetError(f"{path} is larger than {MAX_FILE} bytes")
    if not is_object(content) or not ({"bridge", "adapter", "agent", AGENTS} & content.keys()):
        raise TargetError(
            f"{path} is not a bindings file (*.binding.yaml), and describes no agents: "
            f"it has none of the keys bridge, agent and agents\n{TARGET_FORMATS}"
        )
    return content


def _makers() -> list[Callable[[Any], Any]]:
    points = entry_points(group=ENTRY_POINT_GROUP, name=ENTRY_POINT)
    return [cast("Callable[[Any], Any]", point.load()) for point in points]
