"""Stores by their URLs: `memory`, `sqlite:///agent.db`, `postgresql://…`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from .memory import InMemoryTaskStore
from .port import Store

FORMS = "memory, sqlite:///agent.db or postgresql://user:password@host/database"


def open_store(address: str, memory: Callable[[], Store] = InMemoryTaskStore) -> Store:
    """Return the store at *address*; nothing is opened before its `start`.

    Args:
        address: `memory`; `sqlite:///` and a path, absolute with four slashes; or the URL of a
            PostgreSQL database.
        memory: Makes a store in memory.

    Raises:
        ValueError: It is none of these.
        ImportError: A package that it needs is not installed; the message says how to install it.

    Example:
        ```python
        from apcore_a2a_server.store.urls import open_store

        print(type(open_store("memory")).__name__)
        #> InMemoryTaskStore
        ```
    """
    kind, place = place_of(address)
    if kind == "memory":
        return memory()
    package = part(kind)
    make = package.SqliteStore if kind == "sqlite" else package.PostgresStore
    store: Store = make(place)
    return store


def place_of(address: str) -> tuple[str, str]:
    """Return the kind of a store, `memory`, `sqlite` or `postgres`, and its file or URL.

    Raises:
        ValueError: It is no address of a store.
    """
    if address == "memory":
        return "memory", ""
    try:
        parsed = urlsplit(address)
    except ValueError:
        parsed = urlsplit("")
    if parsed.scheme == "sqlite" and not parsed.netloc and parsed.path.strip("/"):
        return "sqlite", unquote(parsed.path[1:])
    if parsed.scheme in ("postgres", "postgresql") and parsed.hostname:
        return "postgres", address
    # the address itself may hold a password
    raise ValueError(f"The store must be {FORMS}")


def part(kind: str, module: str = "") -> Any:
    """Return the package for a kind of store, or one of its modules.

    Raises:
        ImportError: A package that it needs is not installed; the message says how to install it.
    """
    try:
        return import_module(f"apcore_a2a_server.store.{kind}{module}")
    except ModuleNotFoundError as error:
        message = f"This store needs {error.name}: pip install 'apcore-a2a[{kind}]'"
        raise ImportError(message, name=error.name) from None
