"""The explorer: a page of another distribution, found by its entry point (FR-EXP-001)."""

from collections.abc import Sequence
from importlib.metadata import entry_points

from starlette.routing import Route

from apcore_a2a_server.bindings.rest import route as rest_route
from apcore_a2a_server.fields import OptionError

GROUP, NAME = "apcore_a2a.explorer", "routes"
"""The entry point of who has a page: a function that takes its path and gives its routes."""


def explorer_routes(path: str, taken: Sequence[Route]) -> list[Route]:
    """The routes of the page at *path*; its address is the path of the first.

    Args:
        path: Where the page is to be, as seen from the agent.
        taken: The agent's own routes, which the page must leave alone.

    Raises:
        ImportError: No page is installed.
        ValueError: *path* is none, or something else is there.
    """
    found = [*entry_points(group=GROUP, name=NAME)]
    if not found:
        raise ImportError("explorer needs the explorer part: pip install 'apcore-a2a[explorer]'")
    try:
        routes: list[Route] = found[0].load()(path)
    except ValueError as error:
        raise OptionError("explorer_path", f"must be a path: {error}") from None
    known = {each.path for each in taken} | {"/metrics"}
    for each in routes:
        if each.path in known or rest_route("GET", each.path.strip("/")) is not None:
            raise OptionError("explorer_path", f"is taken: the agent itself is at {each.path}")
    return routes
