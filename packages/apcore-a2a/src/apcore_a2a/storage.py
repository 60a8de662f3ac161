"""`apcore_a2a_store`, task stores and what it takes to write one, under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_store import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # a mirror
    from apcore_a2a_store import __all__ as __all__
except ModuleNotFoundError as error:
    raise missing(error, "store", "apcore_a2a.storage") from None
