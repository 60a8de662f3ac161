"""The explorer: a page on which people see an agent, try it, and watch it work (FR-EXP-001)."""

from .page import Page, routes

__all__ = ["Page", "routes"]
