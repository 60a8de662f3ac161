"""The explorer: a web page for viewing an agent, calling it and watching its tasks (FR-EXP-001)."""

from .page import Page, routes

__all__ = ["Page", "routes"]
