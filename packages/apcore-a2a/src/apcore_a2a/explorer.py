"""The names of `apcore_a2a_explorer`, re-exported."""

from ._parts import importing

with importing("explorer", "apcore_a2a.explorer"):
    from apcore_a2a_explorer import Page, routes

__all__ = ["Page", "routes"]
