"""Models of agent cards in A2A 1.0 (§4.4) and 0.3."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from .codec import Model, empty_object, model
from .errors import Json, is_object, objects

SCHEME_TYPES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}
"""The key of each security scheme in 1.0, and the scheme's `type` in 0.3 and OpenAPI."""


@model
class AgentInterface(Model):
    """A URL of the agent, and the protocol binding and version there (§4.4.6)."""

    url: str
    protocol_binding: str = ""
    protocol_version: str = ""
    tenant: str = ""


@model
class AgentProvider(Model):
    """The organization that provides the agent (§4.4.2)."""

    organization: str = ""
    url: str = ""


@model
class AgentExtension(Model):
    """An extension of the protocol that the agent supports (§4.4.4)."""

    uri: str = ""
    description: str = ""
    required: bool = False
    params: Mapping[str, Any] = field(default_factory=empty_object)


@model
class AgentCapabilities(Model):
    """The optional features that the agent supports (§4.4.3)."""

    streaming: bool = False
    push_notifications: bool = False
    extended_agent_card: bool = False
    extensions: tuple[AgentExtension, ...] = ()


@model
class AgentSkill(Model):
    """A skill of the agent (§4.4.5)."""

    id: str
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def _upgrade(cls, data: Json) -> Json:
        return _upgrade_security(data)


@model
class SecurityScheme(Model):
    """A way to authenticate requests (§4.5).

    Attributes:
        type: `apiKey`, `http`, `oauth2`, `openIdConnect` or `mutualTLS`; empty if unknown.
        location: Where an API key is sent: `header`, `query` or `cookie`.
        name: The header, query parameter or cookie of an API key.
        scheme: The scheme of HTTP authentication, such as `bearer`.
        flows: The OAuth 2 flows by name, as JSON.
    """

    type: str = ""
    description: str = ""
    location: str = ""
    name: str = ""
    scheme: str = ""
    bearer_format: str = ""
    open_id_connect_url: str = ""
    oauth2_metadata_url: str = ""
    flows: Mapping[str, Any] = field(default_factory=empty_object)

    def to_dict(self) -> Json:
        """Return the JSON of A2A 1.0."""
        keys = {scheme_type: key for key, scheme_type in SCHEME_TYPES.items()}
        values = Model.to_dict(self)
        scheme_type = values.pop("type", "")
        key = keys.get(scheme_type)
        return {key: values} if key else {**values, "type": scheme_type}

    @classmethod
    def _upgrade(cls, data: Json) -> Json:
        for key, scheme_type in SCHEME_TYPES.items():
            scheme = data.pop(key, None)
            if is_object(scheme):
                data = {**data, **scheme, "type": scheme_type}
        if "in" in data:
            data["location"] = data.pop("in")
        return data


@model
class AgentCard(Model):
    """The description that an agent publishes of itself (§4.4.1).

    Attributes:
        signatures: JSON Web Signatures of the card (§4.4.7, RFC 7515), as JSON; not verified.
    """

    name: str
    description: str = ""
    version: str = ""
    supported_interfaces: tuple[AgentInterface, ...] = ()
    capabilities: AgentCapabilities = field(default_factory=AgentCapabilities)
    skills: tuple[AgentSkill, ...] = ()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    provider: AgentProvider | None = None
    documentation_url: str = ""
    icon_url: str = ""
    security_schemes: Mapping[str, SecurityScheme] = field(default_factory=empty_object)
    security_requirements: tuple[Mapping[str, Any], ...] = ()
    signatures: tuple[Mapping[str, Any], ...] = ()

    def skill(self, id: str) -> AgentSkill | None:
        """Return the skill with that id; None if there is none."""
        return next((skill for skill in self.skills if skill.id == id), None)

    @classmethod
    def _upgrade(cls, data: Json) -> Json:
        # 0.3 has a main interface, and a list `additionalInterfaces` (0.3 §5.5) that may repeat
        # the main interface.
        version = data.pop("protocolVersion", None) or "0.3"
        transport = data.pop("preferredTransport", None) or "JSONRPC"
        main = {"url": data.pop("url", None), "transport": transport}
        additional = objects(data.pop("additionalInterfaces", None))
        if data.get("supportedInterfaces") is None and main["url"]:
            other_interfaces = [interface for interface in additional if interface != main]
            data["supportedInterfaces"] = [
                {
                    "url": interface.get("url"),
                    "protocolBinding": interface.get("transport") or "JSONRPC",
                    "protocolVersion": version,
                }
                for interface in [main, *other_interfaces]
            ]
        extended = data.pop("supportsAuthenticatedExtendedCard", None)
        if extended is not None and isinstance(data.get("capabilities") or {}, dict):
            capabilities = {"extendedAgentCard": extended}
            data["capabilities"] = capabilities | (data.get("capabilities") or {})
        return _upgrade_security(data)


def _upgrade_security(data: Json) -> Json:
    """Turn `{scheme: scopes}` of 0.3 into `{"schemes": {scheme: {"list": scopes}}}` of 1.0."""
    requirements = data.pop("security", None)
    if data.get("securityRequirements") is None and requirements:
        data["securityRequirements"] = [
            {"schemes": {name: {"list": scopes} for name, scopes in requirement.items()}}
            for requirement in objects(requirements)
        ]
    return data
