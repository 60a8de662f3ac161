"""`apcore_a2a_auth` under its `apcore_a2a` name."""

from ._parts import missing

try:  # what is public is that part's to say, here as there
    from apcore_a2a_auth import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # a mirror
    from apcore_a2a_auth import __all__ as __all__
except ModuleNotFoundError as error:
    raise missing(error, "auth", "apcore_a2a.auth") from None
