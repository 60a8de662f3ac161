"""The modules of an executor as this server sees them."""

import inspect
import logging
import threading
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from a2a.utils.errors import MethodNotFoundError
from apcore_a2a_core import Registry, clean
from apcore_a2a_core.schema import is_object

from .schema_cache import cache_schemas

logger = logging.getLogger("apcore_a2a.skills")

MAX_ID = 512


@dataclass(frozen=True, slots=True)
class Skill:
    """What running a module needs to know of it."""

    id: str
    descriptor: Any
    streams: bool
    needs_approval: bool
    """Whether it needs approval, by what it declares or its YAML."""
    is_gated: bool
    """Whether the module itself declares that, which is all that gates before apcore 0.31 see."""
    discoverable: bool
    time_limit: float | None
    """The module's own limit in seconds."""
    in_thread: bool
    """Whether it is synchronous, and runs in a thread."""

    @property
    def is_repeatable(self) -> bool:
        """Whether a call does no harm when it is made once more."""
        annotations = getattr(self.descriptor, "annotations", None)
        return bool(
            getattr(annotations, "idempotent", False) or getattr(annotations, "readonly", False)
        )

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of its input."""
        schema: Mapping[str, Any] | None = getattr(self.descriptor, "input_schema", None)
        return schema


class Skills:
    """Looks skills up, and forgets them when the registry changes; from any thread.

    apcore makes a descriptor anew for every `get_definition`, which takes up to a millisecond.

    Args:
        registry: An apcore Registry, or what looks like one.
        schema_cache: Whether the JSON Schemas of modules are cached.
    """

    def __init__(self, registry: Registry, *, schema_cache: bool = True) -> None:
        self.registry = registry
        self.generation = 0
        """Grows with every change of the registry."""
        self._caches_schemas = schema_cache
        self._skills: dict[str, Skill | None] = {}
        self._lock = threading.Lock()
        listen: Any = getattr(registry, "on", None)
        for event in ("register", "unregister") if listen else ():
            listen(event, self._on_change)

    def __len__(self) -> int:
        return len(self.list())

    def list(self) -> Sequence[str]:
        """The ids of the skills that may be shown: not ``system.*``, and none that is broken."""
        found = [self._find(skill_id) for skill_id in self.registry.list()]
        return [skill.id for skill in found if skill and skill.discoverable]

    def get_definition(self, module_id: str) -> Any | None:
        """The descriptor of the skill, the same until it changes; None when there is none."""
        skill = self._find(module_id)
        return skill.descriptor if skill else None

    def get(self, skill_id: str) -> Skill:
        """The skill with this id.

        Raises:
            MethodNotFoundError: There is none, or it is not for callers (FR-MSG-001.9).
        """
        skill = self._find(skill_id)
        if skill is None:
            raise MethodNotFoundError(
                f"Skill not found: {clean(skill_id, 200)}", data={"type": "ModuleNotFoundError"}
            )
        return skill

    def needs_approval(self, skill_id: str) -> bool:
        """Whether the skill needs approval; so does one that is gone meanwhile."""
        skill = self._find(skill_id)
        return skill is None or skill.needs_approval or skill.is_gated

    def _find(self, skill_id: str) -> Skill | None:
        try:
            return self._skills[skill_id]
        except KeyError:
            return self._load(skill_id)

    def _load(self, skill_id: str) -> Skill | None:
        """Read the skill from the registry, and keep what is found: a broken module as None."""
        if len(skill_id) > MAX_ID or skill_id.startswith("system."):
            return None
        generation = self.generation
        try:
            found = self._read(skill_id)
        except Exception:  # a module that can't describe itself must not cost others anything
            logger.exception("Module %s can't be described", clean(skill_id))
            found = {skill_id: None}
        with self._lock:
            if generation == self.generation:
                self._skills |= found
        return found.get(skill_id)

    def _read(self, skill_id: str) -> dict[str, Skill | None]:
        descriptor = self.registry.get_definition(skill_id)
        if descriptor is None:
            return {}
        get = getattr(self.registry, "get", None)
        module = get(skill_id) if get is not None else None
        if self._caches_schemas and module is not None:
            cache_schemas(module)
        return {skill_id: _skill(skill_id, _displayed(descriptor, module), module)}

    def _on_change(self, module_id: str, module: object) -> None:
        """Called by the registry, from any thread."""
        with self._lock:
            self.generation += 1
            self._skills.pop(module_id, None)


def is_asynchronous(module: object) -> bool:
    """Whether the module's `execute` is a coroutine function."""
    return inspect.iscoroutinefunction(getattr(module, "execute", None))


def time_limit(module: object) -> float | None:
    """The module's own `resources["timeout"]`, in seconds (apcore has milliseconds)."""
    resources: dict[str, Any] | None = getattr(module, "resources", None)
    timeout = resources.get("timeout") if isinstance(resources, dict) else None
    return timeout / 1000 if isinstance(timeout, int | float) and timeout > 0 else None


def _displayed(descriptor: Any, module: object) -> Any:
    """The descriptor, with the ``display`` that apcore's decorator leaves on the module."""
    display = getattr(module, "display", None)
    if isinstance(display, dict):
        descriptor = copy(descriptor)
        descriptor.metadata = {"display": display, **(descriptor.metadata or {})}
    return descriptor


def _is_gated(annotations: Any) -> bool:
    """Whether the annotations that a module has in its code, an object or a dict, say so."""
    if is_object(annotations):
        return bool(annotations.get("requires_approval"))
    return bool(getattr(annotations, "requires_approval", False))


def _skill(skill_id: str, descriptor: Any, module: object) -> Skill:
    annotations = getattr(descriptor, "annotations", None)
    return Skill(
        id=skill_id,
        descriptor=descriptor,
        streams=hasattr(module, "stream"),
        needs_approval=bool(getattr(annotations, "requires_approval", False)),
        is_gated=_is_gated(getattr(module, "annotations", None)),
        discoverable=getattr(annotations, "discoverable", True) is not False,
        time_limit=time_limit(module),
        in_thread=not is_asynchronous(module),
    )
