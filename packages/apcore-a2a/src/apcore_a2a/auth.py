"""The names of `apcore_a2a_auth`, re-exported."""

from ._parts import importing

with importing("auth", "apcore_a2a.auth"):  # the part's __all__ decides what is public
    from apcore_a2a_auth import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # re-exports
    from apcore_a2a_auth import __all__ as __all__
