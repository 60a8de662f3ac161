"""Tenants: skills that are served as agents of their own."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, new_data_message
from a2a.server.context import ServerCallContext
from a2a.types import AgentCard, GetTaskRequest, Role, SendMessageRequest
from a2a.utils.errors import InvalidParamsError
from apcore import ACL, ACLRule, Executor, Identity
from apcore_a2a_auth import api_key
from apcore_a2a_client import A2AClient, Message
from apcore_a2a_server import create_app
from apcore_a2a_server.bindings.sdk_handler import request_handler
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.modules.tenants import Tenant, owner_of, principal_and_tenant
from apcore_a2a_server.push import PushSettings
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.serving import PATIENCE, running

from .checking_client import MODERN, Answer, Json
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    echo,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio

CARD = "/.well-known/agent-card.json"
TENANTS = {"billing": "billing.ask", "tea": "kitchen.tea"}
BINDINGS = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]
UNKNOWN_TASK, WRONG_PARAMS = -32001, -32602


async def echo_or_ask(inputs: Any, context: Any) -> Any:
    if inputs["text"] == "ask":
        context.services.ask("And then?", field="text")
    return inputs


def modules() -> dict[str, object]:
    description = "Answers questions about bills."
    return {
        "billing.ask": ActionModule(echo_or_ask, description=description),
        "kitchen.tea": ActionModule(echo),
        "other": ActionModule(echo),
    }


class HeaderAuth:
    """An authenticator that trusts the name in a header."""

    def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        return Identity(headers["x-name"]) if headers.get("x-name") else None


@asynccontextmanager
async def inside(peer: Peer, tenant: str, **headers: str) -> AsyncIterator[Peer]:
    """Yield a client of a tenant."""
    url = f"{str(peer.client.base_url).rstrip('/')}/{tenant}"
    async with httpx.AsyncClient(
        base_url=url, headers=headers, trust_env=False, timeout=PATIENCE
    ) as client:
        yield Peer(peer.app, client, peer.dialect)


def send_params(peer: Peer, text: str = "hello", **members: Any) -> Json:
    """Return the params of a send that names no skill."""
    return {"message": peer.wire.params("", peer.part(text=text), **members)["message"]}


@pytest.fixture(params=DIALECTS)
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    options: Json = {"tenants": TENANTS, "push_notifications": PushSettings(dev=True)}
    async with serving(modules(), request.param, **options) as peer:
        yield peer


async def listed_ids(peer: Peer, **params: Any) -> set[str]:
    """Return the ids of the tasks that are listed."""
    return {task["id"] for task in (await peer.ask("list", params)).result["tasks"]}


async def test_the_card_of_a_tenant_shows_its_skill_alone() -> None:
    async with serving(modules(), tenants=TENANTS, url="https://agent.example/a") as peer:
        card = (await peer.client.get(f"/billing{CARD}")).json()
        assert (await peer.client.get("/billing/.well-known/agent.json")).json() == card
        root = (await peer.client.get(CARD)).json()

    assert (card["name"], card["description"]) == ("Billing Ask", "Answers questions about bills.")
    assert [skill["id"] for skill in card["skills"]] == ["billing.ask"]
    interfaces = card["supportedInterfaces"]
    assert [
        (entry["protocolBinding"], entry["protocolVersion"]) for entry in interfaces
    ] == BINDINGS
    assert {entry["tenant"] for entry in interfaces} == {"billing"}
    agent_url, tenant_url = "https://agent.example/a/", "https://agent.example/a/billing/"
    assert [entry["url"] for entry in interfaces] == [agent_url, tenant_url] * 2
    assert card["url"] == tenant_url
    assert {entry["url"] for entry in card["additionalInterfaces"]} == {tenant_url}
    assert [skill["id"] for skill in root["skills"]] == [*modules()]
    assert not any("tenant" in entry for entry in root["supportedInterfaces"])


async def test_a_message_to_a_tenant_needs_no_skill_id(peer: Peer) -> None:
    async with inside(peer, "billing") as billing:
        sent = await billing.ask("send", send_params(billing))
        assert sent.task["metadata"]["skillId"] == "billing.ask"
        assert sent.data == {"text": "hello"}
        params = {**send_params(billing), "metadata": {"skillId": "billing.ask"}}
        assert (await billing.ask("send", params)).state == "completed"
        async with billing.streaming("stream", send_params(billing)) as stream:
            assert (await stream.rest())[-1].state == "completed"


@pytest.mark.parametrize("skill", ["other", "kitchen.tea", "no.such"])
async def test_a_tenant_refuses_other_skills(peer: Peer, skill: str) -> None:
    async with inside(peer, "billing") as billing:
        skill_choice = {"metadata": {"skillId": skill}}
        in_message = {"message": {**send_params(billing)["message"], **skill_choice}}
        for params in ({**send_params(billing), **skill_choice}, in_message):
            answer = await billing.ask("send", params)
            assert (answer.code, answer.fields) == (WRONG_PARAMS, ["metadata.skillId"])


async def test_the_tasks_of_a_tenant_are_seen_only_through_it(peer: Peer) -> None:
    async with inside(peer, "billing") as billing, inside(peer, "tea") as tea:
        params = send_params(billing, "ask")
        paused = (await billing.ask("send", params)).task
        task_id, context_id = paused["id"], paused["contextId"]
        hook = {"taskId": task_id, "id": "hook", "url": "http://127.0.0.1:9/"}
        if peer.dialect == "0.3":
            hook = {"taskId": task_id, "pushNotificationConfig": {"id": "hook", "url": hook["url"]}}
        assert (await billing.ask("push set", hook)).code is None
        config_key = "pushNotificationConfigId" if peer.dialect == "0.3" else "id"
        task_key = "id" if peer.dialect == "0.3" else "taskId"
        requests = {
            "get": {"id": task_id},
            "cancel": {"id": task_id},
            "subscribe": {"id": task_id},
            "push set": hook,
            "push get": {task_key: task_id, config_key: "hook"},
            "push list": {task_key: task_id},
            "push delete": {task_key: task_id, config_key: "hook"},
            "send": send_params(peer, "yes", taskId=task_id),
        }
        for other_peer in (peer, tea):
            for operation, params in requests.items():
                answer = await other_peer.ask(operation, params)
                assert answer.code == UNKNOWN_TASK, (operation, other_peer.client.base_url)
            assert task_id not in await listed_ids(other_peer)
            # the context does not lead to the task either
            skill_choice = {"metadata": {"skillId": "billing.ask"}} if other_peer is peer else {}
            new_params = {**send_params(other_peer, contextId=context_id), **skill_choice}
            assert (await other_peer.ask("send", new_params)).task["id"] != task_id
        assert await listed_ids(billing) == {task_id}
        assert (await billing.get(task_id))["status"]["state"] == paused["status"]["state"]
        assert (await billing.ask("push get", requests["push get"])).code is None
        answered = await billing.ask("send", send_params(billing, "yes", taskId=task_id))
        assert (answered.state, answered.task["id"]) == ("completed", task_id)


async def test_the_tasks_of_the_agent_are_not_seen_through_a_tenant(peer: Peer) -> None:
    task_id = (await peer.send("billing.ask")).task["id"]
    async with inside(peer, "billing") as billing:
        assert (await billing.ask("get", {"id": task_id})).code == UNKNOWN_TASK
        assert await listed_ids(billing) == set()
    assert task_id in await listed_ids(peer)


async def test_a_running_task_of_a_tenant_is_followed_and_canceled_through_it() -> None:
    gate = Gate()
    async with (
        serving(
            {"work": ActionModule(gate), "other": ActionModule(echo)}, tenants={"w": "work"}
        ) as peer,
        inside(peer, "w") as tenant,
    ):
        options = {"configuration": {"returnImmediately": True}}
        task = (await tenant.ask("send", {**send_params(tenant), **options})).task
        async with tenant.subscribe(task["id"]) as stream:
            await stream.next()
            assert (await tenant.ask("cancel", {"id": task["id"]})).state == "canceled"
            assert (await stream.rest())[-1].state == "canceled"


async def post(peer: Peer, path: str, method: str, params: Json) -> Answer:
    """Call a method of JSON-RPC at *path*."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {} if "/" in method else MODERN
    return Answer(await peer.client.post(path, json=body, headers=headers))


@pytest.mark.parametrize("path", ["/", "/billing", "/billing/"])
async def test_params_may_name_the_tenant(path: str) -> None:
    async with serving(modules(), tenants=TENANTS) as peer:
        params = {**send_params(peer), "tenant": "billing"}
        sent = (await post(peer, path, "SendMessage", params)).task
        for method in ("GetTask", "tasks/get"):
            answer = await post(peer, path, method, {"id": sent["id"], "tenant": "billing"})
            assert answer.task["id"] == sent["id"]
        listed = await post(peer, path, "ListTasks", {"tenant": "billing"})
        assert [task["id"] for task in listed.result["tasks"]] == [sent["id"]]
        rest = await peer.client.post("/message:send", json=params)
        assert rest.json()["task"]["metadata"]["skillId"] == "billing.ask"
        fetched = await peer.client.get(f"/tasks/{sent['id']}", params={"tenant": "billing"})
        assert fetched.json()["id"] == sent["id"]


@pytest.mark.parametrize("tenants", [None, TENANTS], ids=["none", "some"])
async def test_an_unknown_tenant_is_refused(tenants: Json | None) -> None:
    async with serving(modules(), tenants=tenants, default_skill="other") as peer:
        for name in ("acme", "other", "billing.ask", "v1x"):
            for params in ({**send_params(peer), "tenant": name}, {"id": "x", "tenant": name}):
                method = "SendMessage" if "message" in params else "GetTask"
                answer = await post(peer, "/", method, params)
                assert (answer.code, answer.fields) == (WRONG_PARAMS, ["params.tenant"])
            refused = await peer.client.post(
                "/message:send", json={**send_params(peer), "tenant": name}
            )
            assert refused.status_code == 400
            for path in ("message:send", "v1/message:send", "", "tasks/x:cancel"):
                response = await peer.client.post(f"/{name}/{path}", json=send_params(peer))
                assert response.status_code == 404, path
            for path in ("tasks", "v1/tasks", CARD[1:], "extendedAgentCard", "health", ""):
                assert (await peer.client.get(f"/{name}/{path}")).status_code == 404, path


async def test_a_tenant_in_the_path_and_another_in_the_params_are_refused() -> None:
    async with serving(modules(), tenants=TENANTS) as peer:
        for tenant in ("tea", "acme"):
            params = {**send_params(peer), "tenant": tenant}
            assert (await post(peer, "/billing", "SendMessage", params)).code == WRONG_PARAMS
            refused = await peer.client.post("/billing/message:send", json=params)
            assert refused.status_code == 400


async def test_a_tenant_has_no_pages_of_the_agent() -> None:
    options: Json = {"tenants": TENANTS, "metrics": True, "explorer": True}
    async with serving(modules(), **options) as peer:
        for page in ("health", "metrics", "explorer", "billing", "tea/tasks"):
            assert (await peer.client.get(f"/billing/{page}")).status_code == 404, page
        landing = await peer.client.get("/billing", headers={"Accept": "text/html"})
        assert (landing.status_code, landing.headers["allow"]) == (405, "POST")
        assert (await peer.client.get("/health")).status_code == 200


@pytest.mark.parametrize("tenants", ["skills", ["skills"], ("skills",)], ids=str)
async def test_each_skill_may_be_a_tenant(tenants: Any) -> None:
    registry = registry_of(modules())
    async with serving(registry, tenants=tenants) as peer:
        for skill in modules():
            async with inside(peer, skill) as tenant:
                assert (await tenant.ask("send", send_params(tenant))).state == "completed"
        registry.register("later", ActionModule(echo))
        card = (await peer.client.get(f"/later{CARD}")).json()
        assert [skill["id"] for skill in card["skills"]] == ["later"]
        registry.unregister("later")
        assert (await peer.client.get(f"/later{CARD}")).status_code == 404


@pytest.mark.parametrize(
    ("tenants", "problem"),
    [
        ({"v1": "other"}, "can't have the name 'v1'"),
        ({"tasks": "other"}, "can't have the name 'tasks'"),
        ({"health": "other"}, "can't have the name 'health'"),
        ({"agent": "other"}, "can't have the name 'agent'"),
        ({"extendedAgentCard": "other"}, "can't have the name 'extendedAgentCard'"),
        ({"page": "other"}, "can't have the name 'page'"),
        ({"a/b": "other"}, "not 'a/b'"),
        ({"message:send": "other"}, "not 'message:send'"),
        ({".well-known": "other"}, "not '.well-known'"),
        ({"": "other"}, "not ''"),
        ({"ü": "other"}, "not 'ü'"),
        ({5: "other"}, "not 5"),
        ({"billing": "no.such"}, "has no skill for 'billing'"),
        ({"billing": "hidden"}, "has no skill for 'billing'"),
        ({"billing": ""}, "needs the id of a skill for 'billing'"),
        ({"billing": ["other"]}, "needs the id of a skill for 'billing'"),
        ("skill", "must map names to skills, or be 'skills'"),
        (5, "must map names to skills, or be 'skills'"),
        (["billing"], "takes NAME=SKILL, or 'skills', not 'billing'"),
        (["billing=other", "billing=tea"], "has 'billing' twice"),
        (["skills", "billing=other"], "takes 'skills' alone, for every skill, or NAME=SKILL"),
        (["billing=other", "skills"], "takes 'skills' alone, for every skill, or NAME=SKILL"),
        ({"a" * 256: "other"}, "at most 255 characters: 'aaaaaaaaaaaaaaaaaaaa…' has 256; choose"),
    ],
    ids=str,
)
async def test_a_wrong_tenant_is_an_error_at_start(tenants: Any, problem: str) -> None:
    hidden = ActionModule(echo, annotations={"discoverable": False})
    registry = registry_of({"other": ActionModule(echo)})
    registry.register("hidden", hidden, metadata={"annotations": {"discoverable": False}})
    with pytest.raises(OptionError, match=r"^tenants ") as caught:
        create_app(registry, tenants=tenants, explorer_path="/page")
    assert problem in str(caught.value)


def test_a_skill_named_like_a_path_needs_a_tenant_of_another_name() -> None:
    registry = registry_of({"health": ActionModule(echo)})
    with pytest.raises(OptionError, match="map another name to the skill"):
        create_app(registry, tenants="skills")
    create_app(registry, tenants={"wellness": "health"})


def rules() -> ACL:
    allowed = ["kitchen.tea", "other"]
    everyone = ACLRule(["@external"], allowed, effect="allow")
    staff = {"identity_types": ["user"], "roles": ["staff"]}
    return ACL(
        [everyone, ACLRule(["@external"], ["billing.ask"], effect="allow", conditions=staff)],
        default_effect="deny",
    )


class Staff(HeaderAuth):
    """An authenticator that gives `ada` the role `staff`."""

    def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        identity = super().authenticate(headers)
        is_staff = identity is not None and identity.id == "ada"
        return Identity("ada", roles=("staff",)) if is_staff else identity


@asynccontextmanager
async def guarded(tenants: Any = "skills", **options: Any) -> AsyncIterator[Peer]:
    gated = ActionModule(echo, annotations=NEEDS_APPROVAL)
    registry = registry_of({**modules(), "gated": gated})
    with closing(Executor(registry, acl=rules())) as executor:
        async with serving(executor, **{"tenants": tenants, "auth": Staff(), **options}) as peer:
            yield peer


PROBES = [
    ("GET", CARD),
    ("HEAD", CARD),
    ("GET", ""),
    ("GET", "/"),
    ("POST", ""),
    ("POST", "/message:send"),
    ("POST", "/v1/message:send"),
    ("GET", "/tasks"),
    ("GET", "/tasks/x"),
    ("GET", "/v1/tasks/x"),
    ("GET", "/extendedAgentCard"),
    ("GET", "/agent/authenticatedExtendedCard"),
    ("GET", "/health"),
    ("GET", "/x/y"),
    ("DELETE", "/"),
]


@pytest.mark.parametrize("name", ["", "eve"])
async def test_a_tenant_that_a_caller_may_not_call_looks_like_an_unknown_one(name: str) -> None:
    async with guarded() as peer:
        headers = {"x-name": name}
        for verb, path in PROBES:
            responses = {
                tenant: await peer.client.request(verb, f"/{tenant}{path}", headers=headers)
                for tenant in ("billing.ask", "no.such.skill")
            }
            (hidden, unknown) = (
                (response.status_code, sorted(response.headers.items()), response.text)
                for response in responses.values()
            )
            assert hidden == unknown, (verb, path)
            assert hidden[0] in (401, 404)
        if name:
            answers = [
                (await peer.ask("get", {"id": "x", "tenant": tenant}, headers)).error
                for tenant in ("billing.ask", "no.such.skill")
            ]
            assert answers[0] == answers[1]


async def test_a_tenant_needs_credentials_except_for_its_public_card() -> None:
    async with guarded(TENANTS) as peer:
        assert (await peer.client.get(f"/tea{CARD}")).status_code == 200
        for path in ("/tea/tasks", "/tea/message:send", "/tea/v1/tasks", "/tea", "/tea/health"):
            for verb in ("GET", "POST"):
                assert (await peer.client.request(verb, path)).status_code == 401, path


class NamesAsKeys(Staff):
    """An authenticator for which the name in the header is an API key, of `ada` alone."""

    def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        return super().authenticate(headers) if headers.get("x-name") == "ada" else None

    def security_schemes(self) -> Json:
        return {"key": api_key("X-Name")}


async def test_wrong_keys_are_refused_and_counted_at_the_cards_of_tenants_too() -> None:
    async with guarded(auth=NamesAsKeys(), auth_rate_limit="5/minute") as peer:
        paths = [f"/{tenant}{CARD}" for tenant in ("kitchen.tea", "billing.ask", "no.such.skill")]
        for path in paths:
            assert (await peer.client.get(path)).status_code == (200 if "tea" in path else 404)
        for headers, statuses in ((None, {200, 404}), ({"x-name": "eve"}, {401, 429})):
            for number in range(9):
                card = await peer.client.get(paths[number % 3], headers=headers)
                assert card.status_code in statuses
        assert card.status_code == 429
        card = await peer.client.get(paths[1], headers={"x-name": "ada"})
        assert card.status_code == 200


async def test_callers_see_the_card_of_a_tenant_that_they_may_call() -> None:
    async with guarded({**TENANTS, "gated": "gated"}) as peer:
        for name, is_allowed in (("", False), ("eve", False), ("ada", True)):
            card = await peer.client.get(f"/billing{CARD}", headers={"x-name": name})
            assert card.status_code == (200 if is_allowed else 404)
        assert card.json()["capabilities"]["extendedAgentCard"] is True
        assert card.headers["cache-control"] == "private, no-store"
        rest_card = await peer.client.get("/billing/extendedAgentCard", headers={"x-name": "ada"})
        assert rest_card.json() == card.json()
        params = {"tenant": "billing"}
        rpc_answer = await peer.ask("card", params, {"x-name": "ada"})
        assert rpc_answer.result == card.json()
        public_card = await peer.client.get(f"/tea{CARD}", headers={"x-name": "eve"})
        assert public_card.headers["cache-control"] == "max-age=300"


async def test_principals_of_a_tenant_do_not_see_each_others_tasks() -> None:
    async with (
        serving(modules(), tenants=TENANTS, auth=HeaderAuth()) as peer,
        inside(peer, "billing", **{"x-name": "ada"}) as ada,
    ):
        task_id = (await ada.ask("send", send_params(ada))).task["id"]
        for name in ("eve", "%tenant|billing|ada", "tenant|billing|ada", "billing|ada"):
            for tenant in ("billing", "tea", ""):
                async with inside(peer, tenant, **{"x-name": name}) as eve:
                    assert (await eve.ask("get", {"id": task_id})).code == UNKNOWN_TASK
        assert (await ada.get(task_id))["id"] == task_id


async def test_a_rate_limit_counts_requests_of_all_tenants() -> None:
    async with serving(modules(), tenants=TENANTS, rate_limit="3/hour") as peer:
        paths = ("/tasks", "/billing/tasks", "/tea/v1/tasks", "/billing/tasks", "/tasks")
        statuses = [(await peer.client.get(path)).status_code for path in paths]
        assert statuses == [200, 200, 200, 429, 429]


async def test_a_limit_per_client_counts_runs_of_all_tenants() -> None:
    gate = Gate()
    options: Json = {"tenants": {"w": "work"}, "max_runs_per_client": 1}
    async with (
        serving({"work": ActionModule(gate)}, **options) as peer,
        inside(peer, "w") as tenant,
    ):
        params = {**send_params(tenant), "configuration": {"returnImmediately": True}}
        await tenant.ask("send", params)
        params["metadata"] = {"skillId": "work"}
        assert (await peer.client.post("/message:send", json=params)).status_code == 429
        gate.opened.set()


@pytest.mark.parametrize("principal", ["", "ada", "https://idp|a|b", "%25", "a%7Cb"])
def test_principal_and_tenant_can_be_read_from_an_owner(principal: str) -> None:
    tenant = Tenant("billing", "billing.ask")
    owner = owner_of(tenant, principal)
    assert principal_and_tenant(owner, "billing.ask") == (principal, tenant)
    assert principal_and_tenant(principal, "billing.ask") == (principal, None)


async def test_tasks_of_a_tenant_survive_a_restart(tmp_path: Path) -> None:
    options: Json = {"tenants": TENANTS, "task_store": f"sqlite:///{tmp_path / 'tasks.db'}"}
    async with serving(modules(), **options) as peer, inside(peer, "billing") as billing:
        task_id = (await billing.ask("send", send_params(billing, "ask"))).task["id"]
    async with serving(modules(), **options) as peer, inside(peer, "billing") as billing:
        answered = await billing.ask("send", send_params(billing, "yes", taskId=task_id))
        assert answered.state == "completed"
        assert (await peer.ask("get", {"id": task_id})).code == UNKNOWN_TASK


async def test_state_history_names_the_principal_without_the_tenant() -> None:
    options: Json = {"tenants": TENANTS, "auth": HeaderAuth(), "state_history": True}
    async with (
        serving(modules(), **options) as peer,
        inside(peer, "billing", **{"x-name": "ada"}) as ada,
    ):
        task = (await ada.ask("send", send_params(ada))).task
        history = task["metadata"]["apcore"]["stateHistory"]
        assert {state["principal"] for state in history} == {"ada"}


async def test_an_agent_that_is_mounted_has_tenants() -> None:
    app = create_app(registry_of(modules()), tenants=TENANTS)
    site = Starlette(routes=[Mount("/below", app)])
    transport = httpx.ASGITransport(site)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://agent.example/below") as client,
    ):
        card = (await client.get(f"/billing{CARD}")).json()
        assert card["url"] == "http://agent.example/below/billing/"
        assert card["supportedInterfaces"][0]["url"] == "http://agent.example/below/"
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
        sent = await client.post("/billing/message:send", json=body)
        assert sent.json()["task"]["metadata"]["skillId"] == "billing.ask"


# Clients


async def test_our_client_uses_a_tenant_by_its_url() -> None:
    with running(registry_of(modules()), tenants=TENANTS) as url:
        async with A2AClient(f"{url}/billing") as client:
            card = await client.get_card()
            assert card.supported_interfaces[0].tenant == "billing"
            task = await client.send_message("hello")
            assert not isinstance(task, Message)
            assert task.value == {"text": "hello"}
            assert (await client.get_task(task.id)).id == task.id
            assert [listed.id async for listed in client.iter_tasks()] == [task.id]
            assert await client.call("billing.ask", "again") == {"text": "again"}
        async with A2AClient(url) as client:
            assert [listed.id async for listed in client.iter_tasks()] == []


@pytest.mark.parametrize(("protocol", "version"), BINDINGS)
async def test_the_official_client_uses_a_tenant_by_its_card(protocol: str, version: str) -> None:
    with running(registry_of(modules()), tenants=TENANTS) as url:
        await use_with_the_sdk(f"{url}/billing", protocol, version)


async def use_with_the_sdk(url: str, protocol: str, version: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        card: AgentCard = await A2ACardResolver(http, url).get_agent_card()
        chosen = [
            interface
            for interface in card.supported_interfaces
            if (interface.protocol_binding, interface.protocol_version) == (protocol, version)
        ]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        config = ClientConfig(
            streaming=False, httpx_client=http, supported_protocol_bindings=[protocol]
        )
        client = ClientFactory(config).create(card)
        request = SendMessageRequest(
            message=new_data_message({"text": "hello"}, role=Role.ROLE_USER)
        )
        (event,) = [event async for event in client.send_message(request)]
        (artifact,) = event.task.artifacts
        assert get_data_parts(artifact.parts) == [{"text": "hello"}]
        fetched = await client.get_task(GetTaskRequest(id=event.task.id))
        assert fetched.id == event.task.id


async def test_the_sdks_request_handler_knows_tenants() -> None:
    async with serving(modules(), tenants=TENANTS) as peer:
        handler = request_handler(peer.app)
        request = SendMessageRequest(
            tenant="billing", message=new_data_message({"text": "hi"}, role=Role.ROLE_USER)
        )
        task = await handler.on_message_send(request, ServerCallContext())
        assert task.metadata["skillId"] == "billing.ask"
        get_request = GetTaskRequest(id=task.id, tenant="billing")
        assert (await handler.on_get_task(get_request, ServerCallContext())).id == task.id
        with pytest.raises(InvalidParamsError):
            await handler.on_get_task(GetTaskRequest(id=task.id, tenant="x"), ServerCallContext())
