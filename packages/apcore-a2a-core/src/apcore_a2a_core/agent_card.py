"""The Agent Card: what a registry's modules look like from outside."""

import logging
from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from sys import maxsize
from threading import RLock
from typing import Any

from a2a import types
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct

from .protocols import Registry
from .schema import Object, SchemaConverter, is_object
from .skill_mapper import JSON, TEXT, SkillMapper, annotations_of
from .values import MAX_DEPTH, narrow, to_value

logger = logging.getLogger(__name__)

EXTENSION_URI = "https://github.com/aipartnerup/apcore-a2a/extensions/skills/v1"
"""The extension whose params say more of each skill: annotations, schemas, examples."""

INTERFACES = (
    {"protocol_binding": "JSONRPC", "protocol_version": "1.0"},
    {"protocol_binding": "JSONRPC", "protocol_version": "0.3"},
    {"protocol_binding": "HTTP+JSON", "protocol_version": "1.0"},
)
LISTS = ("tags", "examples", "inputModes", "outputModes")
SCHEMES = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
"""The types of security scheme in A2A 0.3, and the members of 1.0 that stand for them."""

Entry = tuple[types.AgentSkill, Struct]
"""A skill, and what the extension says of it."""


class Catalog:
    """The modules of a registry that may be seen, and their descriptors, each made only once.

    apcore makes a descriptor anew for every `get_definition`, which takes up to a millisecond.
    A catalog may be used, and invalidated, from any thread.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._descriptors: dict[str, object] = {}
        self._lock = RLock()  # held while loading: what was read before a change is dropped after

    def ids(self) -> list[str]:
        """The modules' ids, without ``system.*`` and what is not to be discovered."""
        names = [name for name in self._registry.list() if not name.startswith("system.")]
        return [name for name in names if self._is_discoverable(name)]

    def descriptor(self, module_id: str) -> object | None:
        """The module's descriptor, or ``None`` when there is no such module, or a broken one."""
        with self._lock:
            if module_id not in self._descriptors:
                try:
                    found = self._load(module_id)
                except Exception:  # one module's broken schema must not cost the others their card
                    logger.exception("Module %s can't be described", module_id)
                    self._descriptors[module_id] = None
                else:
                    self._descriptors |= {module_id: found} if found else {}
            return self._descriptors.get(module_id)

    def invalidate(self, module_id: str | None = None) -> None:
        """Forget the module's descriptor, or all of them: something has changed."""
        with self._lock:
            for name in list(self._descriptors) if module_id is None else [module_id]:
                self._descriptors.pop(name, None)

    def _load(self, module_id: str) -> Any:
        """The descriptor, with the ``display`` that apcore's decorator leaves on the module."""
        descriptor: Any = self._registry.get_definition(module_id)
        get = getattr(self._registry, "get", None)
        display = getattr(get(module_id), "display", None) if descriptor and get else None
        if is_object(display):
            descriptor = copy(descriptor)
            descriptor.metadata = {"display": display, **(descriptor.metadata or {})}
        return descriptor

    def _is_discoverable(self, module_id: str) -> bool:
        annotations = getattr(self.descriptor(module_id), "annotations", None)
        return getattr(annotations, "discoverable", True) is not False


class AgentCardBuilder:
    """Builds Agent Cards from a registry (FR-AGC-001, FR-AGC-002).

    What a module contributes is kept for as long as its descriptor is the same object, so that
    cards for different callers share it.
    """

    def __init__(self, skill_mapper: SkillMapper) -> None:
        self._mapper = skill_mapper
        self._kept: dict[str, tuple[object, Entry | None]] = {}

    def build(
        self,
        registry: Registry | Catalog,
        *,
        name: str,
        description: str,
        version: str,
        url: str,
        capabilities: types.AgentCapabilities,
        security_schemes: Mapping[str, Mapping[str, Any]] | None = None,
        visible: Callable[[str], bool] | None = None,
    ) -> types.AgentCard:
        """The card of all modules that have a description.

        Args:
            registry: the modules; a `Catalog` of them makes the next card cheap.
            name: the agent's name; ``apcore-agent`` when empty.
            description: what it does; how many skills it has when empty.
            version: its version; ``0.0.0`` when empty.
            url: where it is reached, over every interface.
            capabilities: what it can; the extension with the skills' details is added.
            security_schemes: in the form of A2A 0.3, by name; any one of them will do.
            visible: which ids may be shown; all when not given.
        """
        catalog = registry if isinstance(registry, Catalog) else Catalog(registry)
        names = [n for n in catalog.ids() if visible is None or visible(n)]
        kept = [entry for entry in (self._entry(catalog, n) for n in names) if entry]
        shown = deepcopy(capabilities)
        skills = shown.extensions.add(uri=EXTENSION_URI).params.fields["skills"].struct_value
        skills.SetInParent()
        for skill, details in kept:
            skills.fields[skill.id].struct_value.CopyFrom(details)
        schemes = security_schemes or {}
        alternatives = [{name: types.StringList()} for name in schemes]
        return types.AgentCard(
            name=name or "apcore-agent",
            description=description or f"apcore agent with {len(kept)} skills",
            version=version or "0.0.0",
            supported_interfaces=[types.AgentInterface(url=url, **kind) for kind in INTERFACES],
            capabilities=shown,
            default_input_modes=[TEXT, JSON],
            default_output_modes=[JSON],
            skills=[skill for skill, _ in kept],
            security_schemes={name: security_scheme(form) for name, form in schemes.items()},
            security_requirements=[types.SecurityRequirement(schemes=s) for s in alternatives],
        )

    def build_extended(self, *, base_card: types.AgentCard) -> types.AgentCard:
        """A copy of *base_card*, for those who know who they are; subclasses may add to it."""
        return deepcopy(base_card)

    def invalidate_cache(self) -> None:
        """Forget what is kept of the modules."""
        self._kept.clear()

    def _entry(self, catalog: Catalog, module_id: str) -> Entry | None:
        descriptor = catalog.descriptor(module_id)
        known, entry = self._kept.get(module_id, (None, None))
        if descriptor is not known:
            skill = self._mapper.to_skill(descriptor)
            if skill is None and not getattr(descriptor, "description", None):
                logger.warning("Skipping module %s: missing description", module_id)
            entry = (skill, details_of(descriptor)) if skill else None
            self._kept[module_id] = (descriptor, entry)
        return entry


def details_of(descriptor: Any) -> Struct:
    """What the extension says of a skill; what can't be carried is left out."""
    schemas = SchemaConverter()
    pieces: dict[str, Callable[[], object]] = {
        "annotations": lambda: annotations_of(descriptor.annotations),
        "inputSchema": lambda: descriptor.input_schema and schemas.convert_input_schema(descriptor),
        "outputSchema": lambda: (
            descriptor.output_schema and schemas.convert_output_schema(descriptor)
        ),
        "examples": lambda: descriptor.examples,
        "documentation": lambda: descriptor.documentation,
    }
    details = Struct()
    for key, piece in pieces.items():
        try:
            value = to_value(piece() or None, max_depth=MAX_DEPTH - 3)
        except (AttributeError, RecursionError, ValueError) as error:
            logger.debug("No %s of %s on the card: %s", key, descriptor.module_id, error)
        else:
            if not value.HasField("null_value"):
                details.fields[key].CopyFrom(value)
    return details


def security_scheme(form: Mapping[str, Any]) -> types.SecurityScheme:
    """A scheme in the form of A2A 0.3 as the SDK's.

    Raises:
        ValueError: its type is not one that A2A knows.

    >>> security_scheme({"type": "http", "scheme": "bearer"}).http_auth_security_scheme.scheme
    'bearer'
    """
    body = {"location" if key == "in" else key: value for key, value in form.items()}
    kind = body.pop("type", None)
    if kind not in SCHEMES:
        raise ValueError(f"Unknown type of security scheme: {kind}")
    return ParseDict({SCHEMES[kind]: body}, types.SecurityScheme(), ignore_unknown_fields=True)


def card_to_dict(card: types.AgentCard, *, state_transition_history: bool = False) -> Object:
    """*card* as the one JSON object that clients of A2A 1.0 and of 0.3 both can read.

    It has the members of both versions beside each other, integers as integers, the flags of
    ``capabilities`` even when they are false, and each skill's annotations where FR-SKL-004 has
    them.

    Args:
        card: the card to show.
        state_transition_history: a capability that only 0.3 knows.
    """
    result: Object = narrow(MessageToDict(card), max_keys=maxsize, max_depth=100)
    flags = dict.fromkeys(("streaming", "pushNotifications", "extendedAgentCard"), False)
    capabilities = result["capabilities"] = flags | result.get("capabilities", {})
    capabilities["stateTransitionHistory"] = state_transition_history
    if capabilities["extendedAgentCard"]:
        result["supportsAuthenticatedExtendedCard"] = True
    more = {e["uri"]: e.get("params", {}) for e in capabilities.get("extensions", ())}
    details = more.get(EXTENSION_URI, {}).get("skills", {})
    for skill in result.setdefault("skills", []):
        skill.update({member: skill.get(member, []) for member in LISTS})
        annotations = details.get(skill["id"], {}).get("annotations")
        skill |= {"extensions": {"apcore": {"annotations": annotations}}} if annotations else {}
    for scheme in result.get("securitySchemes", {}).values():
        scheme.update(flat_scheme(scheme))
    for needed in result.get("securityRequirements", ()):
        scopes = {name: found.get("list", []) for name, found in needed["schemes"].items()}
        result.setdefault("security", []).append(scopes)
    return result | flat_interfaces(card)


def flat_interfaces(card: types.AgentCard) -> Object:
    """Where clients of A2A 0.3 reach the agent, in their form."""
    legacy = [i for i in card.supported_interfaces if i.protocol_version.startswith("0.")]
    if not legacy:
        return {}
    return {
        "protocolVersion": "0.3.0",
        "url": legacy[0].url,
        "preferredTransport": legacy[0].protocol_binding,
        "additionalInterfaces": [{"url": i.url, "transport": i.protocol_binding} for i in legacy],
    }


def flat_scheme(scheme: Object) -> Object:
    """A security scheme in the form of A2A 0.3."""
    kind, member = next(item for item in SCHEMES.items() if item[1] in scheme)
    flat = {"in" if key == "location" else key: value for key, value in scheme[member].items()}
    for flow in flat.get("flows", {}).values():
        flow.setdefault("scopes", {})
    return {"type": kind, **flat}
