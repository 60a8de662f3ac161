"""Tokens of an OpenID provider decide what their bearers may see and do."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import jwt
import pytest
from a2a.client import A2ACardResolver, A2AClientError
from a2a.types import GetExtendedAgentCardRequest, GetTaskRequest
from a2a.utils.errors import TaskNotFoundError
from apcore import ACL, ACLRule, Context, Executor, Registry
from apcore_a2a_auth import JWTAuthenticator
from apcore_a2a_client import A2AAuthError, A2AClient, A2AError, SyncA2AClient
from cryptography.hazmat.primitives.asymmetric import rsa
from google.protobuf.json_format import MessageToDict
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.e2e.environments import ROOT, python_environment
from tests.e2e.programs import run_steps
from tests.e2e.test_apcore_versions import SOURCES
from tests.e2e.test_sdk_v1 import BINDINGS, COMPLETED, Clients, output, request_to
from tests.server.checking_client import Agent, Json
from tests.serving import running

AUDIENCE = "apcore-agents"
CARD = "/.well-known/agent.json"
EXTENDED = "/agent/authenticatedExtendedCard"
ADA = {"id": "ada", "type": "user", "roles": ["payroll"], "email": "ada@corp.example"}
PAYROLL = ["hello", "payroll.run", "payroll.wait"]
"""The skills that the role "payroll" may call."""
DIALECTS = ["0.3", "1.0", "REST"]


class Issuer:
    """An OpenID provider that publishes its keys and signs tokens."""

    def __init__(self) -> None:
        self.url = ""
        self._key = rsa.generate_private_key(65537, 2048)
        paths = {"/.well-known/openid-configuration": self.discover, "/keys": self.publish}
        self.app = Starlette(routes=[Route(path, page) for path, page in paths.items()])

    async def discover(self, _: Request) -> JSONResponse:
        return JSONResponse({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    async def publish(self, _: Request) -> JSONResponse:
        key: Json = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return JSONResponse({"keys": [{**key, "kid": "1", "use": "sig", "alg": "RS256"}]})

    def token(self, name: str = "ada", *roles: str, life: int = 300, **claims: Any) -> str:
        """Sign a token for the user *name* with these roles, valid for *life* seconds."""
        payload = {"iss": self.url, "aud": AUDIENCE, "sub": name, "exp": int(time.time()) + life}
        payload |= {"roles": [*roles], "email": f"{name}@corp.example", **claims}
        return jwt.encode(payload, self._key, "RS256", headers={"kid": "1"})


class Skill:
    """A skill that returns the identity of its caller."""

    description = "Returns the caller's identity"
    output_schema = None

    def __init__(self, input_schema: Json | None = None) -> None:
        self.input_schema = input_schema

    async def execute(self, inputs: Json, context: "Context[Any]") -> Json:
        caller = context.identity
        assert caller is not None
        identity = {"id": caller.id, "type": caller.type, "roles": [*caller.roles]}
        return {**identity, "email": caller.attrs["email"]}


class WaitingSkill(Skill):
    """A skill that never returns."""

    async def execute(self, inputs: Json, context: "Context[Any]") -> Json:
        await asyncio.Event().wait()
        return inputs


def rule(target: str, *roles: str) -> ACLRule:
    conditions = {"roles": [*roles]} if roles else None
    return ACLRule(["@external"], [target], "allow", conditions=conditions)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    with running(issuer.app) as issuer.url:
        yield issuer


@contextmanager
def serving(issuer: Issuer, **options: Any) -> Iterator[str]:
    """Serve an agent that trusts the issuer and yield its URL."""
    registry, payroll_skill = Registry(), Skill({"properties": {"month": {}, "year": {}}})
    modules = {
        "hello": Skill(),
        "audit": Skill(),
        "payroll.run": payroll_skill,
        "payroll.wait": WaitingSkill(),
    }
    for name, module in modules.items():
        registry.register(name, module)
    acl = ACL([rule("hello"), rule("payroll.*", "payroll"), rule("audit", "auditor")])
    auth = JWTAuthenticator(issuer=issuer.url, audience=AUDIENCE)
    options |= {"auth": auth, "state_history": True}
    with closing(Executor(registry, acl=acl)) as executor, running(executor, **options) as url:
        yield url


@pytest.fixture(scope="module")
def agent_url(issuer: Issuer) -> Iterator[str]:
    with serving(issuer) as url:
        yield url


@pytest.fixture
def http(agent_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=agent_url, timeout=20, trust_env=False) as http:
        yield http


@pytest.fixture
async def bearer(issuer: Issuer, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield an HTTP client with ada's token."""
    headers = bearer_headers(issuer.token("ada", "payroll"))
    async with httpx.AsyncClient(headers=headers, timeout=20, trust_env=False) as http:
        yield http


def bearer_headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def skills(card: Json) -> list[str]:
    return [skill["id"] for skill in card["skills"]]


def send_request(skill: str) -> Json:
    """Return a request of 0.3 that sends a message to *skill*."""
    message = {"messageId": str(uuid4()), "role": "user", "parts": [{"kind": "data", "data": {}}]}
    params = {"message": {"kind": "message", **message}, "metadata": {"skillId": skill}}
    return {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}


# From the public card to the result


def test_a_token_opens_the_extended_card_and_its_skills(http: httpx.Client, issuer: Issuer) -> None:
    public = http.get(CARD).json()
    assert skills(public) == ["hello"]
    bearer = public["securitySchemes"]["bearer"]
    assert (bearer["type"], bearer["scheme"]) == ("http", "bearer")
    discovery_url = public["securitySchemes"]["oidc"]["openIdConnectUrl"]
    assert httpx.get(discovery_url, trust_env=False).json()["issuer"] == issuer.url

    http.headers.update(bearer_headers(issuer.token("ada", "payroll")))
    extended = http.get(EXTENDED).json()
    assert skills(extended) == PAYROLL
    assert extended["securitySchemes"] == public["securitySchemes"]
    task = http.post("/", json=send_request("payroll.run")).json()["result"]
    assert task["artifacts"][0]["parts"][0]["data"] == ADA
    states = task["metadata"]["apcore"]["stateHistory"]
    assert [state["state"] for state in states] == ["submitted", "working"]
    assert {state["principal"] for state in states} == {f"jwt|{issuer.url}|ada"}


@pytest.mark.anyio
@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_sdk_of_1_0_opens_the_extended_card_and_its_skills(
    binding: str, bearer: httpx.AsyncClient, agent_url: str, issuer: Issuer
) -> None:
    card = await A2ACardResolver(bearer, agent_url).get_agent_card()
    assert [skill.id for skill in card.skills] == ["hello"]
    clients = Clients(bearer, card, binding)
    extended = await clients.blocking.get_extended_agent_card(GetExtendedAgentCardRequest())
    assert [skill.id for skill in extended.skills] == PAYROLL
    task = await clients.send(request_to("payroll.run", {}))
    assert (task.status.state, output(task)) == (COMPLETED, ADA)
    (*_, last) = MessageToDict(task)["metadata"]["apcore"]["stateHistory"]
    assert last["principal"] == f"jwt|{issuer.url}|ada"
    for client in (clients.blocking, clients.streaming):
        with pytest.raises(TaskNotFoundError):
            await anext(client.send_message(request_to("audit", {})))
    bearer.headers.update(bearer_headers(issuer.token("ada", "payroll", life=-300)))
    with pytest.raises(A2AClientError, match="401"):
        await clients.blocking.get_task(GetTaskRequest(id=task.id))


SDK_0_3_PROGRAM = """
import asyncio, json, sys
from uuid import uuid4
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import DataPart, Message, Part, Role

def report(step, **result):
    print(json.dumps({"step": step, **result}))

async def main(url, token):
    headers = {"Authorization": "Bearer " + token}
    async with httpx.AsyncClient(headers=headers, timeout=20, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        report("public", skills=[skill.id for skill in card.skills])
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        extended = await client.get_card()
        report("extended", skills=[skill.id for skill in extended.skills])
        part = Part(root=DataPart(data={}))
        message = Message(message_id=str(uuid4()), role=Role.user, parts=[part])
        sent = client.send_message(request=message, request_metadata={"skillId": "payroll.run"})
        ((task, _),) = [event async for event in sent]
        report("task", output=task.artifacts[0].parts[0].root.data)

asyncio.run(main(*sys.argv[1:]))
"""


def test_the_sdk_of_0_3_opens_the_extended_card_and_its_skills(
    agent_url: str, issuer: Issuer
) -> None:
    python = python_environment("sdk-v03", "a2a-sdk==0.3.26")
    token = issuer.token("ada", "payroll")
    steps = run_steps(str(python), "-I", "-W", "error", "-c", SDK_0_3_PROGRAM, agent_url, token)
    assert steps["public"] == {"skills": ["hello"]}
    assert steps["extended"] == {"skills": PAYROLL}
    assert steps["task"] == {"output": ADA}


def test_our_client_opens_the_extended_card_and_its_skills(agent_url: str, issuer: Issuer) -> None:
    token = issuer.token("ada", "payroll")
    with SyncA2AClient(agent_url, auth=f"Bearer {token}") as client:
        assert [skill.id for skill in client.agent_card.skills] == ["hello"]
        extended = [skill.id for skill in client.extended_card().skills]
        assert extended == PAYROLL
        assert client.call("payroll.run", {}) == ADA
        with pytest.raises(A2AError, match="Task not found"):
            client.call("audit", {})


# Refused tokens


@pytest.mark.anyio
async def test_an_expired_token_is_refused_until_it_is_replaced(
    agent_url: str, issuer: Issuer
) -> None:
    tokens = [issuer.token("ada", "payroll", life=life) for life in (-300, 300)]
    async with A2AClient(agent_url, auth=lambda: tokens[0]) as client:
        await client.agent_card
        with pytest.raises(A2AAuthError) as refused:
            await client.call("payroll.run", {})
        assert refused.value.status_code == 401
        assert refused.value.challenge == challenge_for("expired")
        del tokens[0]
        assert await client.call("payroll.run", {}) == ADA


REFUSED: dict[str, tuple[Json, str]] = {
    "expired": ({"life": -300}, "expired"),
    "of another issuer": ({"iss": "https://idp.example.com"}, "wrong issuer"),
    "for another audience": ({"aud": "other-agents"}, "wrong audience"),
    "not yet valid": ({"nbf": int(time.time()) + 3000}, "not valid yet"),
    "without a subject": ({"sub": None}, "no identity"),
}
REASONS = {name: reason for name, (_, reason) in REFUSED.items()} | {
    "malformed": "malformed",
    "signed with another key": "invalid signature",
}


def challenge_for(reason: str) -> str:
    """Return the challenge for a token that is refused for *reason*."""
    return f'Bearer error="invalid_token", error_description="Token refused: {reason}"'


def forged_token(issuer: Issuer) -> str:
    """Return a token in the issuer's name that is signed with another key."""
    forger = Issuer()
    forger.url = issuer.url
    return forger.token("ada", "payroll")


@pytest.mark.parametrize("case", [*REFUSED, "malformed", "signed with another key", "missing"])
def test_a_request_without_a_valid_token_is_refused(
    case: str, http: httpx.Client, issuer: Issuer
) -> None:
    unissued_tokens = {
        "malformed": "no-token.at-all.not-one",
        "signed with another key": forged_token(issuer),
    }
    token = unissued_tokens.get(case) or issuer.token(
        "ada", "payroll", **REFUSED.get(case, ({}, ""))[0]
    )
    if case != "missing":
        http.headers.update(bearer_headers(token))
    message = send_request("payroll.run")
    for answer in (
        http.post("/", json=message),
        http.post("/message:send", json=message["params"]),
        http.get(EXTENDED),
    ):
        assert answer.status_code == 401
        challenge = "Bearer" if case == "missing" else challenge_for(REASONS[case])
        assert answer.headers["www-authenticate"] == challenge
        assert not [word for word in ["payroll", *token.split(".")] if word in answer.text]


@pytest.fixture(params=DIALECTS)
def bob(http: httpx.Client, issuer: Issuer, request: pytest.FixtureRequest) -> Agent:
    """Return the agent, with the token of bob, who may call only `hello`."""
    http.headers.update(bearer_headers(issuer.token("bob")))
    return Agent(http, request.param)


@pytest.mark.parametrize(("operation", "lookup"), [("send", "get"), ("stream", "subscribe")])
def test_a_denied_skill_looks_like_an_unknown_task(operation: str, lookup: str, bob: Agent) -> None:
    unknown = bob.ask(lookup, {"id": "no-such"}).response
    denied = bob.ask(operation, bob.params("payroll.run", bob.part(data={}))).response
    assert b"Task not found" in denied.content
    assert (denied.status_code, denied.content) == (unknown.status_code, unknown.content)
    assert {*denied.headers.items()} ^ {*unknown.headers.items()} <= {
        ("date", answer.headers["date"]) for answer in (denied, unknown)
    }


@pytest.mark.parametrize("part", [{"text": "hello"}, {"raw": "aGk="}])
def test_a_denial_does_not_depend_on_the_message(part: Json, bob: Agent) -> None:
    assert bob.send("payroll.run", bob.part(**part)).code == -32001


def test_a_denial_does_not_reveal_whether_the_skill_is_busy(issuer: Issuer) -> None:
    with serving(issuer, max_runs_per_skill=1) as url, httpx.Client(base_url=url) as http:
        agent = Agent(http, "1.0")
        http.headers.update(bearer_headers(issuer.token("ada", "payroll")))
        agent.start("payroll.wait")
        http.headers.update(bearer_headers(issuer.token("bob")))
        assert agent.send("payroll.wait").code == -32001


# With the oldest and the newest apcore


ACL_PROGRAM = """
import json
import httpx
from apcore import ACL, ACLRule, Executor, Identity, Registry
from apcore_a2a_server import create_app
from tests.serving import PATIENCE, running

PEOPLE = {"ada": Identity("ada", roles=("admin",)), "bob": Identity("bob"),
          "cron": Identity("cron", type="service")}
CONDITIONS = {"open": None, "admin": {"roles": ["admin"]}, "data": {"identity_types": ["service"]}}

class ByName:
    def authenticate(self, headers):
        return PEOPLE.get(headers.get("x-name"))

class Echo:
    description, input_schema, output_schema = "Returns its inputs", None, None
    async def execute(self, inputs, context):
        return inputs

def code(http, skill):
    part = {"kind": "data", "data": {}}
    message = {"kind": "message", "messageId": "m", "role": "user", "parts": [part]}
    params = {"message": message, "metadata": {"skillId": skill}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
    return http.post("/", json=body).json().get("error", {}).get("code")

registry = Registry()
for name in (*CONDITIONS, "closed"):
    registry.register(name, Echo())
rules = [ACLRule(["@external"], [name], "allow", "", when) for name, when in CONDITIONS.items()]
executor = Executor(registry, acl=ACL(rules, default_effect="deny"))
with running(executor, auth=ByName()) as url:
    for name in ("", *PEOPLE):
        page = "/agent/authenticatedExtendedCard" if name else "/.well-known/agent-card.json"
        with httpx.Client(base_url=url, headers={"x-name": name}, timeout=PATIENCE) as http:
            shown = [skill["id"] for skill in http.get(page).json()["skills"]]
            codes = {skill: code(http, skill) for skill in registry.list()} if name else {}
        print(json.dumps({"step": name, "shown": shown, "codes": codes}))
"""
ALLOWED = {"ada": {"open", "admin"}, "bob": {"open"}, "cron": {"open", "data"}}


@pytest.fixture(scope="module", params=["0.22.0", "newest"])
def steps(request: pytest.FixtureRequest) -> Any:
    """Return the skills that each caller sees and may call with one version of apcore."""
    python = Path(sys.executable)
    if request.param != "newest":
        apcore = f"apcore=={request.param}"
        python = python_environment(f"apcore-{request.param}", apcore, sources=SOURCES)
    return run_steps(str(python), "-c", ACL_PROGRAM, cwd=ROOT)


def test_cards_and_calls_follow_the_acl_with_each_version_of_apcore(steps: Any) -> None:
    assert steps[""]["shown"] == ["open"]
    for name, allowed in ALLOWED.items():
        codes = steps[name]["codes"]
        assert len(codes) == 4
        assert {skill for skill, code in codes.items() if code != -32001} == allowed
        assert {*steps[name]["shown"]} == allowed
