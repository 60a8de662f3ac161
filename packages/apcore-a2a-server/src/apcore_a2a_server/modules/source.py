"""From what users hand over (a folder, a registry, an executor) to an executor."""

from os import PathLike
from pathlib import Path
from typing import Any, cast

from apcore_a2a_core import Executor, Registry, missing_methods

from apcore_a2a_server.fields import OptionError


def executor_of(source: Any, acl: Any = None, config: Any = None) -> tuple[Executor, bool]:
    """Return the executor of *source*, and whether it was made for it (FR-SRV-001).

    Args:
        source: An Executor (see the protocol), a Registry, an APCore client, or the path of a
            folder of modules.
        acl: The access rules of an executor that is made here: an apcore ACL, or the path of
            its file; else what the config's `acl.root` names.
        config: An apcore Config for an executor that is made here.

    Raises:
        NotADirectoryError: There is no such folder.
        TypeError: *source* is none of these; the message tells what it lacks.
        ValueError: There are rules for an executor that has its own, or they can't be read.
    """
    if isinstance(source, str | PathLike):
        return _made(discover(Path(cast("str", source))), acl, config), True
    source = getattr(source, "executor", source)
    if not missing_methods(source, Executor):
        if missing_methods(getattr(source, "registry", None), Registry):
            raise TypeError("The executor has no registry with list() and get_definition()")
        if acl is not None:
            raise OptionError("acl", "is for a registry; give it to your own executor")
        return source, False
    missing = missing_methods(source, Registry)
    if missing:
        kind = type(source).__name__
        raise TypeError(f"Neither Registry nor Executor: {kind} lacks {', '.join(missing)}")
    return _made(source, acl, config), True


def discover(folder: Path) -> Registry:
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


def _made(registry: Any, acl: Any, config: Any) -> Executor:
    from apcore import ACL
    from apcore import Executor as ApcoreExecutor

    rules: Any = ACL
    if isinstance(acl, str | PathLike):
        acl = _loaded(rules, Path(cast("str", acl)))
    elif acl is None and config is not None and hasattr(rules, "discover"):
        acl = _discovered(rules, config)
    return ApcoreExecutor(registry, acl=acl)


def _discovered(rules: Any, config: Any) -> Any:
    """The rules that `acl.root` of the config names; who names them means them."""
    try:
        found = rules.discover(config)
    except Exception as error:  # of the config, of YAML, of the file system
        raise ValueError(f"acl.root of the config: {error}") from None
    root, kind = config.get("acl.root"), cast("Any", type(config))
    if found is None and root not in (None, kind.get_default("acl.root")):
        raise ValueError(f"acl.root of the config: there are no rules at {root}")
    return found


def _loaded(rules: Any, path: Path) -> Any:
    if not path.is_file():
        raise OptionError("acl", f"must be a file: there is no file {path}")
    try:
        return rules.load(str(path))
    except Exception as error:  # of the config, of YAML, of the file system
        raise OptionError("acl", f"can't be read: {path}: {error}") from None
