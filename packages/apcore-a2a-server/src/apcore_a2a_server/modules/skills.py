"""The modules of a registry as skills, with cached descriptors."""

import inspect
import logging
import threading
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import CodeType
from typing import Any

from a2a.utils.errors import MethodNotFoundError
from apcore_a2a_core import Registry, SkillMapper, clean
from apcore_a2a_core.schema import resolved, text_field_of, types_of
from apcore_a2a_core.values import is_object, object_of

from .processes import check_portable
from .schema_cache import cache_schemas
from .validation import install_stand_ins

logger = logging.getLogger("apcore_a2a.skills")

MAX_ID = 512
"""Maximum length of a skill id, in characters."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A module's descriptor, and the properties that its calls depend on."""

    id: str
    descriptor: Any
    streams: bool
    needs_approval: bool
    """Whether the descriptor, in which YAML takes precedence over the code, requires approval."""
    is_gated: bool
    """Whether the module's code requires approval; the gate of apcore < 0.31 reads only this."""
    discoverable: bool
    time_limit: float | None
    """The module's own time limit in seconds."""
    needs_thread: bool
    """Whether calls need a thread: the module is synchronous, and not in another process."""
    text_field: str = ""
    """The member of the output that clients get as text; empty if there is none."""

    @property
    def is_repeatable(self) -> bool:
        """Whether calls are idempotent or read-only, so that repeating one does no harm."""
        annotations = getattr(self.descriptor, "annotations", None)
        return any(getattr(annotations, name, False) for name in ("idempotent", "readonly"))

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the inputs."""
        schema: Mapping[str, Any] | None = getattr(self.descriptor, "input_schema", None)
        return schema


UNCHOSEN = Skill(
    id="",
    descriptor=None,
    streams=False,
    needs_approval=False,
    is_gated=False,
    discoverable=False,
    time_limit=None,
    needs_thread=False,
)
"""Placeholder for the skill of a task whose client has yet to choose one."""


class Skills:
    """Thread-safe cache of a registry's skills, which is invalidated by changes to the registry.

    Without the cache, apcore builds a new descriptor for every `get_definition`, which takes up to
    a millisecond.

    Args:
        registry: An apcore Registry, or an object with its methods. Changes are noticed only if it
            has `on`.
        schema_cache: Whether the JSON Schemas of modules are cached.
    """

    def __init__(self, registry: Registry, *, schema_cache: bool = True) -> None:
        self.registry = registry
        self.generation = 0
        """The number of changes to the registry so far."""
        self._caches_schemas = schema_cache
        self._skills: dict[str, Skill | None] = {}
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()
        subscribe: Any = getattr(registry, "on", None)
        for event in ("register", "unregister") if subscribe else ():
            subscribe(event, self._on_change)

    def __len__(self) -> int:
        return len(self.list())

    def list(self) -> Sequence[str]:
        """Return the ids of discoverable skills, without ``system.*`` and broken modules.

        Raises:
            RuntimeError: The registry can't list its modules.
        """
        try:
            module_ids = self.registry.list()
        except Exception as error:  # registries may raise anything, even errors that clients see
            raise RuntimeError("The registry can't list its modules") from error
        skills = [self._find(skill_id) for skill_id in module_ids]
        return [skill.id for skill in skills if skill and skill.discoverable]

    def only_id(self) -> str | None:
        """Return the id of the only discoverable skill; None if there is not exactly one."""
        skill_ids = self.list()
        return skill_ids[0] if len(skill_ids) == 1 else None

    def name(self, skill_id: str) -> str:
        """Return the name that the card has for a skill; the skill's id if the card has none."""
        try:
            return self._names[skill_id]
        except KeyError:
            generation = self.generation
        card_skill = SkillMapper().to_skill(self.get_definition(skill_id))
        name = skill_id if card_skill is None else card_skill.name
        with self._lock:  # see `_load`
            if generation == self.generation:
                self._names[skill_id] = name
        return name

    def is_discoverable(self, skill_id: str) -> bool:
        """Return whether `list` returns the skill."""
        skill = self._find(skill_id)
        return skill is not None and skill.discoverable

    def get_definition(self, module_id: str) -> Any | None:
        """Return a skill's descriptor, the same object until the skill changes; None if unknown."""
        skill = self._find(module_id)
        return skill.descriptor if skill else None

    def get(self, skill_id: str) -> Skill:
        """Return the skill with this id.

        Raises:
            MethodNotFoundError: The skill is unknown, broken or internal (FR-MSG-001.9).
        """
        skill = self._find(skill_id)
        if skill is None:
            raise MethodNotFoundError(
                f"Skill not found: {clean(skill_id, 200)}", data={"type": "ModuleNotFoundError"}
            )
        return skill

    def needs_approval(self, skill_id: str) -> bool:
        """Return whether the skill needs approval; to be safe, True if it no longer exists."""
        skill = self._find(skill_id)
        return skill is None or skill.needs_approval or skill.is_gated

    def _find(self, skill_id: str) -> Skill | None:
        try:
            return self._skills[skill_id]
        except KeyError:
            return self._load(skill_id)

    def _load(self, skill_id: str) -> Skill | None:
        """Read the skill from the registry and cache it; a broken module is cached as None."""
        if len(skill_id) > MAX_ID or skill_id.startswith("system."):
            return None
        generation = self.generation
        try:
            entries = self._read(skill_id)
        except Exception:  # a broken module must not affect the others
            extra = {"event": "module_skipped"}
            logger.exception("Skipping broken module %s", clean(skill_id), extra=extra)
            entries = {skill_id: None}
        # The lock is not held during the read. If the registry has changed meanwhile, the entry
        # may describe the old module: it is used for this call, but not cached.
        with self._lock:
            if generation == self.generation:
                self._skills |= entries
        return entries.get(skill_id)

    def _read(self, skill_id: str) -> dict[str, Skill | None]:
        descriptor = self.registry.get_definition(skill_id)
        if descriptor is None:
            return {}
        get_module = getattr(self.registry, "get", None)
        module = get_module(skill_id) if get_module is not None else None
        if module is not None:
            install_stand_ins(skill_id, module)
        if self._caches_schemas and module is not None:
            cache_schemas(module)
        _check_callable(skill_id, object_of(descriptor, "input_schema"))
        return {skill_id: _make_skill(skill_id, _with_display(descriptor, module), module)}

    def _on_change(self, module_id: str, module: object) -> None:
        """Invalidate the module's entry; the registry calls this from any thread."""
        with self._lock:
            self.generation += 1
            self._skills.pop(module_id, None)
            self._names.pop(module_id, None)


def _check_callable(skill_id: str, schema: Mapping[str, Any]) -> None:
    """Log a warning if apcore refuses every input of a module."""
    types = types_of(resolved(schema, schema))
    if types and "object" not in types:
        message = (
            "%s can't be called: its inputs are of type %s, and apcore passes objects only. "
            "For text, declare an object with one string, such as apcore_a2a_core.Prompt"
        )
        extra = {"event": "module_not_callable"}
        logger.warning(message, clean(skill_id), clean(" or ".join(sorted(types))), extra=extra)


def is_asynchronous(module: object) -> bool:
    """Return whether the module's `execute` is a coroutine function."""
    execute = getattr(module, "execute", None)
    code = getattr(execute, "__code__", None)
    if isinstance(code, CodeType) and code.co_flags & inspect.CO_COROUTINE:
        return True  # the usual case; the function below takes four times as long
    return inspect.iscoroutinefunction(execute)


def is_cpu_bound(module: object) -> bool:
    """Return whether the module declares with `resources["cpu"]` that it is CPU-bound."""
    resources: dict[str, Any] | None = getattr(module, "resources", None)
    return isinstance(resources, dict) and bool(resources.get("cpu"))


def time_limit(module: object) -> float | None:
    """Return the module's `resources["timeout"]` in seconds; apcore has it in milliseconds."""
    resources: dict[str, Any] | None = getattr(module, "resources", None)
    timeout = resources.get("timeout") if isinstance(resources, dict) else None
    return timeout / 1000 if isinstance(timeout, int | float) and timeout > 0 else None


def _with_display(descriptor: Any, module: object) -> Any:
    """Return the descriptor with the ``display`` that apcore's decorator sets on the module."""
    display = getattr(module, "display", None)
    if isinstance(display, dict):
        descriptor = copy(descriptor)
        descriptor.metadata = {"display": display, **(descriptor.metadata or {})}
    return descriptor


def _is_gated(annotations: Any) -> bool:
    """Return whether annotations from a module's code (an object or a dict) require approval."""
    if is_object(annotations):
        return bool(annotations.get("requires_approval"))
    return bool(getattr(annotations, "requires_approval", False))


def _make_skill(skill_id: str, descriptor: Any, module: object) -> Skill:
    annotations = getattr(descriptor, "annotations", None)
    in_other_process = is_cpu_bound(module) and check_portable(skill_id, module)
    return Skill(
        id=skill_id,
        descriptor=descriptor,
        streams=hasattr(module, "stream"),
        needs_approval=bool(getattr(annotations, "requires_approval", False)),
        is_gated=_is_gated(getattr(module, "annotations", None)),
        discoverable=getattr(annotations, "discoverable", True) is not False,
        time_limit=time_limit(module),
        needs_thread=not (in_other_process or is_asynchronous(module)),
        text_field=text_field_of(descriptor) or "",
    )
