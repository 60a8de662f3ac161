"""The names of `apcore_a2a_client`, re-exported."""

# the part's __all__ decides what is public
from apcore_a2a_client import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # re-exports
from apcore_a2a_client import __all__ as __all__
