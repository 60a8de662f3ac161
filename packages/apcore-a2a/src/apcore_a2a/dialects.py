"""`apcore_a2a_dialects` under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_dialects import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # a mirror
    from apcore_a2a_dialects import __all__ as __all__
except ModuleNotFoundError as error:
    raise missing(error, "dialects", "apcore_a2a.dialects") from None
