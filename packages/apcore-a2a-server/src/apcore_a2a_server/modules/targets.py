"""Loading of targets, such as a folder, `package.module`, `module:attribute` or a Registry."""

import inspect
import logging
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import apcore
from apcore.decorator import FunctionModule
from apcore.registry import resolve_entry_point, validate_module
from apcore_a2a_core import Executor, Registry, clean, missing_methods

from apcore_a2a_server.fields import suggestion

from . import bridges
from .importing import (
    TARGET_FORMATS,
    TargetError,
    import_file,
    import_module_of,
    make_importable,
    unused_name,
)
from .loading import (
    MODULE_FORMAT,
    DeferredError,
    NoModulesError,
    creates_modules,
    explain_no_modules,
    holders_in,
    load_failures,
    reason_of,
    with_hint,
)

logger = logging.getLogger("apcore_a2a_server")

BINDINGS, YAML = "*.binding.yaml", (".yaml", ".yml")
UNCALLED = "A decorator of apcore or of an APCore client is used without a call"
SEQUENCES: tuple[type[Any], ...] = (list, tuple)


class Extension(NamedTuple):
    """A file of functions or APCore clients in a folder of modules.

    Attributes:
        file: Its path.
        id_prefix: The first part of the ids of its modules.
        name: The name under which it is imported as a Python module.
    """

    file: Path
    id_prefix: str
    name: str

    @classmethod
    def of(cls, file: Path, folder: Path) -> "Extension":
        """Return the extension for a file in a folder."""
        parts = file.relative_to(folder).with_suffix("").parts
        return cls(file, ".".join(parts), f"apcore_ext_{'_'.join(parts)}")

    def imported_source(self) -> Any:
        """Return the modules of the imported file as a source; empty if there are none."""
        namespace = sys.modules.get(self.name)
        if namespace is not None and namespace.__file__ == str(self.file):
            with suppress(NoModulesError, TargetError):
                return _modules_in(namespace, self.id_prefix, self.file.name)
        return {}

    def load(self) -> Any:
        """Import the file (again), run `on_load` of its modules, and return them as a source.

        Raises:
            NoModulesError: The file has no modules.
            TargetError: The file can't be imported, or apcore refuses one of its modules.
        """
        earlier_module = sys.modules.get(self.name)
        old_modules = [module for module, _ in entries_of(self.imported_source()).values()]
        try:
            with _out_of_global_client(old_modules):
                source = _load_file(self.file, self.id_prefix, self.name)
                _add(apcore.Registry(), source)  # the registry checks modules and runs on_load
        except BaseException:  # SystemExit, too
            if earlier_module is not None:  # the old functions stay in service
                sys.modules[self.name] = earlier_module
            raise
        return source


def load(target: Any, *, allow_empty: bool = False) -> Any:
    """Load a target, and return an object with modules, or a mapping of ids to modules.

    Args:
        target: The path of a folder or file, `package.module`, `module:attribute`, a Python module,
            an object with modules (see `has_modules`), a module, an agent that a bridge adapts, a
            mapping of skill ids to targets with one module or to configs of agents, or a list of
            these. Any other object is returned as it is.
        allow_empty: Whether a folder may have no modules.

    Raises:
        TargetError: There is no such target, or it can't be imported.
        NoModulesError: The target has no modules.
    """
    if isinstance(target, PathLike):
        return _load_path(Path(cast("PathLike[str]", target)), allow_empty)
    if isinstance(target, str):
        return _load_named(target, allow_empty)
    if isinstance(target, SEQUENCES):
        return combine([load(item, allow_empty=allow_empty) for item in target])
    if isinstance(target, Mapping):
        targets = cast("Mapping[str, Any]", target)
        return {module_id: _only_module(item, module_id) for module_id, item in targets.items()}
    if isinstance(target, ModuleType):
        return _modules_in(target, target.__name__, target.__name__)
    module = _as_module(target)
    if module is None and not has_modules(target):
        module = bridges.module_of(target)
    return target if module is None else {_id_of(module): module}


def _only_module(target: Any, module_id: str) -> Any:
    """Return the only module of a target, for the skill with the id *module_id*.

    Raises:
        TargetError: The target does not have exactly one module, or can't be loaded.
    """
    if isinstance(target, Mapping):
        return bridges.module_of_config(cast("Mapping[str, Any]", target), module_id)
    modules = entries_of(load(target))
    if len(modules) != 1:
        raise TargetError(f"The target of the skill {module_id} has {len(modules)} modules, not 1")
    ((module, _),) = modules.values()
    return module


def combine(sources: Sequence[Any]) -> Any:
    """Add all modules to one source and return it: the Executor, the first Registry or a new one.

    Raises:
        TargetError: There are several executors, or two modules have the same id.
    """
    executors = [source for source in sources if _executor_of(source) is not None]
    if len(executors) > 1:
        problem = "Only one target can be an Executor or APCore, whose rules apply to all modules"
        raise TargetError(f"{problem}, but there are {len(executors)}")
    registries = [source for source in sources if not isinstance(source, Mapping)]
    base: Any = (*executors, *registries, apcore.Registry())[0]
    executor = _executor_of(base)
    registry = base if executor is None else executor.registry
    for source in sources:
        if source is not base:
            _add(registry, source)
    return base


def folder_of(target: Any) -> Path | None:
    """Return the folder that a single target names; None if there is none."""
    if isinstance(target, SEQUENCES) and len(target) == 1:
        (target,) = target
    if isinstance(target, PathLike):
        target = str(Path(cast("PathLike[str]", target)))
    path = _existing_path(target) if isinstance(target, str) else None
    return path if path is not None and path.is_dir() else None


def discover(folder: Path, *, allow_empty: bool = False) -> Registry:
    """Return a registry of the modules in *folder*: classes, functions and bindings.

    Raises:
        NoModulesError: The folder has no modules, and *allow_empty* is not set.
        TargetError: The folder does not exist, is a file, or has bindings that can't be loaded.
    """
    if not folder.is_dir():
        problem = "is a file, but a folder is expected" if folder.exists() else "does not exist"
        raise TargetError(f"The folder of modules {folder} {problem}")
    deferred: list[Path] = []

    def defer(file: Path) -> None:
        if creates_modules(file):
            deferred.append(file)
            raise DeferredError

    registry = apcore.Registry(extensions_dir=str(folder), pre_approval_hook=defer)
    with load_failures() as failures:
        registry.discover()
    for file in sorted(deferred):
        extension = Extension.of(file, folder.resolve())
        try:
            _add(registry, _load_file(file, extension.id_prefix, extension.name))
        except (NoModulesError, TargetError) as error:
            failures[extension.id_prefix] = str(error)
            extra = {"event": "module_load_failed"}
            path = file.relative_to(folder.resolve())
            logger.warning("Can't load %s: %s", path, error, extra=extra)
    for file in sorted(folder.rglob(BINDINGS)):
        bind(registry, file)
    if not registry.list() and not allow_empty:
        raise NoModulesError(explain_no_modules(folder, failures))
    return registry


def _load_named(target: str, allow_empty: bool) -> Any:
    """Load what a text names: a path that exists, or else a Python module or its attribute."""
    path = _existing_path(target)
    if path is not None:
        return _load_path(path, allow_empty)
    name, colon, attribute = target.rpartition(":")
    owner = name if colon else target
    if owner.endswith((".py", ".yaml", ".yml")) or re.search(r"[/\\]", owner):
        file = _existing_path(owner) if colon else None
        if file is None:
            raise TargetError(f"There is no file or folder {clean(owner, 500)}\n{TARGET_FORMATS}")
        if not file.is_file():
            problem = "is a folder, but a file is expected before the colon"
            raise TargetError(f"{clean(owner, 500)} {problem}\n{TARGET_FORMATS}")
        namespace = import_file(file, unused_name(file))
    else:
        namespace = import_module_of(owner, target)
    if not colon:
        return _modules_in(namespace, target, target)
    return load(_attribute(namespace, attribute, owner), allow_empty=allow_empty)


def _existing_path(text: str) -> Path | None:
    """Return the path that a text names; None if nothing is there."""
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, an unknown user after ~, a NUL
        return None


def _load_path(path: Path, allow_empty: bool) -> Any:
    if path.is_file() and path.match(BINDINGS):
        registry = apcore.Registry()
        bind(registry, path)
        return registry
    if path.is_file() and path.suffix in YAML:
        return {
            skill_id or _id_of(module): module
            for skill_id, module in bridges.modules_in_file(path).items()
        }
    if path.is_file() and path.suffix != ".py":
        raise TargetError(f"{path} is neither Python nor YAML\n{TARGET_FORMATS}")
    if not path.is_file():
        return discover(path, allow_empty=allow_empty)
    make_importable(path.parent)
    module_id = re.sub(r"\W", "_", path.stem).lower()
    if creates_modules(path):
        return _load_file(path, module_id, unused_name(path))
    try:
        module_class = resolve_entry_point(path)
    except apcore.ModuleError as error:
        reason = with_hint(reason_of(error), path)
        raise NoModulesError(f"{path} could not be loaded: {reason}\n{MODULE_FORMAT}") from None
    if errors := validate_module(module_class):
        raise NoModulesError(f"{path}: class {module_class.__name__}: {'; '.join(errors)}")
    return {module_id: _create(module_class)}


def _load_file(file: Path, id_prefix: str, name: str) -> Any:
    """Import a file that creates modules; return them as `_modules_in` does."""
    return _modules_in(import_file(file, name), id_prefix, file.name)


def _modules_in(namespace: ModuleType, id_prefix: str, label: str) -> Any:
    """Return the modules that a Python module defines, by id, or the object that holds them.

    Args:
        namespace: The Python module.
        id_prefix: The first part of the ids of modules without an id of their own.
        label: The name of the Python module in messages.
    """
    holders = holders_in(namespace)
    if len(holders) > 1:
        choices = " or ".join(f"{label}:{name}" for name in holders)
        raise TargetError(f"{label} has several sources of modules; choose {choices}")
    for holder in holders.values():
        return holder
    modules, identities = dict[str, Any](), dict[str, Any]()
    defining_names = (namespace.__name__, FunctionModule.__module__)
    for value in vars(namespace).values():
        is_defined_here = getattr(value, "__module__", "") in defining_names
        if inspect.isclass(value) and not is_defined_here:
            continue  # it is only imported here, so none of its code may run
        module = _as_module(value)
        if module is not None and is_defined_here:
            module_id = _id_of(module, namespace.__name__, id_prefix)
            # a class and its instance are one module
            is_function = isinstance(module, FunctionModule)
            identity: object = module if is_function else cast("object", type(module))
            if identities.setdefault(module_id, identity) is not identity:
                raise TargetError(f"{label} has two modules with the id {clean(module_id)}")
            modules[module_id] = module
    if not modules:
        raise NoModulesError(f"There are no modules in {label}\n{MODULE_FORMAT}")
    return modules


def _as_module(value: Any) -> Any:
    """Return *value* if it is a module, or the module of a class or decorated function; else None.

    Raises:
        TargetError: A decorator lacks its parentheses, or the class can't be instantiated.
    """
    if inspect.isroutine(value):
        if value.__qualname__ == "APCore.module.<locals>.decorator":
            raise TargetError(f"{UNCALLED}: write @module(), with parentheses")
        return getattr(value, "apcore_module", None)
    if isinstance(value, FunctionModule):
        return value
    if validate_module(value):
        return None
    return _create(value) if inspect.isclass(value) else value


def _create(module_class: type[Any]) -> Any:
    """Return an instance of a module class.

    Raises:
        TargetError: Its `__init__` takes arguments, or raises an exception.
    """
    try:
        return module_class()
    except Exception as error:  # the code of users may raise anything
        problem = f"{module_class.__name__} can't be created: {reason_of(error)}"
        raise TargetError(f"{problem}; its __init__ must work without arguments") from None


def _id_of(module: Any, name: str = "", id_prefix: str = "") -> str:
    """Return a module's id: the author's, or *id_prefix* and the name of the class or function.

    Args:
        module: The module.
        name: The name of its Python module, with which the ids that apcore generates begin.
        id_prefix: The first part of the returned id if the module's id is generated or missing.

    Raises:
        TargetError: The module has no id, and *id_prefix* is empty.
    """
    generated_prefix = re.sub(r"[^a-z0-9_.]", "_", name.lower()) + "."
    own_id = getattr(module, "module_id", None)
    if isinstance(own_id, str):
        return (
            f"{id_prefix}.{own_id.removeprefix(generated_prefix)}"
            if own_id.startswith(generated_prefix)
            else own_id
        )
    kind = type(module).__name__
    if not id_prefix:
        raise TargetError(f"The module {kind} has no id: give it an attribute module_id")
    return f"{id_prefix}.{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', kind).lower()}"


def _add(registry: Any, source: Any) -> None:
    """Add the modules of a source to a registry; modules of other registries keep their metadata.

    Raises:
        TargetError: The registry refuses a module.
    """
    has_registry = not isinstance(source, Mapping)
    for module_id, (module, metadata) in entries_of(source).items():
        try:
            if has_registry:
                with without_hooks(module):  # its own registry has run on_load
                    registry.register(module_id, module, metadata=metadata)
            else:
                registry.register(module_id, module)
        except Exception as error:  # from on_load or the registry, for example if the id is taken
            raise TargetError(f"{module_id} can't be served: {reason_of(error)}") from None


def _metadata(registry: Any, module_id: str) -> dict[str, Any]:
    """Return the metadata of a registered module, as `Registry.register` takes it."""
    metadata = dict(registry.get_module_metadata(module_id))
    if metadata.get("annotations") is not None:
        metadata["annotations"] = asdict(metadata["annotations"])
    metadata["examples"] = [*map(asdict, metadata.get("examples") or ())]
    return metadata


def bind(registry: Any, file: Path) -> None:
    """Register the functions that a file of bindings names.

    Raises:
        TargetError: The file is invalid, or one of its functions can't be imported.
    """
    make_importable(file.parent)
    try:
        apcore.BindingLoader().load_bindings(str(file), registry)
    except Exception as error:  # apcore's errors, and those of the code that the file names
        raise TargetError(f"{file} can't be loaded: {reason_of(error)}") from None


def entries_of(source: Any) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the modules of a source and their metadata, by id."""
    if isinstance(source, Mapping):
        modules = cast("Mapping[str, Any]", source)
        return {module_id: (module, {}) for module_id, module in modules.items()}
    registry: Any = getattr(_executor_of(source), "registry", source)
    if missing_methods(registry, Registry):
        raise TargetError(f"A target of the type {type(source).__name__} has no modules")
    ids = [*registry.list()]
    return {name: (registry.get(name), _metadata(registry, name)) for name in ids}


@contextmanager
def _out_of_global_client(modules: Sequence[Any]) -> Generator[None]:
    """Remove modules from apcore's global client; if the block fails, put them back.

    `apcore.module` registers functions there, and refuses a second function with the same id.
    """
    client = vars(apcore).get("_CACHED_DEFAULT_CLIENT")
    if client is None:
        yield
        return
    registry: Any = client.registry
    entries = [(module_id, registry.get(module_id)) for module_id in registry.list()]
    removed = {name: entry for name, entry in entries if any(entry is old for old in modules)}
    for module_id in removed:
        registry.unregister(module_id)
    other_ids = {*registry.list()}
    try:
        yield
    except BaseException:  # any exception of the block
        for module_id in {*registry.list()} - other_ids:
            registry.unregister(module_id)
        for module_id, module in removed.items():
            registry.register(module_id, module)
        raise


@contextmanager
def without_hooks(module: Any) -> Generator[None]:
    """Hide a module's hooks from the registry, since they are run elsewhere.

    Hooks of a module without a `__dict__` can't be hidden, and run twice.
    """
    hidden: dict[str, Any] = dict.fromkeys(("on_load", "on_unload"))
    attributes = getattr(module, "__dict__", {})
    instance_hooks = {name: attributes[name] for name in hidden.keys() & attributes}
    attributes |= hidden
    try:
        yield
    finally:
        for name in hidden:
            del attributes[name]
        attributes |= instance_hooks


def _executor_of(source: Any) -> Any:
    """Return the source's executor, which may be the source itself; None if it has none."""
    executor = getattr(source, "executor", source)
    return None if missing_methods(executor, Executor) else executor


def _attribute(namespace: ModuleType, path: str, owner: str) -> Any:
    value: Any = namespace
    for name in path.split("."):
        if not hasattr(value, name):
            public_names = [attribute for attribute in dir(value) if not attribute.startswith("_")]
            hint = suggestion(name, public_names)
            raise TargetError(f"{owner} has no attribute {clean(name, 200)}{hint}")
        value = getattr(value, name)
    if (
        has_modules(value)
        # the module of a class is created later, by `load`
        or (not validate_module(value) if inspect.isclass(value) else _as_module(value) is not None)
    ):
        return value
    module = bridges.module_of(value)
    if module is None:
        problem = f"{owner}:{path} is of type {type(value).__name__}, which has no modules"
        raise TargetError(f"{problem}\n{TARGET_FORMATS}{bridges.hint()}")
    return module


def has_modules(value: Any) -> bool:
    """Return whether *value* is a source of modules: a client, Executor, Registry or collection."""
    return (
        isinstance(value, (*SEQUENCES, Mapping))
        or _executor_of(value) is not None
        or not missing_methods(value, Registry)
    )
