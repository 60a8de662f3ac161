"""The stores of `apcore_a2a_server`, and what it takes to write one."""

from ._parts import missing

try:
    from apcore_a2a_server.store import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # a mirror
    from apcore_a2a_server.store import __all__ as __all__
except ModuleNotFoundError as error:
    raise missing(error, "server", "apcore_a2a.storage") from None
