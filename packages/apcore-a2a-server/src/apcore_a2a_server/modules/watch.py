"""Keeps a registry in step with its folder of modules while a server runs."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import aclosing, contextmanager, suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple

from apcore import Registry
from apcore.errors import ModuleLoadError
from apcore.registry import (
    load_metadata,
    resolve_entry_point,
    scan_extensions,
    validate_module,
)
from apcore_a2a_core import clean

logger = logging.getLogger(__name__)

RETRY = 0.5
"""Seconds between two looks at a folder that can't be watched."""


class Files(NamedTuple):
    """The files of a module, and what tells one state of them from another."""

    code: Path
    meta: Path | None
    stamps: list[tuple[int, int, int]]


class Loaded(NamedTuple):
    """A module that has loaded, and what its YAML says."""

    module: Any
    metadata: dict[str, Any]


async def watch(registry: Registry, folder: Path) -> None:
    """Take up what changes in the folder, until cancelled; what can't be taken up is logged.

    All code of the modules runs in a worker thread, `on_load` and `on_unload` too. A module takes
    the place of the old one once it has loaded; if it does not load, the old one stays in service.
    What others than the folder have put into the registry, or have taken out, stays as it is.

    Args:
        registry: An apcore Registry that has discovered the modules of the folder.
        folder: The folder: the only root of the registry.
    """
    extensions, failing = Extensions(registry, folder), False
    while True:
        changed = asyncio.create_task(_change(folder))
        try:
            await asyncio.sleep(0)  # the watcher is there, and misses nothing from here on
            await extensions.update()
            await changed
            failing = False
        except Exception as error:  # whatever fails here, the server goes on
            if not failing:
                logger.warning(
                    "Can't watch %s, looking every %s s: %s", folder, RETRY, _reason(error)
                )
            failing = True
            await asyncio.sleep(RETRY)
        finally:
            changed.cancel()
            await asyncio.gather(changed, return_exceptions=True)


async def _change(folder: Path) -> None:
    """Wait for a change in the folder, and 0.8 s at most.

    Network drives tell of no change, and who polls for them sees one where one second has two.
    """
    from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]  # of trio's events

    waits = awatch(
        folder, watch_filter=None, debounce=400, step=50, rust_timeout=800, yield_on_timeout=True
    )
    async with aclosing(waits):
        await anext(waits)


class Extensions:
    """The modules of a folder, and the registry that they are in."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self._registry = registry
        self._folder = folder.resolve()
        self._files: dict[str, Files] | None = None
        self._loaded: dict[str, Loaded | None] = {}

    async def update(self) -> None:
        """Take up what has changed since the last time; the first time, see what is there."""
        found = await asyncio.to_thread(_scan, self._folder)
        if self._files is None:
            self._loaded = await asyncio.to_thread(_adopt, self._registry, found)
            self._files = found
            logger.info("Watching %s", self._folder)
        known, self._files = self._files, found
        for skill_id in sorted(known | found):
            if known.get(skill_id) != found.get(skill_id):
                await self._take_up(skill_id, found.get(skill_id))

    async def _take_up(self, skill_id: str, files: Files | None) -> None:
        old, new = self._loaded.get(skill_id), None
        if self._registry.get(skill_id) is not (old and old.module):
            logger.warning("Left %s alone: others than %s have changed it", skill_id, self._folder)
            return
        try:
            new = await asyncio.to_thread(_load, skill_id, files) if files else None
            _swap(self._registry, skill_id, old, new)
        except Exception as error:  # of the module's code, or of the registry's validator
            name = files and files.code.relative_to(self._folder)
            stays = "" if self._registry.get(skill_id) is None else ", the old one stays"
            logger.warning("Can't load %s%s: %s", name, stays, _reason(error))
            old = new
        else:
            self._loaded[skill_id] = new
            if old or new:
                verb = "Reloaded" if old and new else "Added" if new else "Removed"
                logger.info("%s %s", verb, skill_id)
        if old:
            await asyncio.to_thread(_unload, skill_id, old.module)


def _scan(folder: Path) -> dict[str, Files]:
    """The files that apcore takes for modules, by the ids that it gives them."""
    _must_be_there(folder)
    found: dict[str, Files] = {}
    for file in scan_extensions(folder):
        with suppress(FileNotFoundError):  # gone already
            stats = [path.stat() for path in (file.file_path, file.meta_path) if path]
            stamps = [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats]
            found[file.canonical_id] = Files(file.file_path, file.meta_path, stamps)
    _must_be_there(folder)  # it may have gone meanwhile, and all files with it
    return found


def _must_be_there(folder: Path) -> None:
    """Raise what scan_extensions takes for an empty folder."""
    next(folder.iterdir(), None)


def _adopt(registry: Registry, found: dict[str, Files]) -> dict[str, Loaded | None]:
    """What the registry has of these files: apcore gives their Python modules such names."""
    return {
        skill_id: Loaded(module, _metadata(files))
        for skill_id, files in found.items()
        if type(module := registry.get(skill_id)).__module__ == f"apcore_ext_{files.code.stem}"
    }


def _load(skill_id: str, files: Files) -> Loaded:
    """Load a module as `Registry.discover` does.

    Raises:
        ModuleLoadError: It does not load, for the reason that is its cause.
    """
    # Python knows compiled code by the second and size of its source: it may be an earlier edit's
    with suppress(OSError, NotImplementedError):
        Path(cache_from_source(str(files.code))).unlink()
    try:
        metadata = _metadata(files)
        kind = resolve_entry_point(files.code, metadata)
        if errors := validate_module(kind):
            raise TypeError("; ".join(errors))
        loaded = Loaded(kind(), metadata)
        _register(Registry(), skill_id, loaded)  # checks the rest, and runs on_load
    except BaseException as error:  # modules may raise anything, and SystemExit ends an event loop
        raise ModuleLoadError(module_id=skill_id, reason=str(error)) from error
    return loaded


def _swap(registry: Registry, skill_id: str, old: Loaded | None, new: Loaded | None) -> None:
    """Put *new* in the place of *old*; without an await, so that nobody finds it empty."""
    with _without_hooks(old), _without_hooks(new):
        if old:
            registry.unregister(skill_id)
        try:
            if new:
                _register(registry, skill_id, new)
        except Exception:  # registries raise what they like; the old module stays then
            if old:
                _register(registry, skill_id, old)
            raise


def _metadata(files: Files) -> dict[str, Any]:
    return load_metadata(files.meta) if files.meta else {}


def _register(registry: Registry, skill_id: str, loaded: Loaded) -> None:
    """Register a module so that it is described as after `Registry.discover`."""
    version = loaded.metadata.get("version")
    version = version if isinstance(version, str) else None
    registry.register(skill_id, loaded.module, version=version, metadata=loaded.metadata)


@contextmanager
def _without_hooks(loaded: Loaded | None) -> Generator[None]:
    """Hide a module's hooks from the registry: a worker thread runs them.

    Those of a module without a `__dict__` stay in sight, and run in both.
    """
    hidden: dict[str, Any] = dict.fromkeys(("on_load", "on_unload"))
    attributes = getattr(loaded and loaded.module, "__dict__", {})
    own = {name: attributes[name] for name in hidden.keys() & attributes}
    attributes |= hidden
    try:
        yield
    finally:
        for name in hidden:
            del attributes[name]
        attributes |= own


def _unload(skill_id: str, module: Any) -> None:
    try:
        getattr(module, "on_unload", lambda: None)()
    except BaseException as error:  # as in _load
        logger.warning("Can't unload %s: %s", skill_id, _reason(error))


def _reason(error: BaseException) -> str:
    """What was raised, in one line; of an import that failed, by the module's code."""
    while isinstance(error, ModuleLoadError) and error.__cause__:
        error = error.__cause__
    return clean(f"{type(error).__name__}: {error}", 300)
