"""The Agent Card: what a registry's modules look like from outside."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from a2a import types as a2a
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value

from .protocols import Registry
from .schema import Object, SchemaConverter, object_at
from .skill_mapper import JSON, TEXT, SkillMapper
from .values import MAX_DEPTH, from_value, to_value

logger = logging.getLogger(__name__)

EXTENSION_URI = "https://github.com/aipartnerup/apcore-a2a/extensions/skills/v1"
"""The extension whose params say more of each skill: annotations, schemas, examples."""

FLAGS = {"streaming": False, "pushNotifications": False, "extendedAgentCard": False}

Entry = tuple[a2a.AgentSkill, Value]
"""A skill, and what the extension says of it."""


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
        registry: Registry,
        *,
        name: str,
        description: str,
        version: str,
        url: str,
        capabilities: a2a.AgentCapabilities,
        security_schemes: Mapping[str, a2a.SecurityScheme] | None = None,
        visible: Callable[[str], bool] | None = None,
    ) -> a2a.AgentCard:
        """The card of all modules that have a description.

        Args:
            registry: the modules.
            name: the agent's name; ``apcore-agent`` when empty.
            description: what it does; how many skills it has when empty.
            version: its version; ``0.0.0`` when empty.
            url: where it is reached, over every interface.
            capabilities: what it can; the extension with the skills' details is added.
            security_schemes: by name; any one of them will do.
            visible: which ids may be shown; all when not given.
        """
        shown = filter(visible, registry.list())
        entries = [entry for name in shown if (entry := self._entry(registry, name))]
        details = Value(struct_value=Struct(fields={skill.id: more for skill, more in entries}))
        alternatives = [{scheme: a2a.StringList()} for scheme in security_schemes or ()]
        card = a2a.AgentCard(
            name=name or "apcore-agent",
            description=description or f"apcore agent with {len(entries)} skills",
            version=version or "0.0.0",
            capabilities=capabilities,
            default_input_modes=[TEXT, JSON],
            default_output_modes=[JSON],
            skills=[skill for skill, _ in entries],
            security_schemes=security_schemes,
            security_requirements=[a2a.SecurityRequirement(schemes=s) for s in alternatives],
        )
        for kind, spoken in (("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")):
            card.supported_interfaces.add(url=url, protocol_binding=kind, protocol_version=spoken)
        card.capabilities.extensions.add(
            uri=EXTENSION_URI, params=Struct(fields={"skills": details})
        )
        return card

    def build_extended(self, *, base_card: a2a.AgentCard) -> a2a.AgentCard:
        """A copy of *base_card*, for those who know who they are; subclasses may add to it."""
        return a2a.AgentCard.FromString(base_card.SerializeToString())

    def invalidate_cache(self) -> None:
        """Forget what is kept of the modules."""
        self._kept.clear()

    def _entry(self, registry: Registry, module_id: str) -> Entry | None:
        known, entry = self._kept.get(module_id, (None, None))
        try:
            descriptor = registry.get_definition(module_id)
        except Exception:  # one module's broken schema must not cost the others their card
            descriptor = None
            if module_id not in self._kept:
                logger.exception("Skipping module %s: it can't be described", module_id)
        if descriptor is not known:
            skill = self._mapper.to_skill(descriptor)
            entry = (skill, details_of(descriptor)) if skill else None
        self._kept[module_id] = descriptor, entry
        return entry


def details_of(descriptor: Any) -> Value:
    """What the extension says of a skill; what can't be carried is left out."""
    pieces: dict[str, Callable[[], object]] = {
        "annotations": lambda: descriptor.annotations.__dict__,
        "inputSchema": lambda: SchemaConverter().convert_input_schema(descriptor),
        "outputSchema": lambda: SchemaConverter().convert_output_schema(descriptor),
        "examples": lambda: descriptor.examples,
        "documentation": lambda: descriptor.documentation,
    }
    details: dict[str, Value] = {}
    for key, piece in pieces.items():
        try:
            if found := piece():
                details[key] = to_value(found, max_depth=MAX_DEPTH - 3)
        except (AttributeError, RecursionError, ValueError) as error:
            logger.debug("No %s of %s on the card: %s", key, descriptor.module_id, error)
    return Value(struct_value=Struct(fields=details))


def card_to_dict(card: a2a.AgentCard, *, state_transition_history: bool = False) -> Object:
    """*card* as the one JSON object that clients of A2A 1.0 and of 0.3 both can read.

    It has the members of both versions beside each other, integers as integers, the flags of
    ``capabilities`` even when they are false, and each skill's annotations where FR-SKL-004 has
    them. The same card always gives the same object, with its members in the same order.

    Args:
        card: the card to show.
        state_transition_history: a capability that only 0.3 knows.
    """
    result: Object = from_value(to_value(MessageToDict(card), max_depth=100))
    capabilities = result["capabilities"] = FLAGS | result.get("capabilities", {})
    capabilities["stateTransitionHistory"] = state_transition_history
    params = {e["uri"]: e.get("params") for e in capabilities.get("extensions", ())}
    for skill in result.setdefault("skills", []):
        skill.setdefault("examples", [])
        more = object_at(params, EXTENSION_URI, "skills", skill["id"], "annotations")
        skill |= {"extensions": {"apcore": {"annotations": more}}} if more else {}
    if capabilities["extendedAgentCard"]:
        result["supportsAuthenticatedExtendedCard"] = True
    url = card.supported_interfaces[0].url
    return result | {
        "protocolVersion": "0.3.0",
        "url": url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": url, "transport": "JSONRPC"}],
    }
