"""The task stores of `apcore_a2a_server`, and the types for writing your own, re-exported."""

from ._parts import importing

with importing("server", "apcore_a2a.storage"):
    from apcore_a2a_server.store import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # re-exports
    from apcore_a2a_server.store import __all__ as __all__
