"""Agent Cards, built from the modules of a registry."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from a2a import types as a2a
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value

from .data import Json
from .media_types import JSON, TEXT
from .protocols import Registry
from .schema import SchemaConverter, text_field_of, with_property_order
from .sdk import json_of
from .skill_mapper import SkillMapper
from .values import MAX_DEPTH, object_at, to_json

logger = logging.getLogger(__name__)

DEFAULT_NAME = "apcore-agent"
"""Name of an agent for which none is given."""

EXTENSION_URI = "https://github.com/aipartnerup/apcore-a2a/extensions/skills/v1"
"""URI of the extension whose params have the details of each skill (see `details_of`)."""

CAPABILITY_FLAGS = {"streaming": False, "pushNotifications": False, "extendedAgentCard": False}
"""Capabilities that the JSON of a card always has, and their defaults."""

INTERFACES = (("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3"))
"""Bindings and versions in the order of preference.

HTTP+JSON 0.3 needs no URL of its own, since its clients append `/v1` to the URL.
"""

Entry = tuple[a2a.AgentSkill, Value]
"""A skill, and its details for the extension."""


class AgentCardBuilder:
    """A builder of Agent Cards from a registry (FR-AGC-001, FR-AGC-002).

    The entry of a module is cached until the registry returns another descriptor object for the
    module; cards for different callers share the entries.
    """

    def __init__(self, skill_mapper: SkillMapper) -> None:
        self._mapper = skill_mapper
        self._entries: dict[str, tuple[object, Entry | None]] = {}

    def build(
        self,
        registry: Registry,
        *,
        name: str,
        description: str,
        version: str,
        url: str,
        grpc_url: str | None = None,
        capabilities: a2a.AgentCapabilities,
        security_schemes: Mapping[str, a2a.SecurityScheme] | None = None,
        visible: Callable[[str], bool] | None = None,
        tenant: str = "",
    ) -> a2a.AgentCard:
        """Return a card with the visible modules that have a description.

        For a tenant, *visible* must select one skill; the card has the name and description of that
        skill.

        Args:
            registry: The modules.
            name: Name of the agent; `apcore-agent` if empty.
            description: Description of the agent; the number of its skills if empty or blank.
            version: Version of the agent; `0.0.0` if empty.
            url: URL of the agent, for every interface but gRPC; see also *tenant*.
            grpc_url: Address of the gRPC interface, which comes last; None if there is none.
            capabilities: Capabilities of the agent; the extension with details of the skills is
                added to them.
            security_schemes: Security schemes by name; a caller needs any one of them.
            visible: Predicate on module ids that limits the skills; None for all modules.
            tenant: Name of the tenant that the card is for; empty for none. Clients of 1.0 send
                it in their requests; clients of 0.3 know no tenants, so their URL contains it.
        """
        module_ids = registry.list()
        for removed_id in self._entries.keys() - {*module_ids}:
            del self._entries[removed_id]
        shown_ids = filter(visible, module_ids)
        entries = [entry for module_id in shown_ids if (entry := self._entry(registry, module_id))]
        details_by_skill = {skill.id: details for skill, details in entries}
        skills_text = "1 skill" if len(entries) == 1 else f"{len(entries)} skills"
        alternatives = [{scheme: a2a.StringList()} for scheme in security_schemes or ()]
        card = a2a.AgentCard(
            name=name or DEFAULT_NAME,
            description=description.strip() or f"apcore agent with {skills_text}",
            version=version or "0.0.0",
            capabilities=capabilities,
            default_input_modes=[TEXT, JSON],
            default_output_modes=[JSON],
            skills=[skill for skill, _ in entries],
            security_schemes=security_schemes,
            security_requirements=[a2a.SecurityRequirement(schemes=s) for s in alternatives],
        )
        if tenant and entries:
            skill, _ = entries[0]
            card.name, card.description = skill.name, skill.description
        for binding, protocol_version in INTERFACES:
            url_has_tenant = tenant and protocol_version == "0.3"
            card.supported_interfaces.add(
                url=f"{url.rstrip('/')}/{tenant}/" if url_has_tenant else url,
                protocol_binding=binding,
                protocol_version=protocol_version,
                tenant=tenant,
            )
        if grpc_url is not None:
            card.supported_interfaces.add(
                url=grpc_url, protocol_binding="GRPC", protocol_version="1.0", tenant=tenant
            )
        params = Struct(fields={"skills": Value(struct_value=Struct(fields=details_by_skill))})
        card.capabilities.extensions.add(uri=EXTENSION_URI, params=params)
        return card

    def build_extended(self, *, base_card: a2a.AgentCard) -> a2a.AgentCard:
        """Return a copy of *base_card* for authenticated callers; subclasses may add to it."""
        return a2a.AgentCard.FromString(base_card.SerializeToString())

    def invalidate_cache(self) -> None:
        """Discard the cached entries of all modules."""
        self._entries.clear()

    def _entry(self, registry: Registry, module_id: str) -> Entry | None:
        """Return the entry of a module; None if it has no descriptor or is not a skill."""
        cached_descriptor, entry = self._entries.get(module_id, (None, None))
        try:
            descriptor = registry.get_definition(module_id)
        except Exception:  # one broken module must not keep the others off the card
            descriptor = None
            is_first_failure = cached_descriptor is not None or module_id not in self._entries
            if is_first_failure:
                event = {"event": "module_skipped"}
                logger.exception("Skipping module %s: no descriptor", module_id, extra=event)
        if descriptor is None:
            entry = None
        elif descriptor is not cached_descriptor:
            skill = self._mapper.to_skill(descriptor)
            entry = (skill, details_of(descriptor)) if skill else None
        self._entries[module_id] = descriptor, entry
        return entry


def details_of(descriptor: Any) -> Value:
    """Return the details of a skill for the extension, without members that fail to convert."""
    converter = SchemaConverter(keep_recursion=True)
    readers: dict[str, Callable[[], object]] = {
        "annotations": lambda: descriptor.annotations.__dict__,
        "inputSchema": lambda: with_property_order(converter.convert_input_schema(descriptor)),
        "outputSchema": lambda: with_property_order(converter.convert_output_schema(descriptor)),
        "examples": lambda: descriptor.examples,
        "documentation": lambda: descriptor.documentation,
        "textField": lambda: text_field_of(descriptor),
    }
    details: dict[str, Value] = {}
    for key, read in readers.items():
        try:
            if member := read():
                # in the params of the extension, the member is three levels deeper
                details[key] = ParseDict(to_json(member, max_depth=MAX_DEPTH - 3), Value())
        except Exception as error:  # one malformed member must not keep the others off the card
            logger.debug("No %s of %s on the card: %s", key, descriptor.module_id, error)
    return Value(struct_value=Struct(fields=details))


def card_to_dict(card: a2a.AgentCard, *, state_transition_history: bool = False) -> Json:
    """Return *card* as one JSON object that clients of A2A 1.0 and of 0.3 can read.

    The object has the members of both versions, whole numbers as integers, the flags of
    `capabilities` even if they are false, and each skill's annotations in the place that
    FR-SKL-004 defines. Equal cards give equal objects with the same order of members.

    Args:
        card: The card to convert.
        state_transition_history: The capability of this name, which only 0.3 has.
    """
    result: Json = to_json(json_of(card), max_depth=100)
    capabilities = result["capabilities"] = CAPABILITY_FLAGS | result.get("capabilities", {})
    capabilities["stateTransitionHistory"] = state_transition_history
    params = {e["uri"]: e.get("params") for e in capabilities.get("extensions", ())}
    for skill in result.setdefault("skills", []):
        skill.setdefault("examples", [])
        annotations = object_at(params, EXTENSION_URI, "skills", skill["id"], "annotations")
        skill |= {"extensions": {"apcore": {"annotations": annotations}}} if annotations else {}
    if capabilities["extendedAgentCard"]:
        result["supportsAuthenticatedExtendedCard"] = True
    interfaces = card.supported_interfaces
    if not interfaces:
        return result  # without a URL it cannot be a card of 0.3 too
    urls_03 = [interface.url for interface in interfaces if interface.protocol_version == "0.3"]
    url = urls_03[0] if urls_03 else interfaces[0].url
    return result | {
        "protocolVersion": "0.3.0",
        "url": url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": url, "transport": binding} for binding in ("JSONRPC", "HTTP+JSON")
        ],
    }
