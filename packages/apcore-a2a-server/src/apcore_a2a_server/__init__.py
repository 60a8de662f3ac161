"""An A2A server for apcore modules: protocol 1.0 and 0.3 on one port."""

from apcore_a2a_store import InMemoryTaskStore

from .serving.app import async_serve, create_app
from .serving.serve import serve

__all__ = ["InMemoryTaskStore", "async_serve", "create_app", "serve"]
