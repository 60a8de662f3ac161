"""`apcore_a2a_push` under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_push import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # a mirror
    from apcore_a2a_push import __all__ as __all__
except ModuleNotFoundError as error:
    raise missing(error, "push", "apcore_a2a.push") from None
