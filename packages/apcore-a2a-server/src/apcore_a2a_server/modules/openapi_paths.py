"""Paths of HTTP APIs, and the templates that OpenAPI documents declare for them."""

import re

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


def path_pattern(template: str) -> re.Pattern[str]:
    """Return a pattern that matches the paths of a template with placeholders.

    >>> bool(path_pattern("/items/{id}/price").fullmatch("/items/5/price"))
    True
    """
    literals = PLACEHOLDER.split(template)[::2]
    return re.compile("[^/]+".join(map(re.escape, literals)))


def plain_path(path: str) -> str:
    """Return a path or template without the parts that some servers ignore in routing.

    These parts are parameters of segments (RFC 3986 §3.3), repeated slashes and slashes at the end.
    Backslashes become slashes.

    >>> plain_path("/items;v=1//5/")
    '/items/5'
    """
    return re.sub(r"/+(?=/|$)", "", re.sub(r";[^/]*", "", path.replace("\\", "/")))
