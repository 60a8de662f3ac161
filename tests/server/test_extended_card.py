"""Agent Cards with authentication: the public card, and the extended card of each principal."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx
import pytest
from a2a.compat.v0_3.types import AgentCard as OldAgentCard
from a2a.types import AgentCard
from apcore import (
    ACL,
    ACLRule,
    Context,
    Executor,
    Identity,
    ModuleAnnotations,
    ModuleExample,
    Registry,
)
from apcore_a2a_auth import APIKeyAuthenticator, ChainAuthenticator, JWTAuthenticator
from apcore_a2a_server import create_app
from apcore_a2a_server.app import cards
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.serving import PATIENCE

from .checking_client import Json
from .inloop import DIALECTS, NEEDS_APPROVAL, ActionModule, Peer, echo, registry_of, serving
from .inloop import anyio_backend as anyio_backend
from .modules import SECRET

pytestmark = [pytest.mark.anyio, pytest.mark.rotating("agent", "rpc", "dialect")]

PUBLIC = "/.well-known/agent-card.json"
EXTENDED = "/agent/authenticatedExtendedCard"
PAGES = [EXTENDED, "/v1/card", "/extendedAgentCard"]
METHODS = ["GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", "agentCard/get"]
PRINCIPALS = {
    "ada": Identity("ada", roles=("admin", "staff")),
    "olga": Identity("olga", roles=("operator",), attrs={"shift": "night"}),
    "ivan": Identity("ivan", roles=("intern",)),
    "bob": Identity("bob"),
    "cron": Identity("cron", type="service"),
}
OPEN = {"text.draft", "text.stats"}
"""Skills that anonymous callers may call without approval."""
GUARDED = {"declared", "guarded"}
"""Skills that require approval by their annotations."""
MAY_CALL = {
    "": OPEN | GUARDED | {"approval.first"},
    "ada": OPEN | GUARDED | {"lab", "ops.delete", "ops.restart", "approval.first"},
    "olga": OPEN | GUARDED | {"night.shift", "ops.delete", "approval.first"},
    "ivan": GUARDED | {"text.stats", "approval.first"},
    "bob": OPEN | GUARDED | {"approval.first"},
    "cron": OPEN | GUARDED | {"data.export", "lab", "approval.first"},
}
"""The skills that the rules allow each principal; "" is an anonymous caller."""
SKILLS = sorted({"broken", "ruled.out"}.union(*MAY_CALL.values()))


class NameAuthenticator:
    """An authenticator that trusts the name in a header."""

    def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        return PRINCIPALS.get(headers.get("x-name", ""))


class ShiftCondition:
    """An asynchronous ACL condition."""

    async def evaluate(self, value: Any, context: Context[Any]) -> bool:
        await asyncio.sleep(0)
        return context.identity is not None and context.identity.attrs.get("shift") == value


class RaisingCondition:
    """An ACL condition that raises."""

    def evaluate(self, value: Any, context: Context[Any]) -> bool:
        raise RuntimeError(SECRET)


ACL.register_condition("on_shift", ShiftCondition())
ACL.register_condition("raises", RaisingCondition())


def rule(target: str, conditions: Json | None = None, **options: Any) -> ACLRule:
    """Return a rule for external calls; it allows them by default."""
    return ACLRule(
        ["@external"], [target], **{"effect": "allow", "conditions": conditions, **options}
    )


def rules() -> ACL:
    acl_rules = [
        rule("text.draft", {"roles": ["intern"]}, effect="deny"),
        rule("text.*"),
        rule("ops.delete", {"roles": ["operator"]}, approval="required"),
        rule("ops.*", {"roles": ["admin"]}),
        rule("data.*", {"identity_types": ["service"]}),
        rule("night.*", {"on_shift": "night"}),
        rule("lab", {"$or": [{"roles": ["admin"]}, {"identity_types": ["service"]}]}),
        rule("approval.first", approval="required"),
        rule("broken", {"raises": True}),
        *map(rule, GUARDED),
    ]
    return ACL(acl_rules, default_effect="deny")


def registry() -> Registry:
    """Return a registry with a module for each skill."""
    plain = {name: ActionModule(echo) for name in SKILLS if name not in GUARDED}
    modules = registry_of({**plain, "guarded": ActionModule(echo, annotations=NEEDS_APPROVAL)})
    declared = {"annotations": {"requires_approval": True}}
    modules.register("declared", ActionModule(echo), metadata=declared)
    return modules


@asynccontextmanager
async def agent(acl: Any = None, *, dialect: str = "1.0", **options: Any) -> AsyncIterator[Peer]:
    """Serve the skills with the rules, or with another ACL."""
    with closing(Executor(registry(), acl=acl or rules())) as executor:
        async with serving(executor, dialect, **options) as peer:
            yield peer


@asynccontextmanager
async def acting_as(peer: Peer, name: str) -> AsyncIterator[Peer]:
    """Yield a client that acts as *name*, for the same agent."""
    options: Json = {"base_url": peer.client.base_url, "headers": {"x-name": name}}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE, **options) as client:
        yield Peer(peer.app, client, peer.dialect)


async def skills_on(peer: Peer, page: str = PUBLIC) -> set[str]:
    """Return the ids of a card's skills; check that its extension and description agree."""
    card = (await peer.client.get(page)).raise_for_status().json()
    skills = {skill["id"] for skill in card["skills"]}
    (extension,) = card["capabilities"]["extensions"]
    assert extension["params"].get("skills", {}).keys() == skills
    number_of_skills = "1 skill" if len(skills) == 1 else f"{len(skills)} skills"
    assert card["description"] == f"apcore agent with {number_of_skills}"
    return skills


async def skills_shown_to(peer: Peer, *names: str) -> list[set[str]]:
    """Return the skills on the extended card of each principal."""
    visible = []
    for name in names:
        async with acting_as(peer, name) as client:
            visible.append(await skills_on(client, EXTENDED))
    return visible


async def callable_by(peer: Peer) -> set[str]:
    """Return the skills that may be called; other skills are refused like unknown tasks."""
    codes = {skill: (await peer.send(skill)).code for skill in SKILLS}
    assert {*codes.values()} <= {None, -32001}
    return {skill for skill, code in codes.items() if code is None}


async def card_responses(client: httpx.AsyncClient) -> dict[str, httpx.Response]:
    """Request the extended card by every path, method and version; return the responses."""
    responses = {page: await client.get(page) for page in PAGES}
    for method in METHODS:
        for version in ("", "0.3", "1.0"):
            body = {"jsonrpc": "2.0", "id": 1, "method": method}
            headers = {"A2A-Version": version} if version else {}
            responses[f"{method} {version}"] = await client.post("/", json=body, headers=headers)
    return responses


@pytest.fixture
async def peer(anyio_backend: Any) -> AsyncIterator[Peer]:
    async with agent(auth=NameAuthenticator()) as peer:
        yield peer


# The skills on the cards


async def test_the_public_card_shows_what_anonymous_callers_may_call_without_approval(
    peer: Peer,
) -> None:
    assert await skills_on(peer) == OPEN
    async with agent() as anonymous:
        states = {skill: (await anonymous.send(skill)).state for skill in MAY_CALL[""]}
        assert {skill for skill, state in states.items() if state == "completed"} == OPEN
        assert await callable_by(anonymous) == MAY_CALL[""]


async def test_without_authentication_the_card_shows_what_anonymous_callers_may_call() -> None:
    async with agent() as peer:
        assert await skills_on(peer) == MAY_CALL[""]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", PRINCIPALS)
async def test_the_extended_card_shows_exactly_the_callable_skills(name: str, dialect: str) -> None:
    async with (
        agent(dialect=dialect, auth=NameAuthenticator()) as peer,
        acting_as(peer, name) as client,
    ):
        assert await skills_on(client, EXTENDED) == MAY_CALL[name]
        assert await callable_by(client) == MAY_CALL[name]


async def test_without_an_acl_the_extended_card_shows_everything() -> None:
    async with serving(registry(), auth=NameAuthenticator()) as peer:
        assert await skills_on(peer) == {*SKILLS} - GUARDED
        assert await skills_shown_to(peer, "bob") == [{*SKILLS}]


async def test_the_public_card_reveals_nothing_about_hidden_skills() -> None:
    secrets = {
        "description": "hidden-description",
        "documentation": "hidden-documentation",
        "tags": ["hidden-tag"],
        "input_schema": {"type": "object", "properties": {"hidden-field": {}}},
        "examples": [ModuleExample("hidden-example", {"hidden-key": 1})],
    }
    modules = {"hidden.id": ActionModule(echo, **secrets), "text.a": ActionModule(echo)}
    acl = ACL([rule("text.*"), rule("*", {"roles": ["admin"]})], default_effect="deny")
    with closing(Executor(registry_of(modules), acl=acl)) as executor:
        async with (
            serving(executor, auth=NameAuthenticator()) as peer,
            acting_as(peer, "ada") as ada,
        ):
            extended = (await ada.client.get(EXTENDED)).text
            words = {"hidden.id", *re.findall(r"hidden-\w+", str(secrets))}
            assert not [word for word in words if word not in extended]
            for page in (PUBLIC, "/.well-known/agent.json", "/health", "/nothing"):
                assert "hidden" not in (await peer.client.get(page)).text


# Paths and methods of the extended card


async def test_every_method_and_path_returns_the_same_extended_card(peer: Peer) -> None:
    async with acting_as(peer, "olga") as olga:
        answers = await card_responses(olga.client)
    card = answers[EXTENDED].content
    assert json.loads(card)["skills"]
    assert len(answers) == 12
    for source, answer in answers.items():
        assert answer.status_code == 200, source
        assert answer.json().get("result", answer.json()) == json.loads(card)
        assert card in answer.content, source


async def test_every_method_and_path_names_the_same_url_under_a_prefix() -> None:
    app = Starlette(routes=[Mount("/below", create_app(registry(), auth=NameAuthenticator()))])
    transport, headers = httpx.ASGITransport(app), {"x-name": "ada"}
    url = "http://agent.example.com/below"
    async with httpx.AsyncClient(transport=transport, base_url=url, headers=headers) as client:
        documents = [answer.json() for answer in (await card_responses(client)).values()]
        (shown_url,) = {card.get("result", card)["url"] for card in documents}
        assert shown_url.startswith(url)


@pytest.mark.parametrize("headers", [{}, {"x-name": "eve"}])
async def test_anonymous_callers_get_no_extended_card(peer: Peer, headers: Json) -> None:
    peer.client.headers.update(headers)
    for answer in (await card_responses(peer.client)).values():
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert not [skill for skill in SKILLS if skill in answer.text]


async def test_without_authentication_there_is_no_extended_card() -> None:
    async with agent() as peer:
        responses = await card_responses(peer.client)
        assert responses.pop(EXTENDED).status_code == 404
        answer = responses.pop("/v1/card")
        assert (answer.status_code, answer.json()["code"]) == (404, -32007)
        answer = responses.pop("/extendedAgentCard")
        assert answer.status_code == 400
        (info,) = answer.json()["error"]["details"]
        assert info["reason"] == "UNSUPPORTED_OPERATION"
        for name, answer in responses.items():
            is_modern = name.startswith("GetExtendedAgentCard")
            assert answer.json()["error"]["code"] == (-32004 if is_modern else -32007)


@pytest.mark.parametrize("page", PAGES)
async def test_the_extended_card_must_not_be_cached(peer: Peer, page: str) -> None:
    async with acting_as(peer, "ada") as ada:
        answer = await ada.client.get(page)
        assert answer.headers.get("cache-control") == "private, no-store"


async def test_the_public_card_may_be_cached(peer: Peer) -> None:
    first = await peer.client.get(PUBLIC)
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "max-age=300"
    cached = await peer.client.get(PUBLIC, headers={"If-None-Match": tag, "x-name": "ada"})
    assert (cached.status_code, cached.content) == (304, b"")
    async with acting_as(peer, "ada") as ada:
        assert (await ada.client.get(PUBLIC)).content == first.content
        assert tag.strip('"') not in (await ada.client.get(EXTENDED)).text


# Authentication on the cards


async def test_the_cards_declare_the_extended_card(peer: Peer) -> None:
    async with acting_as(peer, "bob") as bob, agent() as open_to_all:
        pages = [(peer, PUBLIC), (bob, EXTENDED), (open_to_all, PUBLIC)]
        shown_cards = [(await viewer.client.get(page)).json() for viewer, page in pages]
    assert [card["capabilities"]["extendedAgentCard"] for card in shown_cards] == [
        True,
        True,
        False,
    ]
    assert [card.get("supportsAuthenticatedExtendedCard") for card in shown_cards] == [
        True,
        True,
        None,
    ]
    assert not shown_cards[2].keys() & {"security", "securitySchemes", "securityRequirements"}


OLD_KEY = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
KEY = {**OLD_KEY, "apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
BEARER = {"type": "http", "scheme": "bearer", "httpAuthSecurityScheme": {"scheme": "bearer"}}
TOKENS, KEYS = JWTAuthenticator(key="k" * 32), APIKeyAuthenticator({"a long key": "ci"})


@pytest.mark.parametrize(
    ("auth", "schemes"),
    [
        (NameAuthenticator(), {"bearer": BEARER}),
        (TOKENS, {"bearer": BEARER}),
        (KEYS, {"apiKey": KEY}),
        (ChainAuthenticator(TOKENS, KEYS), {"bearer": BEARER, "apiKey": KEY}),
    ],
)
async def test_the_cards_declare_the_schemes_to_clients_of_both_versions(
    auth: Any, schemes: Json
) -> None:
    async with agent(auth=auth) as peer:
        card = (await peer.client.get(PUBLIC)).json()
    assert card["securitySchemes"] == schemes
    assert card["security"] == [{name: []} for name in schemes]
    assert card["securityRequirements"] == [{"schemes": {name: {}}} for name in schemes]
    old = OldAgentCard.model_validate(card)
    assert {*(old.security_schemes or {})} == {*schemes}
    new = ParseDict(card, AgentCard(), ignore_unknown_fields=True)
    assert {*new.security_schemes} == {*schemes}


# Changes at run time


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock by which the public card's skills expire."""
    clock = Clock()
    monkeypatch.setattr(cards, "time", clock)
    return clock


def add_rule(executor: Executor, acl: ACL) -> None:
    acl.add_rule(rule("text.stats", effect="deny"))


def set_rules(executor: Executor, acl: ACL) -> None:
    executor.set_acl(ACL([rule("text.draft")], default_effect="deny"))


@pytest.mark.parametrize("change", [add_rule, set_rules])
async def test_changed_rules_show_on_the_cards_soon(
    change: Callable[[Executor, ACL], None], clock: Clock
) -> None:
    with closing(Executor(registry(), acl=(acl := rules()))) as executor:
        async with serving(executor, auth=NameAuthenticator()) as peer:
            before = (await peer.client.get(PUBLIC)).headers["etag"]
            change(executor, acl)
            assert "text.stats" not in (await skills_shown_to(peer, "bob"))[0]
            clock.now += cards.PUBLIC_SKILLS_TTL
            assert await skills_on(peer) == {"text.draft"}
            assert (await peer.client.get(PUBLIC)).headers["etag"] != before


async def test_registrations_and_removals_show_on_the_cards_at_once() -> None:
    modules = registry()
    with closing(Executor(modules, acl=rules())) as executor:
        async with serving(executor, auth=NameAuthenticator()) as peer:
            assert await skills_on(peer) == OPEN
            for name in ("text.new", "ops.new"):
                modules.register(name, ActionModule(echo))
            modules.unregister("text.stats")
            assert await skills_on(peer) == {"text.draft", "text.new"}
            (shown_to_ada,) = await skills_shown_to(peer, "ada")
            assert {"ops.new", "text.new"} <= shown_to_ada
            assert "text.stats" not in shown_to_ada


async def test_undiscoverable_and_internal_modules_are_on_no_card() -> None:
    hidden = ActionModule(echo, annotations=ModuleAnnotations(discoverable=False))
    modules = registry_of({"open": ActionModule(echo), "hidden": hidden})
    modules.register_internal("system.probe", ActionModule(echo))
    async with serving(modules, auth=NameAuthenticator()) as peer, acting_as(peer, "ada") as ada:
        assert await skills_on(peer) == {"open"}
        assert await skills_shown_to(peer, "ada") == [{"open"}]
        assert (await ada.send("system.probe")).code == -32601
