"""`apcore_a2a_client`, the client of any A2A agent, under its `apcore_a2a` name."""

# what is public is that part's to say, here as there
from apcore_a2a_client import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # a mirror
from apcore_a2a_client import __all__ as __all__
