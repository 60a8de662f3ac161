"""Executors from the sources that users pass: targets, a registry, a client or an executor."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, cast

import apcore
from apcore_a2a_core import Executor, Registry, missing_methods

from apcore_a2a_server.fields import OptionError

from .steps import DirectExecutor
from .targets import SEQUENCES, combine, has_modules, load


def executor_of(
    source: Any, acl: Any = None, config: Any = None, *, allow_empty: bool = False
) -> tuple[Executor, bool]:
    """Return the executor of *source*, and whether it was created here (FR-SRV-001).

    Args:
        source: An Executor (see `apcore_a2a_core.Executor`), a Registry, an APCore client, a
            module, or a target (see `targets.load`), such as the path of a folder; or a list of
            these.
        acl: The access rules of an executor that is created here: an apcore ACL, or the path of
            its file; by default those that `acl.root` of the config names.
        config: An apcore Config, of which only `acl.root` is used here.
        allow_empty: Whether a folder may have no modules.

    Raises:
        NoModulesError: A target has no modules.
        TargetError: There is no such target, it can't be imported, or a list has two modules
            with the same id, or two executors.
        TypeError: *source* is of another type; the message names the missing methods.
        ValueError: *acl* is given for an existing executor, or the rules can't be read.
    """
    source = load(source, allow_empty=allow_empty)
    if isinstance(source, Mapping):  # modules by id
        source = combine([cast("Any", source)])
    source = getattr(source, "executor", source)
    if not missing_methods(source, Executor):
        if missing_methods(getattr(source, "registry", None), Registry):
            raise TypeError("The executor has no registry with list() and get_definition()")
        if acl is not None:
            raise OptionError("acl", "is not for an existing executor: pass it to that executor")
        return source, False
    missing = missing_methods(source, Registry)
    if missing:
        kind = type(source).__name__
        raise TypeError(f"Neither a Registry nor an Executor: {kind} lacks {', '.join(missing)}")
    return _new_executor(source, acl, config), True


def agent_owns(source: Any) -> bool:
    """Return whether the modules of *source* are closed when the agent that serves them ends.

    A registry, client or executor that is passed as an object belongs, with its modules, to the
    program that created it.

    >>> agent_owns("./skills"), agent_owns(["./skills", apcore.Registry()])
    (True, False)
    >>> agent_owns({"greet": "./greet.py"}), agent_owns({"greet": apcore.Registry()})
    (True, False)
    """
    if isinstance(source, SEQUENCES):
        return all(map(agent_owns, source))
    if isinstance(source, Mapping):
        return all(map(agent_owns, cast("Mapping[str, Any]", source).values()))
    return isinstance(source, str) or not has_modules(source)


def _new_executor(registry: Any, acl: Any, config: Any) -> Executor:
    acl_type: Any = apcore.ACL
    if isinstance(acl, str | PathLike):
        acl = _load_acl(acl_type, Path(cast("str", acl)))
    elif acl is None and config is not None and hasattr(acl_type, "discover"):
        acl = _discover_acl(acl_type, config)
    return DirectExecutor(registry, acl=acl)


def _discover_acl(acl_type: Any, config: Any) -> Any:
    """Return the rules that `acl.root` of the config names, if any."""
    try:
        acl = acl_type.discover(config)
    except Exception as error:  # from the config, YAML or the file system
        raise ValueError(f"acl.root of the config: {error}") from None
    # apcore treats a missing file as no rules. Only the default path may be missing: an operator
    # who sets another path expects access to be restricted.
    root, config_type = config.get("acl.root"), cast("Any", type(config))
    if acl is None and root not in (None, config_type.get_default("acl.root")):
        raise ValueError(f"acl.root of the config: there are no rules at {root}")
    return acl


def _load_acl(acl_type: Any, path: Path) -> Any:
    if not path.is_file():
        raise OptionError("acl", f"must be a file: there is no file {path}")
    try:
        return acl_type.load(str(path))
    except Exception as error:  # from apcore, YAML or the file system
        raise OptionError("acl", f"can't be read: {path}: {error}") from None
