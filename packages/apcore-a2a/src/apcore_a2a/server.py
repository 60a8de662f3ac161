"""The main names of `apcore_a2a_server`, re-exported."""

from ._parts import importing

with importing("server", "apcore_a2a.server"):
    from apcore_a2a_server import InMemoryTaskStore, Limits, async_serve, create_app, serve

__all__ = ["InMemoryTaskStore", "Limits", "async_serve", "create_app", "serve"]
