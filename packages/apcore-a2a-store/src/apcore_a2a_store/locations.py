"""Stores by their addresses: `memory`, `sqlite:///agent.db`, `postgresql://…`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from .memory import InMemoryTaskStore
from .port import Store

FORMS = "memory, sqlite:///agent.db or postgresql://user:password@host/database"


def open_store(address: str, memory: Callable[[], Store] = InMemoryTaskStore) -> Store:
    """The store at *address*; nothing is opened before its `start`.

    Args:
        address: `memory`; `sqlite:///` and a path, absolute with four slashes; or the URL of a
            PostgreSQL database.
        memory: What makes a store in memory.

    Raises:
        ValueError: It is none of these.
        ImportError: What it takes is not installed; the message says how to install it.

    Example:
        ```python
        from apcore_a2a_store.locations import open_store

        print(type(open_store("memory")).__name__)
        #> InMemoryTaskStore
        ```
    """
    if address == "memory":
        return memory()
    try:
        parsed = urlsplit(address)
    except ValueError:
        parsed = urlsplit("")
    if parsed.scheme == "sqlite" and not parsed.netloc and parsed.path.strip("/"):
        store: Store = _part("sqlite").SqliteStore(unquote(parsed.path[1:]))
        return store
    if parsed.scheme in ("postgres", "postgresql") and parsed.hostname:
        shared: Store = _part("postgres").PostgresStore(address)
        return shared
    # the address itself may hold a password
    raise ValueError(f"The store must be {FORMS}")


def _part(name: str) -> Any:
    try:
        return import_module(f"apcore_a2a_store.{name}")
    except ModuleNotFoundError as error:
        message = f"This store needs {error.name}: pip install 'apcore-a2a-store[{name}]'"
        raise ImportError(message, name=error.name) from None
