"""`apcore_a2a_explorer` under its `apcore_a2a` name."""

from ._parts import importing

with importing("explorer", "apcore_a2a.explorer"):
    from apcore_a2a_explorer import Page, routes

__all__ = ["Page", "routes"]
