"""Stores by their addresses: `memory`, `sqlite:///agent.db`, `postgresql://…`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from .memory import InMemoryTaskStore
from .port import Store

ADDRESS_FORMS = "memory, sqlite:///agent.db or postgresql://user:password@host/database"


def open_store(address: str, memory: Callable[[], Store] = InMemoryTaskStore) -> Store:
    """Return the store at *address*; nothing is opened before its `start`.

    Args:
        address: `memory`; `sqlite:///` followed by a path (four slashes if the path is absolute);
            or the URL of a PostgreSQL database.
        memory: Function that returns a store in memory.

    Raises:
        ValueError: The address has none of these forms.
        ImportError: A package for the store is not installed; the message says how to install it.

    Example:
        ```python
        from apcore_a2a_server.store.urls import open_store

        print(type(open_store("memory")).__name__)
        #> InMemoryTaskStore
        ```
    """
    backend, location = parse_address(address)
    if backend == "memory":
        return memory()
    package = import_backend(backend)
    store_class = package.SqliteStore if backend == "sqlite" else package.PostgresStore
    store: Store = store_class(location)
    return store


def parse_address(address: str) -> tuple[str, str]:
    """Return the backend (`memory`, `sqlite` or `postgres`) and the file or URL of a store.

    Raises:
        ValueError: The text is not the address of a store.
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
    # The message does not quote the address, which may contain a password.
    raise ValueError(f"The store must be {ADDRESS_FORMS}")


def import_backend(backend: str, module: str = "") -> Any:
    """Return the package of a backend, or one of its modules, such as `.schema`.

    Raises:
        ImportError: A package for the backend is not installed; the message says how to install it.
    """
    try:
        return import_module(f"apcore_a2a_server.store.{backend}{module}")
    except ModuleNotFoundError as error:
        message = f"This store needs {error.name}: pip install 'apcore-a2a[{backend}]'"
        raise ImportError(message, name=error.name) from None
