"""Reloading of modules whose files change while the server runs."""

import asyncio
import logging
from contextlib import ExitStack, aclosing, suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from apcore import Registry
from apcore.errors import ModuleLoadError
from apcore.registry import (
    load_metadata,
    resolve_entry_point,
    scan_extensions,
    validate_module,
)
from apcore_a2a_core import clean

from .importing import TargetError
from .loading import creates_modules
from .targets import BINDINGS, Extension, bind, entries_of, without_hooks

logger = logging.getLogger(__name__)

RETRY_INTERVAL = 0.5
"""Seconds between attempts to watch a folder that can't be watched."""


class Files(NamedTuple):
    """A file of modules and its YAML file, if any, with stamps that differ after an edit."""

    code: Path
    meta: Path | None
    stamps: "list[Stamp]"

    @property
    def has_bindings(self) -> bool:
        """Whether the file binds functions of other files."""
        return self.code.match(BINDINGS)


class LoadedModule(NamedTuple):
    """A loaded module and the metadata from its YAML, or from its registry."""

    module: Any
    metadata: dict[str, Any]


Modules: TypeAlias = dict[str, LoadedModule]
"""The modules of a file, by id."""
Stamp: TypeAlias = tuple[int, int, int]
"""Modification time, size and inode of a file."""


async def watch(registry: Registry, folder: Path) -> None:
    """Reload modules of the folder when they change, until cancelled; failures are logged.

    All code of modules runs in a worker thread, including `on_load` and `on_unload`. When a file
    changes, its modules stay in service until the new ones have loaded. Modules that other code
    has registered or unregistered are not changed.

    Args:
        registry: An apcore Registry that has discovered the modules of the folder.
        folder: The folder, which is the only root of the registry.
    """
    reloader, is_failing = Reloader(registry, folder), False
    while True:
        # The watcher starts before the scan, so that it reports changes during the scan.
        change = asyncio.create_task(_wait_for_change(folder))
        try:
            await asyncio.sleep(0)
            await reloader.update()
            await change
            is_failing = False
        except Exception as error:  # a failing watcher must not end the server
            if not is_failing:
                message = "Can't watch %s, trying again every %s s: %s"
                extra = {"event": "watch_failed"}
                logger.warning(message, folder, RETRY_INTERVAL, _reason(error), extra=extra)
            is_failing = True
            await asyncio.sleep(RETRY_INTERVAL)
        finally:
            change.cancel()
            await asyncio.gather(change, return_exceptions=True)


async def _wait_for_change(folder: Path) -> None:
    """Wait for a change in the folder, for at most 0.8 s.

    The caller scans the folder either way: network drives report no changes, and watchfiles' own
    polling misses the later of two changes within one second.
    """
    from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]  # trio is not installed

    changes = awatch(
        folder, watch_filter=None, debounce=400, step=50, rust_timeout=800, yield_on_timeout=True
    )
    async with aclosing(changes):
        await anext(changes)


class ReplacedError(Exception):
    """Other code has registered or unregistered a file's module; the argument is the module id."""


class Reloader:
    """Reloader of the modules of a folder, in the registry that contains them."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self._registry = registry
        self._folder = folder.resolve()
        self._files: dict[str, Files] | None = None
        self._loaded: dict[str, Modules] = {}

    async def update(self) -> None:
        """Reload the modules that changed since the last update; the first update only scans."""
        files_by_id = await asyncio.to_thread(_scan, self._folder)
        if self._files is None:
            self._loaded = await asyncio.to_thread(
                _already_loaded, self._registry, files_by_id, self._folder
            )
            self._files = files_by_id
            logger.info("Watching %s", self._folder, extra={"event": "watch_started"})
        previous, self._files = self._files, files_by_id
        for file_id in sorted(previous | files_by_id):
            if previous.get(file_id) != files_by_id.get(file_id):
                await self._reload(file_id, files_by_id.get(file_id))

    async def _reload(self, file_id: str, files: Files | None) -> None:
        """Replace the modules of a file with those that the file defines now."""
        old_modules, new_modules = self._loaded.get(file_id, {}), dict[str, LoadedModule]()
        try:
            self._check_registered(file_id, old_modules)
            if files is not None:
                new_modules = await asyncio.to_thread(_load, file_id, files, self._folder)
                # again, since the registry may have changed meanwhile
                self._check_registered(file_id, old_modules)
            _swap(self._registry, old_modules, new_modules)
        except ReplacedError as error:
            message = "Not reloading %s: the registered module is not the one loaded from %s"
            extra = {"event": "module_not_reloaded"}
            logger.warning(message, error, self._folder, extra=extra)
            unused = new_modules
        except Exception as error:  # from the modules' code, or from the registry's validator
            name = files.code.relative_to(self._folder) if files else file_id
            addition = ", the old one stays" if any(map(self._registry.get, old_modules)) else ""
            verb, extra = "load" if files else "remove", {"event": "module_load_failed"}
            logger.warning("Can't %s %s%s: %s", verb, name, addition, _reason(error), extra=extra)
            unused = new_modules  # not empty if the registry has refused them
        else:
            unused = old_modules
            self._loaded[file_id] = new_modules
            for skill_id in sorted(old_modules | new_modules):
                event = "module_added" if skill_id in new_modules else "module_removed"
                if skill_id in old_modules and skill_id in new_modules:
                    event = "module_reloaded"
                verb = event.removeprefix("module_").capitalize()
                logger.info("%s %s", verb, skill_id, extra={"event": event})
        for skill_id, loaded in unused.items():
            await asyncio.to_thread(_unload, skill_id, loaded.module)

    def _check_registered(self, file_id: str, modules: Modules) -> None:
        """Raise `ReplacedError` unless the registered modules are those loaded from the file."""
        expected: dict[str, Any] = {skill_id: loaded.module for skill_id, loaded in modules.items()}
        # if the file had no modules, no module may be registered with the file's id
        for skill_id, module in (expected or {file_id: None}).items():
            if self._registry.get(skill_id) is not module:
                raise ReplacedError(skill_id)


def _scan(folder: Path) -> dict[str, Files]:
    """Return the files that apcore would discover, by the ids that apcore makes from their paths.

    The id of a file of bindings is its path in the folder.
    """
    _check_readable(folder)
    files_by_id: dict[str, Files] = {}
    for file in scan_extensions(folder):
        with suppress(FileNotFoundError):  # deleted since it was listed
            stamps = [_stamp(path) for path in (file.file_path, file.meta_path) if path]
            files_by_id[file.canonical_id] = Files(file.file_path, file.meta_path, stamps)
    for path in folder.rglob(BINDINGS):
        with suppress(FileNotFoundError):
            files_by_id[str(path.relative_to(folder))] = Files(path, None, [_stamp(path)])
    _check_readable(folder)  # a folder deleted during the scan must not look empty
    return files_by_id


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _check_readable(folder: Path) -> None:
    """Raise an OSError if the folder can't be read; `scan_extensions` would find no files then."""
    next(folder.iterdir(), None)


def _already_loaded(
    registry: Registry, files_by_id: dict[str, Files], folder: Path
) -> dict[str, Modules]:
    """Return the modules that the registry has loaded from these files, by file id."""
    loaded: dict[str, Modules] = {}
    registered = _modules_of(registry)
    for file_id, files in files_by_id.items():
        if files.has_bindings:
            with suppress(TargetError):  # the file has changed since the modules were loaded
                ids = registered.keys() & _load_bindings(files.code)
                loaded[file_id] = {skill_id: registered[skill_id] for skill_id in ids}
            continue
        module = registry.get(file_id)
        # apcore imports an extension file as the Python module `apcore_ext_` plus the file's stem.
        if type(module).__module__ == f"apcore_ext_{files.code.stem}":
            loaded[file_id] = {file_id: LoadedModule(module, _metadata(files))}
        elif creates_modules(files.code):
            imported = _modules_of(Extension.of(files.code, folder).imported_source())
            loaded[file_id] = {
                skill_id: module for skill_id, module in imported.items() if registry.get(skill_id)
            }
    return loaded


def _load_bindings(file: Path) -> Modules:
    """Return the modules of a file of bindings.

    Raises:
        TargetError: The modules can't be loaded.
    """
    registry = Registry()
    bind(registry, file)
    return _modules_of(registry)


def _modules_of(source: Any) -> Modules:
    """Return the modules of a source with their metadata, by id."""
    return {
        skill_id: LoadedModule(module, metadata)
        for skill_id, (module, metadata) in entries_of(source).items()
    }


def _load(file_id: str, files: Files, folder: Path) -> Modules:
    """Load the modules of a file as `targets.discover` does.

    Raises:
        ModuleLoadError: The modules can't be loaded; the error's cause is the reason.
    """
    # Python matches compiled code with its source by size and modification time in seconds: after
    # two edits within one second, the compiled code could be that of the first edit.
    with suppress(OSError, NotImplementedError):
        Path(cache_from_source(str(files.code))).unlink()
    try:
        if files.has_bindings:
            return _load_bindings(files.code)
        if creates_modules(files.code):
            return _modules_of(Extension.of(files.code, folder).load())
        metadata = _metadata(files)
        module_class = resolve_entry_point(files.code, metadata)
        if errors := validate_module(module_class):
            raise TypeError("; ".join(errors))
        loaded = LoadedModule(module_class(), metadata)
        _register(Registry(), file_id, loaded)  # the registry checks the module and runs on_load
    except BaseException as error:  # modules may raise anything, and SystemExit ends an event loop
        raise ModuleLoadError(module_id=file_id, reason=str(error)) from error
    return {file_id: loaded}


def _swap(registry: Registry, old: Modules, new: Modules) -> None:
    """Replace *old* with *new*, without an await, so that every request finds *old* or *new*."""
    with ExitStack() as hidden_hooks:
        for loaded in (*old.values(), *new.values()):
            hidden_hooks.enter_context(without_hooks(loaded.module))
        for skill_id in old:
            registry.unregister(skill_id)
        registered: list[str] = []
        try:
            for skill_id, loaded in new.items():
                _register(registry, skill_id, loaded)
                registered.append(skill_id)
        except Exception:  # registries may raise anything; the old modules then stay
            for skill_id in registered:
                registry.unregister(skill_id)
            for skill_id, loaded in old.items():
                _register(registry, skill_id, loaded)
            raise


def _metadata(files: Files) -> dict[str, Any]:
    return load_metadata(files.meta) if files.meta else {}


def _register(registry: Registry, skill_id: str, loaded: LoadedModule) -> None:
    """Register a module with its version and metadata, as `Registry.discover` does."""
    version = loaded.metadata.get("version")
    version = version if isinstance(version, str) else None
    registry.register(skill_id, loaded.module, version=version, metadata=loaded.metadata)


def _unload(skill_id: str, module: Any) -> None:
    try:
        getattr(module, "on_unload", lambda: None)()
    except BaseException as error:  # modules may raise anything
        extra = {"event": "module_unload_failed"}
        logger.warning("Can't unload %s: %s", skill_id, _reason(error), extra=extra)


def _reason(error: BaseException) -> str:
    """Return an error as one line of text; a `ModuleLoadError` is replaced by its cause."""
    while isinstance(error, ModuleLoadError) and error.__cause__:
        error = error.__cause__
    return clean(f"{type(error).__name__}: {error}", 300)
