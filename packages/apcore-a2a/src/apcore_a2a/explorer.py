"""`apcore_a2a_explorer` under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_explorer import Page, routes
except ModuleNotFoundError as error:
    raise missing(error, "explorer", "apcore_a2a.explorer") from None

__all__ = ["Page", "routes"]
