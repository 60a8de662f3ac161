"""`apcore_a2a_server` under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_server import InMemoryTaskStore, Limits, async_serve, create_app, serve
except ModuleNotFoundError as error:
    raise missing(error, "server", "apcore_a2a.server") from None

__all__ = ["InMemoryTaskStore", "Limits", "async_serve", "create_app", "serve"]
