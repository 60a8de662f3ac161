"""The explorer: a page of another distribution, loaded through its entry point (FR-EXP-001)."""

from collections.abc import Sequence
from importlib.metadata import entry_points

from starlette.routing import Route

from apcore_a2a_server.bindings.rest import find_route
from apcore_a2a_server.fields import OptionError

ENTRY_POINT_GROUP, ENTRY_POINT = "apcore_a2a.explorer", "routes"
"""The entry point of the page: a function that takes a path and returns the page's routes."""


def explorer_routes(path: str, agent_routes: Sequence[Route]) -> list[Route]:
    """Return the routes of the page at *path*, first the one without a trailing slash.

    Args:
        path: The path of the page, below the root of the agent.
        agent_routes: The routes of the agent, which the page must not replace.

    Raises:
        ImportError: No page is installed.
        ValueError: *path* is not a path, or belongs to the agent.
    """
    installed = [*entry_points(group=ENTRY_POINT_GROUP, name=ENTRY_POINT)]
    if not installed:
        raise ImportError("explorer needs the explorer part: pip install 'apcore-a2a[explorer]'")
    try:
        routes: list[Route] = installed[0].load()(path)
    except ValueError as error:
        raise OptionError("explorer_path", f"must be a path: {error}") from None
    taken_paths = {route.path for route in agent_routes} | {"/metrics"}
    for route in routes:
        has_reserved_prefix = f"{route.path}/".startswith(("/v1/", "/apcore/"))
        is_reserved = has_reserved_prefix or find_route("GET", route.path.strip("/"))
        if route.path in taken_paths or is_reserved:
            raise OptionError("explorer_path", f"is taken: the agent itself is at {route.path}")
    return routes
