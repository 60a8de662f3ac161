"""Security schemes in the Agent Card, as clients of both versions read them."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from a2a import types as a2a
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as old
from apcore_a2a_auth import (
    APIKeyAuthenticator,
    JWTAuthenticator,
    api_key,
    bearer,
    oauth2,
    open_id_connect,
)
from apcore_a2a_client import AgentCard
from apcore_a2a_server import create_app
from apcore_a2a_server.middleware.auth import challenge_scheme, declared_schemes, security_members
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.server.checking_client import Json
from tests.server.inloop import ActionModule, echo, registry_of
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import CARD, WITH_KEY, ask

IDP = "https://idp.example.com"
TOKEN_URL, LOGIN_URL = f"{IDP}/token", f"{IDP}/login"
SCOPES = {"agent": "Call the agent", "": "All of it"}
SCHEMES: dict[str, a2a.SecurityScheme] = {
    "bearer": bearer(),
    "key": api_key("X-Key"),
    "machines": oauth2(TOKEN_URL, SCOPES),
    "people": oauth2(TOKEN_URL, SCOPES, authorization_url=LOGIN_URL),
    "unscoped": oauth2(TOKEN_URL),
    "oidc": open_id_connect(IDP),
}
OPENAPI: dict[str, Json] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "machines": {
        "type": "oauth2",
        "flows": {"clientCredentials": {"tokenUrl": TOKEN_URL, "scopes": SCOPES}},
    },
    "people": {
        "type": "oauth2",
        "flows": {
            "authorizationCode": {
                "authorizationUrl": LOGIN_URL,
                "tokenUrl": TOKEN_URL,
                "scopes": SCOPES,
            }
        },
    },
    "unscoped": {
        "type": "oauth2",
        "flows": {"clientCredentials": {"tokenUrl": TOKEN_URL, "scopes": {}}},
    },
    "oidc": {
        "type": "openIdConnect",
        "openIdConnectUrl": f"{IDP}/.well-known/openid-configuration",
    },
}
"""The same schemes in the JSON of OpenAPI and A2A 0.3."""


class DeclaringAuthenticator:
    """Authenticator that declares *schemes* and accepts no caller."""

    def __init__(self, schemes: Mapping[str, Any]) -> None:
        self._schemes = schemes

    def authenticate(self, headers: Mapping[str, str]) -> None:
        return None

    def security_schemes(self) -> Mapping[str, Any]:
        return self._schemes


class PlainAuthenticator:
    """Authenticator that declares no schemes."""

    def authenticate(self, headers: Mapping[str, str]) -> None:
        return None


# Declared schemes


def test_schemes_may_be_objects_of_the_sdk() -> None:
    assert declared_schemes(DeclaringAuthenticator(SCHEMES)) == SCHEMES


def test_schemes_may_be_json_of_openapi() -> None:
    schemes = declared_schemes(DeclaringAuthenticator(OPENAPI))
    assert {name: MessageToDict(scheme) for name, scheme in schemes.items()} == {
        name: MessageToDict(scheme) for name, scheme in SCHEMES.items()
    }


def test_the_default_scheme_is_a_bearer_token() -> None:
    assert declared_schemes(PlainAuthenticator()) == {"bearer": bearer()}
    assert declared_schemes(DeclaringAuthenticator({})) == {}


def test_our_authenticators_declare_their_schemes() -> None:
    assert declared_schemes(APIKeyAuthenticator({"k": "ci"})) == {"apiKey": api_key("X-API-Key")}
    assert declared_schemes(JWTAuthenticator(key="0" * 32)) == {"bearer": bearer()}


INVALID_SCHEMES: list[Any] = [
    {"type": "password"},
    {"type": "http"},
    {"type": "apiKey", "in": "body", "name": "key"},
    None,
    "bearer",
    5,
    a2a.SecurityScheme(),
    {},
    {"httpAuthSecurityScheme": {"scheme": "bearer"}},
]


@pytest.mark.parametrize("scheme", INVALID_SCHEMES, ids=repr)
def test_an_invalid_scheme_is_refused_at_once(scheme: Any) -> None:
    with pytest.raises(ValueError, match=r"(?i)security ?scheme"):
        create_app(
            registry_of({"work": ActionModule(echo)}),
            auth=DeclaringAuthenticator({"one": scheme}),
        )


@pytest.mark.parametrize(
    ("names", "challenge"),
    [
        (["bearer"], "Bearer"),
        (["key"], "ApiKey"),
        (["key", "bearer"], "Bearer"),
        (["machines"], "Bearer"),
        (["oidc", "key"], "Bearer"),
        ([], "Bearer"),
    ],
)
def test_the_challenge_names_api_keys_only_if_there_is_no_other_scheme(
    names: list[str], challenge: str
) -> None:
    assert challenge_scheme({name: SCHEMES[name] for name in names}) == challenge


# Readers

BASE: Json = {
    "name": "agent",
    "description": "",
    "version": "1",
    "capabilities": {},
    "skills": [],
    "defaultInputModes": [],
    "defaultOutputModes": [],
}
REQUIRED = [{name: list[str]()} for name in SCHEMES]


def card(**members: Any) -> Json:
    """Return an Agent Card with the schemes for clients of both versions."""
    document: Json = json.loads(json.dumps({**BASE, **security_members(SCHEMES), **members}))
    return document


def card_of_protobuf(document: Json) -> a2a.AgentCard:
    return ParseDict(deepcopy(document), a2a.AgentCard(), ignore_unknown_fields=True)


def card_of_sdk_client(document: Json) -> a2a.AgentCard:
    return parse_agent_card(deepcopy(document))


READERS: list[Callable[[Json], a2a.AgentCard]] = [card_of_protobuf, card_of_sdk_client]


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("read", READERS)
def test_clients_of_the_sdk_read_each_scheme(
    read: Callable[[Json], a2a.AgentCard], name: str
) -> None:
    assert read(card()).security_schemes[name] == SCHEMES[name]


def test_the_sdks_client_reads_that_one_scheme_is_enough() -> None:
    requirements = card_of_sdk_client(card()).security_requirements
    assert [MessageToDict(requirement) for requirement in requirements] == [
        {"schemes": {name: {}}} for name in SCHEMES
    ]


@pytest.mark.parametrize("name", SCHEMES)
def test_clients_of_0_3_read_each_scheme(name: str) -> None:
    old_card = old.AgentCard.model_validate(card(url="http://x/", protocolVersion="0.3.0"))
    assert old_card.security_schemes
    read = old_card.security_schemes[name].model_dump(by_alias=True, exclude_none=True, mode="json")
    assert OPENAPI[name].items() <= read.items()
    assert read.keys() == OPENAPI[name].keys()
    assert old_card.security == REQUIRED


FLOWS = {"machines": "clientCredentials", "people": "authorizationCode"}


@pytest.mark.parametrize("name", SCHEMES)
def test_our_client_reads_each_scheme(name: str) -> None:
    scheme, expected = AgentCard.from_dict(card()).security_schemes[name], OPENAPI[name]
    assert scheme.type == expected["type"]
    assert scheme.location == expected.get("in", "")
    assert scheme.name == expected.get("name", "")
    assert scheme.scheme == expected.get("scheme", "")
    assert scheme.open_id_connect_url == expected.get("openIdConnectUrl", "")
    if name in FLOWS:
        ((flow, terms),) = scheme.flows.items()
        assert (flow, terms["tokenUrl"], terms["scopes"]) == (FLOWS[name], TOKEN_URL, SCOPES)
        assert terms.get("authorizationUrl", LOGIN_URL) == LOGIN_URL


def test_our_client_reads_that_one_scheme_is_enough() -> None:
    requirements = AgentCard.from_dict(card()).security_requirements
    assert [[*requirement["schemes"]] for requirement in requirements] == [
        [name] for name in SCHEMES
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("extended", [False, True], ids=["public card", "extended card"])
async def test_all_clients_read_the_schemes_of_an_agent(extended: bool) -> None:
    modules = registry_of({"work": ActionModule(echo)})
    auth = APIKeyAuthenticator({dict(WITH_KEY)["X-API-Key"]: "ada"})
    app = create_app(modules, url="http://x", auth=auth)
    path = "/agent/authenticatedExtendedCard" if extended else CARD
    document = (await ask(app, path=path, headers=WITH_KEY)).json
    for read in READERS:
        assert dict(read(document).security_schemes) == {"apiKey": api_key()}
        required = [
            MessageToDict(requirement) for requirement in read(document).security_requirements
        ]
        assert required == [{"schemes": {"apiKey": {}}}]
    client_card = AgentCard.from_dict(deepcopy(document))
    assert client_card.security_schemes["apiKey"].name == "X-API-Key"
    assert client_card.capabilities.extended_agent_card
    old_card = old.AgentCard.model_validate(document)
    assert old_card.security == [{"apiKey": []}]
    assert old_card.supports_authenticated_extended_card


@pytest.mark.anyio
async def test_an_agent_without_an_authenticator_declares_no_schemes() -> None:
    app = create_app(registry_of({"work": ActionModule(echo)}), url="http://x")
    document = (await ask(app, path=CARD)).json
    assert not document.keys() & {"security", "securitySchemes", "securityRequirements"}
