"""What the card says of an authenticator, as clients of either version read it."""

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
from apcore_a2a_server.middleware.auth import challenge, declared, for_both
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.server.asking import Json
from tests.server.inloop import Does, give_back, registry_of
from tests.server.inloop import anyio_backend as anyio_backend

from .byhand import CARD, WITH_KEY, ask

IDP = "https://idp.example.com"
TOKEN, LOGIN = f"{IDP}/token", f"{IDP}/login"
SCOPES = {"agent": "Call the agent", "": "All of it"}
SCHEMES: dict[str, a2a.SecurityScheme] = {
    "bearer": bearer(),
    "key": api_key("X-Key"),
    "machines": oauth2(TOKEN, SCOPES),
    "people": oauth2(TOKEN, SCOPES, authorization_url=LOGIN),
    "unscoped": oauth2(TOKEN),
    "oidc": open_id_connect(IDP),
}
OPENAPI: dict[str, Json] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "machines": {
        "type": "oauth2",
        "flows": {"clientCredentials": {"tokenUrl": TOKEN, "scopes": SCOPES}},
    },
    "people": {
        "type": "oauth2",
        "flows": {
            "authorizationCode": {
                "authorizationUrl": LOGIN,
                "tokenUrl": TOKEN,
                "scopes": SCOPES,
            }
        },
    },
    "unscoped": {
        "type": "oauth2",
        "flows": {"clientCredentials": {"tokenUrl": TOKEN, "scopes": {}}},
    },
    "oidc": {
        "type": "openIdConnect",
        "openIdConnectUrl": f"{IDP}/.well-known/openid-configuration",
    },
}
"""The same, as OpenAPI has them and A2A 0.3 with it."""


class Declares:
    """An authenticator that declares *schemes* and knows nobody."""

    def __init__(self, schemes: Mapping[str, Any]) -> None:
        self._schemes = schemes

    def authenticate(self, headers: Mapping[str, str]) -> None:
        return None

    def security_schemes(self) -> Mapping[str, Any]:
        return self._schemes


class SaysNothing:
    """An authenticator that declares nothing."""

    def authenticate(self, headers: Mapping[str, str]) -> None:
        return None


# What is declared


def test_schemes_may_be_the_types_of_the_sdk() -> None:
    assert declared(Declares(SCHEMES)) == SCHEMES


def test_schemes_may_be_as_openapi_has_them() -> None:
    found = declared(Declares(OPENAPI))
    assert {name: MessageToDict(scheme) for name, scheme in found.items()} == {
        name: MessageToDict(scheme) for name, scheme in SCHEMES.items()
    }


def test_who_declares_nothing_wants_tokens() -> None:
    assert declared(SaysNothing()) == {"bearer": bearer()}
    assert declared(Declares({})) == {}


def test_our_own_authenticators_declare_what_they_want() -> None:
    assert declared(APIKeyAuthenticator({"k": "ci"})) == {"apiKey": api_key("X-API-Key")}
    assert declared(JWTAuthenticator(key="0" * 32)) == {"bearer": bearer()}


NONE: list[Any] = [
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


@pytest.mark.parametrize("scheme", NONE, ids=repr)
def test_what_is_no_scheme_is_refused_at_once(scheme: Any) -> None:
    with pytest.raises(ValueError, match=r"(?i)security ?scheme"):
        create_app(registry_of({"work": Does(give_back)}), auth=Declares({"one": scheme}))


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (["bearer"], "Bearer"),
        (["key"], "ApiKey"),
        (["key", "bearer"], "Bearer"),
        (["machines"], "Bearer"),
        (["oidc", "key"], "Bearer"),
        ([], "Bearer"),
    ],
)
def test_a_challenge_asks_for_keys_only_when_nothing_else_will_do(
    names: list[str], asked: str
) -> None:
    assert challenge({name: SCHEMES[name] for name in names}) == asked


# Who reads it

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
    """A card with the schemes for clients of both versions."""
    document: Json = json.loads(json.dumps({**BASE, **for_both(SCHEMES), **members}))
    return document


def by_protobuf(document: Json) -> a2a.AgentCard:
    return ParseDict(deepcopy(document), a2a.AgentCard(), ignore_unknown_fields=True)


def by_the_sdks_client(document: Json) -> a2a.AgentCard:
    return parse_agent_card(deepcopy(document))


READERS: list[Callable[[Json], a2a.AgentCard]] = [by_protobuf, by_the_sdks_client]


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("read", READERS)
def test_clients_of_the_sdk_read_each_scheme(
    read: Callable[[Json], a2a.AgentCard], name: str
) -> None:
    assert read(card()).security_schemes[name] == SCHEMES[name]


def test_the_sdks_client_reads_that_any_of_them_will_do() -> None:
    found = by_the_sdks_client(card()).security_requirements
    assert [MessageToDict(each) for each in found] == [{"schemes": {name: {}}} for name in SCHEMES]


@pytest.mark.parametrize("name", SCHEMES)
def test_clients_of_0_3_read_each_scheme(name: str) -> None:
    found = old.AgentCard.model_validate(card(url="http://x/", protocolVersion="0.3.0"))
    assert found.security_schemes
    read = found.security_schemes[name].model_dump(by_alias=True, exclude_none=True, mode="json")
    assert OPENAPI[name].items() <= read.items()
    assert read.keys() == OPENAPI[name].keys()
    assert found.security == REQUIRED


FLOWS = {"machines": "clientCredentials", "people": "authorizationCode"}


@pytest.mark.parametrize("name", SCHEMES)
def test_our_own_client_reads_each_scheme(name: str) -> None:
    found, known = AgentCard.from_dict(card()).security_schemes[name], OPENAPI[name]
    assert found.type == known["type"]
    assert found.location == known.get("in", "")
    assert found.name == known.get("name", "")
    assert found.scheme == known.get("scheme", "")
    assert found.open_id_connect_url == known.get("openIdConnectUrl", "")
    if name in FLOWS:
        ((flow, terms),) = found.flows.items()
        assert (flow, terms["tokenUrl"], terms["scopes"]) == (FLOWS[name], TOKEN, SCOPES)
        assert terms.get("authorizationUrl", LOGIN) == LOGIN


def test_our_own_client_reads_that_any_of_them_will_do() -> None:
    found = AgentCard.from_dict(card()).security_requirements
    assert [[*each["schemes"]] for each in found] == [[name] for name in SCHEMES]


@pytest.mark.anyio
@pytest.mark.parametrize("extended", [False, True], ids=["for strangers", "for who is known"])
async def test_the_card_of_an_agent_says_so_to_all_of_them(extended: bool) -> None:
    modules = registry_of({"work": Does(give_back)})
    auth = APIKeyAuthenticator({dict(WITH_KEY)["X-API-Key"]: "ada"})
    app = create_app(modules, url="http://x", auth=auth)
    path = "/agent/authenticatedExtendedCard" if extended else CARD
    document = (await ask(app, path=path, headers=WITH_KEY)).json
    for read in READERS:
        assert dict(read(document).security_schemes) == {"apiKey": api_key()}
        required = [MessageToDict(each) for each in read(document).security_requirements]
        assert required == [{"schemes": {"apiKey": {}}}]
    ours = AgentCard.from_dict(deepcopy(document))
    assert ours.security_schemes["apiKey"].name == "X-API-Key"
    assert ours.capabilities.extended_agent_card
    theirs = old.AgentCard.model_validate(document)
    assert theirs.security == [{"apiKey": []}]
    assert theirs.supports_authenticated_extended_card


@pytest.mark.anyio
async def test_the_card_of_an_agent_for_anybody_asks_for_nothing() -> None:
    app = create_app(registry_of({"work": Does(give_back)}), url="http://x")
    document = (await ask(app, path=CARD)).json
    assert not document.keys() & {"security", "securitySchemes", "securityRequirements"}
