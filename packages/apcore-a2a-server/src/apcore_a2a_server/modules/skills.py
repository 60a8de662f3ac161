"""The modules of an executor as this server sees them."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from a2a.utils.errors import MethodNotFoundError
from apcore_a2a_core import Catalog, clean

from .memo import remember_schemas

MAX_ID = 512


@dataclass(frozen=True, slots=True)
class Skill:
    """What running a module needs to know of it."""

    id: str
    descriptor: Any
    streams: bool
    needs_approval: bool
    time_limit: float | None
    """The module's own limit in seconds."""

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of its input."""
        schema: Mapping[str, Any] | None = getattr(self.descriptor, "input_schema", None)
        return schema


class Skills:
    """Looks skills up, and forgets them when the registry changes.

    Args:
        registry: An apcore Registry, or what looks like one.
        memo: Whether modules get their JSON Schemas remembered.
    """

    def __init__(self, registry: Any, *, memo: bool = True) -> None:
        self.registry = registry
        self.catalog = Catalog(registry)
        self.generation = 0
        """Grows with every change of the registry."""
        self._memo = memo
        self._skills: dict[str, Skill] = {}
        self._lock = threading.Lock()
        for event in ("register", "unregister"):
            if hasattr(registry, "on"):
                registry.on(event, self._on_change)

    def __len__(self) -> int:
        return len(self.catalog.ids())

    def get(self, skill_id: str) -> Skill:
        """The skill with this id.

        Raises:
            MethodNotFoundError: There is none, or it is not for callers (FR-MSG-001.9).
        """
        return self._skills.get(skill_id) or self._load(skill_id)

    def _load(self, skill_id: str) -> Skill:
        generation = self.generation
        callable_by_strangers = len(skill_id) <= MAX_ID and not skill_id.startswith("system.")
        descriptor = self.catalog.descriptor(skill_id) if callable_by_strangers else None
        if descriptor is None:
            raise MethodNotFoundError(
                f"Skill not found: {clean(skill_id, 200)}", data={"type": "ModuleNotFoundError"}
            )
        get = getattr(self.registry, "get", None)
        module = get(skill_id) if get is not None else None
        if self._memo and module is not None:
            remember_schemas(module)
        skill = _skill(skill_id, descriptor, module)
        with self._lock:
            if generation == self.generation:
                self._skills[skill_id] = skill
        return skill

    def _on_change(self, module_id: str, module: object) -> None:
        """Called by the registry, from any thread."""
        with self._lock:
            self.generation += 1
            self._skills.pop(module_id, None)
        self.catalog.invalidate(module_id)


def time_limit(module: object) -> float | None:
    """The module's own `resources["timeout"]`, in seconds (apcore has milliseconds)."""
    resources = getattr(module, "resources", None)
    timeout = resources.get("timeout") if isinstance(resources, dict) else None
    return timeout / 1000 if isinstance(timeout, int | float) and timeout > 0 else None


def _skill(skill_id: str, descriptor: Any, module: object) -> Skill:
    annotations = getattr(descriptor, "annotations", None)
    return Skill(
        id=skill_id,
        descriptor=descriptor,
        streams=hasattr(module, "stream"),
        needs_approval=bool(getattr(annotations, "requires_approval", False)),
        time_limit=time_limit(module),
    )
