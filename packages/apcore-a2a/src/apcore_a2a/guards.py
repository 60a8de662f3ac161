"""`apcore_a2a_guards` under its `apcore_a2a` name."""

from ._parts import missing

try:  # what is public is that part's to say, here as there
    from apcore_a2a_guards import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # a mirror
    from apcore_a2a_guards import __all__ as __all__
except ModuleNotFoundError as error:
    raise missing(error, "guards", "apcore_a2a.guards") from None
