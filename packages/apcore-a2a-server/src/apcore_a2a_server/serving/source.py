"""From what users hand over (a folder, a registry, an executor) to an executor."""

from os import PathLike
from pathlib import Path
from typing import Any, cast

from apcore_a2a_core import Executor, Registry, missing_methods


def executor_of(source: Any) -> tuple[Any, bool]:
    """The executor of *source*, and whether it was made for it (FR-SRV-001).

    Args:
        source: An Executor, a Registry, an APCore client, or the path of a folder of modules.

    Raises:
        NotADirectoryError: There is no such folder.
        TypeError: It is none of these; the message tells what it lacks.
    """
    from apcore import Executor as ApcoreExecutor

    if isinstance(source, str | PathLike):
        return ApcoreExecutor(discover(Path(cast("str", source)))), True
    source = getattr(source, "executor", source)
    if not missing_methods(source, Executor):
        if missing_methods(getattr(source, "registry", None), Registry):
            raise TypeError("The executor has no registry with list() and get_definition()")
        return source, False
    missing = missing_methods(source, Registry)
    if missing:
        kind = type(source).__name__
        raise TypeError(f"Neither Registry nor Executor: {kind} lacks {', '.join(missing)}")
    return ApcoreExecutor(source), True


def discover(folder: Path) -> Any:
    """A registry of the modules in *folder*.

    Raises:
        NotADirectoryError: There is no such folder.
    """
    from apcore import Registry as ApcoreRegistry

    if not folder.is_dir():
        raise NotADirectoryError(f"Extensions directory not found: {folder}")
    registry = ApcoreRegistry(extensions_dir=str(folder))
    registry.discover()
    return registry
