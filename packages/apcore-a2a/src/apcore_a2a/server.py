"""`apcore_a2a_server` under its `apcore_a2a` name."""

from apcore_a2a_server import InMemoryTaskStore, async_serve, create_app, serve

__all__ = ["InMemoryTaskStore", "async_serve", "create_app", "serve"]
