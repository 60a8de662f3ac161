"""`apcore_a2a_client`, a client for any A2A agent, under its `apcore_a2a` name."""

# the part's __all__ decides what is public
from apcore_a2a_client import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # a mirror
from apcore_a2a_client import __all__ as __all__
