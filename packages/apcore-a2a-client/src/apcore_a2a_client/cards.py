"""What agents tell about themselves: one model for the cards of A2A 1.0 and 0.3 (§4.4)."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from .codec import Model, model, nothing
from .errors import Json, is_object, objects

SCHEMES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}
"""The security schemes' names in 1.0, and their types in 0.3, which are OpenAPI's."""


@model
class AgentInterface(Model):
    """An address, and what is spoken there (§4.4.6)."""

    url: str
    protocol_binding: str = ""
    protocol_version: str = ""
    tenant: str = ""


@model
class AgentProvider(Model):
    """Who offers the agent (§4.4.2)."""

    organization: str = ""
    url: str = ""


@model
class AgentExtension(Model):
    """An extension of the protocol that the agent knows (§4.4.4)."""

    uri: str = ""
    description: str = ""
    required: bool = False
    params: Mapping[str, Any] = field(default_factory=nothing)


@model
class AgentCapabilities(Model):
    """Which optional parts of the protocol the agent supports (§4.4.3)."""

    streaming: bool = False
    push_notifications: bool = False
    extended_agent_card: bool = False
    extensions: tuple[AgentExtension, ...] = ()


@model
class AgentSkill(Model):
    """Something the agent can do (§4.4.5)."""

    id: str
    name: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def _upgraded(cls, data: Json) -> Json:
        return _upgraded_security(data)


@model
class SecurityScheme(Model):
    """How a client may show who it is (§4.5).

    Attributes:
        type: `apiKey`, `http`, `oauth2`, `openIdConnect` or `mutualTLS`; empty if unknown.
        location: Of an API key: `header`, `query` or `cookie`.
        name: Of an API key: what the header, parameter or cookie is called.
        scheme: Of HTTP authentication, such as `bearer`.
        flows: Of OAuth 2, by their names, as JSON.
    """

    type: str = ""
    description: str = ""
    location: str = ""
    name: str = ""
    scheme: str = ""
    bearer_format: str = ""
    open_id_connect_url: str = ""
    oauth2_metadata_url: str = ""
    flows: Mapping[str, Any] = field(default_factory=nothing)

    def to_dict(self) -> Json:
        """The JSON form of A2A 1.0."""
        known = {old: new for new, old in SCHEMES.items()}
        values = Model.to_dict(self)
        kind = values.pop("type", "")
        return {known[kind]: values} if kind in known else {**values, "type": kind}

    @classmethod
    def _upgraded(cls, data: Json) -> Json:
        for name, kind in SCHEMES.items():
            inner = data.pop(name, None)
            if is_object(inner):
                data = {**data, **inner, "type": kind}
        if "in" in data:
            data["location"] = data.pop("in")
        return data


@model
class AgentCard(Model):
    """What an agent tells about itself (§4.4.1).

    Attributes:
        signatures: JSON Web Signatures of the card as JSON (RFC 7515, §4.4.7); not verified.
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
    security_schemes: Mapping[str, SecurityScheme] = field(default_factory=nothing)
    security_requirements: tuple[Mapping[str, Any], ...] = ()
    signatures: tuple[Mapping[str, Any], ...] = ()

    def skill(self, id: str) -> AgentSkill | None:
        """The skill of that id."""
        return next((skill for skill in self.skills if skill.id == id), None)

    @classmethod
    def _upgraded(cls, data: Json) -> Json:
        """0.3 has one address with its transport, more in `additionalInterfaces` (0.3 §5.5)."""
        version = data.pop("protocolVersion", None) or "0.3"
        first = {"url": data.pop("url", None), "transport": data.pop("preferredTransport", None)}
        more = objects(data.pop("additionalInterfaces", None))
        if data.get("supportedInterfaces") is None and first["url"]:
            others = [entry for entry in more if entry != first]
            data["supportedInterfaces"] = [
                {
                    "url": entry.get("url"),
                    "protocolBinding": entry.get("transport") or "JSONRPC",
                    "protocolVersion": version,
                }
                for entry in [first, *others]
            ]
        extended = data.pop("supportsAuthenticatedExtendedCard", None)
        if extended is not None and isinstance(data.get("capabilities") or {}, dict):
            known = {"extendedAgentCard": extended}
            data["capabilities"] = known | (data.get("capabilities") or {})
        return _upgraded_security(data)


def _upgraded_security(data: Json) -> Json:
    """0.3 has `{scheme: scopes}` where 1.0 has `{"schemes": {scheme: {"list": scopes}}}`."""
    old = data.pop("security", None)
    if data.get("securityRequirements") is None and old:
        data["securityRequirements"] = [
            {"schemes": {name: {"list": scopes} for name, scopes in requirement.items()}}
            for requirement in objects(old)
        ]
    return data
