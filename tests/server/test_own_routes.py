"""The agent's own routes below `/apcore/`: access, errors, identities and figures."""

import asyncio
import os
import re
import socket
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from apcore import Identity
from apcore_a2a_auth import APIKeyAuthenticator, JWTAuthenticator
from apcore_a2a_server import create_app
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.store import InMemoryTaskStore, TaskRecord, UnavailableError
from apcore_a2a_server.store.operator_port import OpenTasks
from apcore_a2a_server.store.testing import begun, new_record
from apcore_a2a_server.store.testing.webhook_checks import claim_due, hook
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.serving import PATIENCE

from .checking_client import Json
from .inloop import (
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    SyncActionModule,
    echo,
    listening,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .test_custom_stores import DictStore
from .test_metrics import FINAL

pytestmark = pytest.mark.anyio

WHOAMI, SKILLS, NOW = "/apcore/whoami", "/apcore/skills", "/apcore/now"
LEASES = "/apcore/leases"
ADA, OP, BOSS, BOTH = (
    {"x-api-key": f"the key of {name}"} for name in ("ada", "op", "boss", "both")
)
SECRET = "a secret of more than thirty-two bytes"


def keys() -> APIKeyAuthenticator:
    return APIKeyAuthenticator(
        {
            ADA["x-api-key"]: Identity("ada", roles=("payer",)),
            OP["x-api-key"]: Identity("op", roles=("operator",)),
            BOSS["x-api-key"]: Identity("boss", roles=("boss",)),
            BOTH["x-api-key"]: Identity("both", roles=("operator", "boss")),
        }
    )


def modules() -> dict[str, object]:
    return {"work": ActionModule(echo)}


async def crash(inputs: Inputs, context: Any) -> Any:
    raise ValueError("secret")


async def read(peer: Peer, path: str, headers: Mapping[str, str] | None = None) -> Json:
    response = await peer.client.get(path, headers=headers)
    assert response.status_code == 200, response.text
    assert "no-store" in response.headers["cache-control"]
    document: Json = response.json()
    return document


async def read_identity(peer: Peer, headers: Mapping[str, str] | None = None) -> Json:
    return await read(peer, WHOAMI, headers)


async def test_without_authentication_every_caller_is_an_operator() -> None:
    async with serving(modules()) as peer:
        assert await read_identity(peer) == {
            "authenticated": False,
            "principal": None,
            "roles": [],
            "operator": True,
            "operatorReads": "content",
            "approver": False,
            "expiresAt": None,
        }


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (ADA, ("ada", ["payer"], False, None, False)),
        (OP, ("op", ["operator"], True, "state", False)),
        (BOSS, ("boss", ["boss"], False, None, True)),
        (BOTH, ("both", ["operator", "boss"], True, "state", True)),
    ],
)
async def test_callers_learn_their_identity_and_their_rights(
    headers: Mapping[str, str], expected: tuple[Any, ...]
) -> None:
    name, *rest = expected
    async with serving(modules(), auth=keys(), operators="operator", approvers="boss") as peer:
        identity = await read_identity(peer, headers)
    members = ("principal", "roles", "operator", "operatorReads", "approver")
    assert [identity[member] for member in members] == [f"apikey|{name}", *rest]
    assert (identity["authenticated"], identity["expiresAt"]) == (True, None)


async def test_operators_learn_that_they_may_read_content() -> None:
    options: Json = {"auth": keys(), "operators": "operator", "operators_read": "content"}
    async with serving(modules(), **options) as peer:
        assert (await read_identity(peer, OP))["operatorReads"] == "content"
        assert (await read_identity(peer, ADA))["operatorReads"] is None


async def test_callers_learn_when_their_token_expires() -> None:
    expiry = int(time.time()) + 60
    authenticator = JWTAuthenticator(SECRET, audience="agent", required_claims=())
    claims = {"sub": "ada", "aud": "agent"}
    tokens = [
        jwt.encode({**claims, **expiry_claims}, SECRET, algorithm="HS256")
        for expiry_claims in ({"exp": expiry}, {})
    ]
    async with serving(modules(), auth=authenticator) as peer:
        answers = [
            await read_identity(peer, {"authorization": f"Bearer {token}"}) for token in tokens
        ]
    expected = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(expiry))
    assert [answer["expiresAt"] for answer in answers] == [expected, None]


class AnyToken:
    """An authenticator that accepts every bearer token."""

    def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        return Identity("ada") if "authorization" in headers else None


@pytest.mark.parametrize(
    "claims",
    [
        *("", "{}", "[]", "no JSON", '{"exp": "x"}', '{"exp": 1e99}', '{"exp": NaN}', "\xff"),
        "[" * 40_000,
    ],
    ids=lambda claims: claims[:15],
)
async def test_the_expiry_of_a_token_without_a_valid_exp_claim_is_unknown(claims: str) -> None:
    payload = urlsafe_b64encode(claims.encode("latin-1")).decode().rstrip("=")
    async with serving(modules(), auth=AnyToken()) as peer:
        for token in (f"a.{payload}.c", f"opaque{payload}"):
            assert (await read_identity(peer, {"authorization": f"Bearer {token}"}))[
                "expiresAt"
            ] is None


async def test_a_request_without_credentials_is_refused_as_on_other_paths() -> None:
    async with serving(modules(), auth=keys()) as peer:
        own_route, other_route = [await peer.client.get(path) for path in (WHOAMI, "/tasks")]
    assert (own_route.status_code, own_route.json()) == (
        other_route.status_code,
        other_route.json(),
    )
    assert own_route.status_code == 401


async def test_a_request_for_another_host_is_refused() -> None:
    async with serving(modules(), allowed_hosts=["localhost"]) as peer:
        responses = [
            await peer.client.get(WHOAMI, headers={"host": host})
            for host in ("evil.example", "localhost")
        ]
    assert [response.status_code for response in responses] == [421, 200]


async def test_requests_count_towards_the_rate_limit() -> None:
    async with serving(modules(), rate_limit="2/minute") as peer:
        statuses = [(await peer.client.get(WHOAMI)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


async def test_errors_for_unknown_paths_and_methods_have_a_code() -> None:
    async with serving(modules()) as peer:
        missing = await peer.client.get("/apcore/nothing")
        wrong = await peer.client.delete(WHOAMI)
        head = await peer.client.head(WHOAMI)
        get = await peer.client.get(WHOAMI)
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "NOT_FOUND"
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")
    assert wrong.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
    assert (head.status_code, head.content) == (200, b"")
    assert get.headers["content-type"] == "application/json"
    assert head.headers["content-length"] == get.headers["content-length"]
    assert all(
        "no-store" in response.headers["cache-control"] for response in (missing, wrong, head)
    )


async def test_a_large_body_is_refused() -> None:
    async with serving(modules(), max_body=10_000) as peer:
        response = await peer.client.request("GET", WHOAMI, content=b"x" * 10_001)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "CONTENT_TOO_LARGE")


async def test_the_routes_are_below_the_path_at_which_the_agent_is_mounted() -> None:
    agent = create_app(registry_of(modules()), allowed_hosts=["*"])
    site = Starlette(routes=[Mount("/agents/one", agent)])
    async with listening(site) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        statuses = [
            (await client.get(prefix + WHOAMI)).status_code for prefix in ("/agents/one", "")
        ]
    assert statuses == [200, 404]


async def test_the_routes_belong_to_the_agent_and_not_to_its_tenants() -> None:
    async with serving(modules(), tenants={"work": "work"}, auth=keys()) as peer:
        assert (await read_identity(peer, ADA))["principal"] == "apikey|ada"
        response = await peer.client.get("/work/apcore/whoami", headers=ADA)
    assert response.status_code == 404


def test_no_tenant_and_no_page_can_take_the_path_apcore() -> None:
    with pytest.raises(OptionError, match="can't have the name 'apcore'"):
        create_app(registry_of(modules()), tenants={"apcore": "work"})
    for path in ("/apcore", "/apcore/page"):
        with pytest.raises(OptionError, match=re.escape(f"the agent itself is at {path}")):
            create_app(registry_of(modules()), explorer=True, explorer_path=path)


# Figures of skills


async def test_the_figures_of_skills_cover_every_kind_of_outcome() -> None:
    gate = Gate()
    sources = {
        **modules(),
        "crash": ActionModule(crash),
        "gate": ActionModule(gate),
        "slow": ActionModule(Gate(), resources={"timeout": 50}),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
        "unused": ActionModule(echo),
    }
    async with serving(sources, explorer=True) as peer:
        completed = [(await peer.send()).task["id"] for _ in range(7)]
        failed = [(await peer.send("crash")).task["id"] for _ in range(2)]
        await peer.send("slow")
        paused = [(await peer.send("pay")).task["id"] for _ in range(2)]
        await peer.send("pay", peer.part(text="no"), taskId=paused[0])
        running = [await peer.start("gate") for _ in range(3)]
        await peer.ask("cancel", {"id": running[0]})
        document = await read(peer, SKILLS)
        gate.opened.set()

    skills = {skill.pop("id"): skill for skill in document["skills"]}
    assert document["scope"] == "process"
    assert document["since"] <= document["at"]
    assert {name: (skill["running"], skill["runs"]) for name, skill in skills.items()} == {
        "work": (0, 7),
        "crash": (0, 2),
        "slow": (0, 1),
        "pay": (0, 1),
        "gate": (2, 1),
    }
    work, broken = skills["work"], skills["crash"]
    assert (work["failed"], work["errors"], work["failures"]) == (0, {}, [])
    assert sum(work["perMinute"]) == 7
    assert {len(skill["perMinute"]) for skill in skills.values()} == {60}
    assert 0 <= work["p50Seconds"] <= work["p95Seconds"] <= work["p99Seconds"] < 60
    assert len(work["slowest"]) == 5
    assert {run["taskId"] for run in work["slowest"]} < {*completed}
    assert {run["state"] for run in work["slowest"]} == {"completed"}
    assert (broken["failed"], sum(broken["failedPerMinute"])) == (2, 2)
    assert broken["errors"] == {"MODULE_EXECUTE_ERROR": 2}
    assert [failure["taskId"] for failure in broken["failures"]] == failed[::-1]
    assert broken["failures"][0]["code"] == "MODULE_EXECUTE_ERROR"
    assert skills["slow"]["errors"] == {"MODULE_TIMEOUT": 1}
    assert skills["pay"]["failed"] == 0
    assert skills["gate"]["slowest"][0]["state"] == "canceled"
    assert "secret" not in str(document)


async def test_without_authentication_figures_need_the_explorer_or_metrics() -> None:
    for option, status in (("access_log", 404), ("explorer", 200), ("metrics", 200)):
        options: Json = {option: True}
        async with serving(modules(), **options) as peer:
            statuses = {(await peer.client.get(path)).status_code for path in (SKILLS, NOW, LEASES)}
            assert statuses == {status}


@pytest.mark.parametrize("path", [SKILLS, NOW, LEASES])
async def test_with_authentication_only_operators_see_figures(path: str) -> None:
    settings: list[Json] = [{"operators": "operator"}, {"explorer": True, "metrics": True}]
    for options in settings:
        async with serving(modules(), auth=keys(), **options) as peer:
            responses = [await peer.client.get(path, headers=headers) for headers in (ADA, OP, {})]
        operator_status = 200 if "operators" in options else 403
        assert [response.status_code for response in responses] == [403, operator_status, 401]
        assert responses[0].json()["error"]["code"] == "FORBIDDEN"


async def test_an_operator_sees_the_figures_of_all_callers() -> None:
    async with serving(modules(), auth=keys(), operators="operator") as peer:
        params = peer.wire.params("work", peer.part(text="hello"))
        assert (await peer.ask("send", params, dict(ADA))).state == "completed"
        document = await read(peer, SKILLS, OP)
    assert [(skill["id"], skill["runs"]) for skill in document["skills"]] == [("work", 1)]


# Figures of the agent


@pytest.mark.parametrize("store", ["memory", "sqlite", "a user's"])
async def test_the_figures_of_now_count_running_and_ended_tasks(store: str, tmp_path: Path) -> None:
    gate = Gate()
    sources = {
        **modules(),
        "crash": ActionModule(crash),
        "gate": ActionModule(gate),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    stores = {"sqlite": f"sqlite:///{tmp_path}/agent.db", "a user's": DictStore()}
    async with serving(sources, explorer=True, task_store=stores.get(store)) as peer:
        empty = await read(peer, NOW)
        for skill in ("work", "work", "crash", "pay"):
            await peer.send(skill)
        running = [await peer.start("gate") for _ in range(3)]
        await peer.ask("cancel", {"id": running[0]})
        document = await read(peer, NOW)
        gate.opened.set()

    assert empty["tasks"] == {"submitted": 0, "working": 0, "inputRequired": 0, "authRequired": 0}
    assert empty["oldest"] == {"workingSeconds": None, "waitingSeconds": None}
    assert empty["lastHour"] == dict.fromkeys(FINAL, 0)
    assert document["status"] == "healthy"
    assert document["scope"] == ("store" if store == "sqlite" else "process")
    assert document["workers"] == 1
    assert document["tasks"] == {**empty["tasks"], "working": 2, "inputRequired": 1}
    assert document["lastHour"] == {"completed": 2, "failed": 1, "canceled": 1, "rejected": 0}
    assert {name: len(minutes) for name, minutes in document["perMinute"].items()} == {
        "started": 60,
        "failed": 60,
    }
    assert sum(document["perMinute"]["started"]) == 7
    assert sum(document["perMinute"]["failed"]) == 1
    assert all(0 <= seconds < 60 for seconds in document["oldest"].values())
    assert document["memory"]["bytes"] > empty["memory"]["bytes"]
    assert document["memory"]["limit"] == 256 * 1024 * 1024
    assert document["webhooks"] is None
    (idle,), (replica,) = empty["replicas"], document["replicas"]
    assert (idle["leases"], idle["running"], idle["draining"]) == (0, 0, False)
    assert replica == {**idle, "leases": 2, "running": 2, "lastSeenAt": replica["lastSeenAt"]}
    assert (replica["pid"], replica["self"]) == (os.getpid(), True)
    assert f"-{os.getpid()}-" in replica["id"]
    assert replica["host"] == socket.gethostname()
    assert idle["startedAt"] < idle["lastSeenAt"] < replica["lastSeenAt"]
    assert replica["version"] == version("apcore-a2a-server")


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_the_leases_of_running_tasks_name_the_replica(store: str, tmp_path: Path) -> None:
    gate = Gate()
    sources = {**modules(), "gate": ActionModule(gate)}
    address = {"sqlite": f"sqlite:///{tmp_path}/agent.db"}.get(store)
    async with serving(sources, explorer=True, task_store=address) as peer:
        ended = (await peer.send()).task["id"]
        running = await peer.start("gate")
        document = await read(peer, f"{LEASES}?tasks={ended},{running},none")
        (replica,) = (await read(peer, NOW))["replicas"]
        gate.opened.set()
        await peer.until(running, "completed")
        empty = [await read(peer, f"{LEASES}?tasks={running}"), await read(peer, LEASES)]
    assert document == {
        "shared": False,
        "leases": [{"taskId": running, "replica": replica["id"]}],
    }
    assert empty == [{"shared": False, "leases": []}] * 2


async def test_leases_of_too_many_tasks_are_refused() -> None:
    async with serving(modules(), explorer=True) as peer:
        answers = [
            await peer.client.get(f"{LEASES}?tasks={','.join(['t'] * number)}")
            for number in (200, 201)
        ]
    assert [answer.status_code for answer in answers] == [200, 400]
    assert answers[1].json()["error"]["code"] == "BAD_REQUEST"


async def test_the_figures_of_now_count_threads() -> None:
    release, started = threading.Event(), threading.Event()

    def hang(inputs: Inputs, context: Any) -> Inputs:
        started.set()
        release.wait(PATIENCE)
        return {}

    modules = {"work": SyncActionModule(hang)}
    async with serving(modules, metrics=True, max_threads=3) as peer:
        try:
            task_id = await peer.start()
            await asyncio.to_thread(started.wait)
            busy = (await read(peer, NOW))["threads"]
            await peer.ask("cancel", {"id": task_id})
            stuck = (await read(peer, NOW))["threads"]
        finally:
            release.set()
    assert busy == {"busy": 1, "limit": 3, "stuck": 0}
    assert stuck == {"busy": 0, "limit": 3, "stuck": 1}


async def test_the_figures_of_now_count_webhooks() -> None:
    async with serving(modules(), explorer=True, push_notifications=True) as peer:
        store = peer.agent.setup.tasks.store
        assert (await read(peer, NOW))["webhooks"] == {"pending": 0, "failed": 0}
        await begun(store, new_record("t1"), [hook("w1"), hook("w2")])
        await store.give_up((await claim_due(store, seconds=60))[0], "status 500")
        assert (await read(peer, NOW))["webhooks"] == {"pending": 2, "failed": 1}


async def test_figures_are_unknown_while_the_store_cannot_be_used() -> None:
    class Gone(InMemoryTaskStore):
        async def open_tasks(self) -> OpenTasks:
            raise UnavailableError("The database is gone")

    options: Json = {"task_store": Gone(), "push_notifications": True}
    async with serving(modules(), explorer=True, **options) as peer:
        document = await read(peer, NOW)
    assert {*document["tasks"].values(), *document["oldest"].values()} == {None}
    assert document["webhooks"] == {"pending": 0, "failed": None}


async def test_the_figures_of_now_say_that_the_agent_is_draining_or_unhealthy() -> None:
    class Broken(DictStore):
        async def get(self, task_id: str) -> TaskRecord | None:
            raise OSError("the disk is gone")

    async with serving(modules(), explorer=True, task_store=Broken()) as peer:
        assert (await read(peer, NOW))["status"] == "unhealthy"
        peer.agent.setup.state.is_draining = True
        assert (await read(peer, NOW))["status"] == "draining"
