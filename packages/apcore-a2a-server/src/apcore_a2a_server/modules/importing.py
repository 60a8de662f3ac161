"""Import of the file or Python module that a target names."""

import re
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from apcore.errors import ModuleLoadError
from apcore_a2a_core import clean

from .loading import reason_of

TARGET_FORMATS = (
    "A target is a folder, a .py file, a .binding.yaml file, a .yaml file that describes agents, "
    "package.module, or module:attribute for an APCore, Registry, Executor, agent, or list of "
    "modules."
)


class TargetError(ValueError):
    """A target that can't be served; the message says why."""


def import_file(file: Path, name: str) -> ModuleType:
    """Import a file as the Python module *name*.

    Raises:
        TargetError: The code of the file raises an exception.
    """
    make_importable(file.parent)
    spec = spec_from_file_location(name, file)
    assert spec
    assert spec.loader
    # pydantic and dataclasses look in `sys.modules` for the names in annotations.
    namespace = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(namespace)
    except BaseException as error:  # the code of users may raise anything
        del sys.modules[name]
        if not isinstance(error, Exception):  # SystemExit or KeyboardInterrupt
            raise
        raise TargetError(f"{file} can't be imported: {_reason(error, file)}") from None
    return namespace


def import_module_of(name: str, target: str) -> ModuleType:
    """Import the Python module *name* of a target.

    Raises:
        TargetError: There is no such module, or its code raises an exception.
    """
    problem = f"There is no file, folder or Python module {clean(target, 500)}\n{TARGET_FORMATS}"
    if not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(problem)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise TargetError(problem) from None
        raise TargetError(f"{name} can't be imported: {reason_of(error)}") from None
    except Exception as error:  # the code of users may raise anything
        raise TargetError(f"{name} can't be imported: {reason_of(error)}") from None


def _reason(error: Exception, file: Path) -> str:
    """Describe *error* and its line in *file*, as `reason_of` does for a ModuleLoadError."""
    # `reason_of` looks for the line in the file that `module_id` names
    wrapped = ModuleLoadError(module_id=str(file.absolute()), reason="")
    wrapped.__cause__ = error
    return reason_of(wrapped)


def unused_name(file: Path) -> str:
    """Return the name under which to import a file: its own, unless another module has it."""
    name = re.sub(r"\W", "_", file.stem)
    return f"apcore_ext_{name}" if name in {*sys.modules, *sys.stdlib_module_names} else name


def make_importable(folder: Path) -> None:
    """Let files in *folder* import each other; modules elsewhere with the same names come first."""
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.append(path)
