"""A principal's tasks can't be seen, changed or detected by other principals."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from statistics import median
from typing import Any
from uuid import uuid4

import httpx
import pytest
from a2a.server.tasks import InMemoryTaskStore as SdkStore
from apcore_a2a_server import InMemoryTaskStore, Limits
from apcore_a2a_server.bindings import operations, rest, rest03
from apcore_a2a_server.push import PushSettings

from tests.serving import PATIENCE, running

from .checking_client import Agent
from .inloop import DIALECTS, ActionModule, Gate, Peer, echo, registry_of, serving, wait_until
from .inloop import anyio_backend as anyio_backend
from .principals import (
    ADA,
    CONTEXT,
    DIARY,
    PARAMS,
    STATES,
    STRANGERS,
    TASK,
    TENANTS,
    HeaderAuth,
    NormalizedResponse,
    Owner,
    Probe,
    ProbedServer,
    RecallAction,
    Subject,
    acting_as,
    ada_and_stranger,
    message_params,
    modules,
    probes,
)
from .test_custom_stores import DictStore

STORES = {"memory": InMemoryTaskStore, "custom": DictStore, "sdk": SdkStore}
SERVERS = [
    ("memory", "another name"),
    ("custom", "another issuer"),
    ("sdk", "another name"),
]
TIMED_REQUESTS = [
    ("SendMessage", message_params(taskId=TASK)),
    ("SendMessage", message_params(contextId=CONTEXT)),
    ("GetTask", {"id": TASK}),
    ("CancelTask", {"id": TASK}),
    ("ListTasks", {"contextId": CONTEXT}),
    ("SubscribeToTask", {"id": TASK}),
    ("GetTaskPushNotificationConfig", {"taskId": TASK, "id": "hook"}),
    ("CreateTaskPushNotificationConfig", {"taskId": TASK, "url": "http://127.0.0.1:9/"}),
]
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
every_stranger = pytest.mark.parametrize(
    ("dialect", "stranger"), [*zip(DIALECTS, STRANGERS, strict=True)], ids=" ".join
)
every_state = pytest.mark.parametrize("state", STATES)


@contextmanager
def probed_server(store: str, stranger: str) -> Iterator[ProbedServer]:
    options: Any = {
        "auth": HeaderAuth(),
        "task_store": STORES[store](),
        "default_skill": "recall",
    }
    options["tenants"] = TENANTS
    if store != "sdk":  # the SDK's store keeps no webhooks
        options["push_notifications"] = PushSettings(dev=True)
    with (
        running(registry_of(modules()), **options) as url,
        httpx.Client(base_url=url, headers=ADA, trust_env=False) as client,
    ):
        yield ProbedServer(url, Owner(client), stranger)


@pytest.fixture(scope="module", params=SERVERS, ids=" ".join)
def server(request: pytest.FixtureRequest) -> Iterator[ProbedServer]:
    with probed_server(*request.param) as server:
        yield server


def ask(client: httpx.Client, probe: Probe, subject: Subject) -> httpx.Response:
    return client.request(**probe.about(subject))


def test_every_method_and_every_route_is_probed() -> None:
    requests = [probe for operation in PARAMS for probe in probes(operation)]
    assert {probe.method for probe in requests} - {""} == {*operations.METHODS}
    routes = [*rest.ROUTES, *rest03.ROUTES]
    for prefix in ("/", "/memory/"):
        routed = {
            (verb, pattern)
            for verb, pattern, _ in routes
            for probe in requests
            if verb == probe.verb and pattern.fullmatch(probe.path.removeprefix(prefix))
        }
        assert routed == {(verb, pattern) for verb, pattern, _ in routes}


@pytest.mark.rotating("server")
@every_state
@pytest.mark.parametrize("operation", PARAMS)
def test_a_foreign_id_gets_the_same_response_as_an_unknown_one(
    server: ProbedServer, operation: str, state: str
) -> None:
    subject, before = server.owner.subjects[state], server.owner.snapshot(state)
    unknown_subject = subject.unknown()
    with server.stranger() as client:
        for probe in probes(operation):
            foreign, unknown = ask(client, probe, subject), ask(client, probe, unknown_subject)
            assert NormalizedResponse.of(foreign) == NormalizedResponse.of(unknown), probe
            assert not server.owner.leaks_in(foreign), probe
    assert server.owner.snapshot(state) == before


def seconds(client: httpx.Client, probe: Probe, subject: Subject) -> float:
    started_at = time.perf_counter()
    ask(client, probe, subject)
    return time.perf_counter() - started_at


def time_ratio(client: httpx.Client, probe: Probe, subjects: tuple[Subject, Subject]) -> float:
    """Return the ratio, at least 1, of the median times of two subjects probed alternately."""
    durations = [[seconds(client, probe, subject) for subject in subjects] for _ in range(40)]
    medians: list[float] = [median(column) for column in zip(*durations, strict=True)]
    return max(medians) / min(medians)


@pytest.mark.clock
@pytest.mark.parametrize("state", ["working", "completed"])
@pytest.mark.parametrize("store", ["memory", "custom"])
def test_a_foreign_id_takes_as_long_as_an_unknown_one(store: str, state: str) -> None:
    with probed_server(store, "another name") as server, server.stranger() as client:
        subject = server.owner.subjects[state]
        subjects = subject, subject.unknown()
        for method, params in TIMED_REQUESTS:
            probe = Probe("POST", "/", params, method, {})
            ratios = (time_ratio(client, probe, subjects) for _ in range(5))
            assert any(ratio < 1.3 for ratio in ratios), probe


@pytest.mark.rotating("server")
@every_state
def test_a_foreign_context_id_starts_a_separate_conversation(
    server: ProbedServer, state: str
) -> None:
    context = server.owner.subjects[state].context
    for dialect in DIALECTS:
        with server.stranger() as client:
            agent = Agent(client, dialect)
            first, second = (
                agent.send("recall", agent.part(text=text), contextId=context)
                for text in ("first", "second")
            )
            assert (first.data, second.data) == ({"heard": []}, {"heard": ["first"]})
            listed = agent.ask("list", {"contextId": context}).result["tasks"]
            assert {task["id"] for task in listed} == {first.task["id"], second.task["id"]}


def test_messages_do_not_reach_the_conversation_of_another_principal(server: ProbedServer) -> None:
    agent, context = Agent(server.owner.client, "1.0"), str(uuid4())
    agent.send("recall", {"text": "mine"}, contextId=context)
    with server.stranger() as client:
        Agent(client, "1.0").send("recall", {"text": "I know it all"}, contextId=context)
    answer = agent.send("recall", {"text": "mine, too"}, contextId=context)
    assert answer.data == {"heard": ["mine"]}


@every_dialect
def test_a_list_has_only_the_callers_own_tasks(server: ProbedServer, dialect: str) -> None:
    with server.stranger() as client:
        agent = Agent(client, dialect)
        assert agent.ask("list").result["tasks"] == []
        own = {agent.send("recall").task["id"] for _ in range(3)}
        assert {task["id"] for task in agent.ask("list").result["tasks"]} == own
        if dialect != "0.3":
            assert agent.ask("list").result["totalSize"] == len(own)


@every_dialect
def test_a_foreign_page_token_reveals_no_tasks_of_its_owner(
    server: ProbedServer, dialect: str
) -> None:
    (token,) = {subject.token for subject in server.owner.subjects.values()}
    with server.stranger() as client:
        agent = Agent(client, dialect)
        own = {agent.send("recall").task["id"] for _ in range(3)}
        answer = agent.ask("list", {"pageToken": token})
        assert DIARY not in answer.response.text
        if answer.error is None:
            assert {task["id"] for task in answer.result["tasks"]} <= own
        else:
            unknown = agent.ask("list", {"pageToken": str(uuid4())})
            assert answer.response.content == unknown.response.content


@every_dialect
@pytest.mark.anyio
async def test_without_authentication_all_callers_share_their_tasks(dialect: str) -> None:
    """The headers that name a principal are ignored."""
    async with (
        serving({"recall": ActionModule(RecallAction())}, dialect) as peer,
        acting_as(peer, ADA) as ada,
        acting_as(peer, STRANGERS["another name"]) as eve,
    ):
        task = (await ada.send("recall", ada.part(text="ask"))).task
        assert await eve.get(task["id"]) == task
        assert [entry["id"] for entry in (await eve.ask("list")).result["tasks"]] == [task["id"]]
        answer = await eve.send("recall", eve.part(text="more"), taskId=task["id"])
        assert answer.data == {"heard": ["ask", "And then?", "more"]}
        answer = await ada.send("recall", contextId=task["contextId"])
        assert len(answer.data["heard"]) == 3


async def check_refused(intruder: Peer, task_id: str) -> None:
    """Check that a stranger can neither read, cancel, follow nor continue a task."""
    for operation in ("get", "cancel", "subscribe"):
        assert (await intruder.ask(operation, {"id": task_id})).code == -32001
    for operation in ("send", "stream"):
        answer = await intruder.ask(operation, intruder.wire.params("work", taskId=task_id))
        assert answer.code == -32001


@every_stranger
@pytest.mark.anyio
async def test_a_stranger_cannot_disturb_a_run(dialect: str, stranger: str) -> None:
    gate = Gate()
    async with ada_and_stranger({"work": ActionModule(gate)}, dialect, stranger) as (ada, intruder):
        async with ada.stream() as stream:
            task_id = (await stream.next()).body["id"]
            await gate.reached.wait()
            await check_refused(intruder, task_id)
            assert ada.agent.handler.watchers._watchers == {task_id: 1}
            assert not gate.contexts[0].cancel_token.is_cancelled
            gate.opened.set()
            frames = await stream.rest()
        assert [str(frame) for frame in frames] == [
            "status working",
            "artifact",
            "status completed",
        ]


@every_stranger
@pytest.mark.anyio
async def test_a_stranger_cannot_disturb_a_paused_task(dialect: str, stranger: str) -> None:
    async with ada_and_stranger(modules(), dialect, stranger) as (ada, intruder):
        tasks = [
            (await ada.send(skill, ada.part(text=text), contextId="ours")).task
            for skill, text in (STATES["paused for input"], STATES["paused for approval"])
        ]
        for task in tasks:
            await check_refused(intruder, task["id"])
            await intruder.send("recall", intruder.part(text="yes"), contextId="ours")
            await intruder.send("guarded", intruder.part(text="no"), contextId="ours")
            assert await ada.get(task["id"]) == task
            await ada.send(task["metadata"]["skillId"], ada.part(text="yes"), taskId=task["id"])
            assert await ada.state(task["id"]) == "completed"


@every_dialect
@pytest.mark.anyio
async def test_a_disconnecting_stranger_cancels_nothing(dialect: str) -> None:
    gate = Gate()
    async with ada_and_stranger(
        {"work": ActionModule(gate)}, dialect, "another name", limits=Limits(disconnect_grace=0)
    ) as (ada, intruder):
        async with ada.stream() as stream:
            task_id = (await stream.next()).body["id"]
            for _ in range(3):
                request = intruder.request("subscribe", {"id": task_id})
                response = await intruder.client.send(request, stream=True)
                assert '"error"' in await anext(response.aiter_text())
                await response.aclose()
            await check_refused(intruder, task_id)
            gate.opened.set()
            assert str((await stream.rest())[-1]) == "status completed"
        assert not gate.canceled.is_set()


@every_dialect
@pytest.mark.anyio
async def test_a_stranger_does_not_keep_the_task_of_a_disconnected_client_alive(
    dialect: str,
) -> None:
    gate = Gate()
    async with ada_and_stranger(
        {"work": ActionModule(gate)}, dialect, "another name", limits=Limits(disconnect_grace=0.2)
    ) as (ada, intruder):
        async with ada.stream() as stream:
            task_id = (await stream.next()).body["id"]
            await gate.reached.wait()
        await wait_until(
            lambda: task_id in ada.agent.handler.watchers._grace_timers or gate.canceled.is_set()
        )
        request = intruder.request("subscribe", {"id": task_id})
        response = await intruder.client.send(request, stream=True)
        async with asyncio.timeout(PATIENCE):
            await gate.canceled.wait()
        await response.aclose()


@pytest.mark.parametrize("store", STORES)
@pytest.mark.anyio
async def test_two_principals_with_the_same_context_id_are_kept_apart(store: str) -> None:
    options: Any = {"task_store": STORES[store]()}
    async with ada_and_stranger(modules(), "0.3", "another issuer", **options) as (ada, intruder):

        async def talk(peer: Peer, context: str) -> set[str]:
            paused = (await peer.send("recall", peer.part(text="ask"), contextId=context)).task
            answered = await peer.send("recall", peer.part(text="more"), contextId=context)
            assert "more" in answered.data["heard"]
            listed = (await peer.ask("list", {"contextId": context})).result["tasks"]
            return {paused["id"], answered.task["id"], *(task["id"] for task in listed)}

        talks = [
            talk(peer, f"context {number}") for number in range(10) for peer in (ada, intruder)
        ]
        task_ids = await asyncio.gather(*talks)
        assert not set().union(*task_ids[::2]) & set().union(*task_ids[1::2])


async def read_statuses(reader: asyncio.StreamReader, count: int) -> list[str]:
    """Read *count* consecutive responses and return their status codes."""
    statuses = []
    for _ in range(count):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        statuses.append(head.split()[1])
        await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
    return statuses


@pytest.mark.anyio
async def test_each_request_of_a_connection_has_its_own_principal() -> None:
    async with ada_and_stranger(modules(), "1.0", "another name") as (ada, intruder):
        task = (await ada.send("recall")).task
        requests = [
            peer.client.build_request("GET", f"/tasks/{task['id']}") for peer in (ada, intruder)
        ]
        url = ada.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        for request in requests * 10:
            lines = b"".join(b"%b: %b\r\n" % header for header in request.headers.raw)
            writer.write(b"GET %b HTTP/1.1\r\n%b\r\n" % (request.url.raw_path, lines))
        assert await read_statuses(reader, 20) == ["200", "404"] * 10
        writer.close()


LIMITS: list[dict[str, Any]] = [
    {"limits": Limits(max_streams_per_client=1)},
    {"max_runs_per_client": 1},
    {"skill_rate_limit": "1/year"},
]


@pytest.mark.rotating("dialect")
@every_stranger
@pytest.mark.parametrize("options", LIMITS, ids=str)
@pytest.mark.anyio
async def test_each_principal_has_its_own_limits(
    dialect: str, options: dict[str, Any], stranger: str
) -> None:
    gate = Gate()
    async with (
        ada_and_stranger({"work": ActionModule(gate)}, dialect, stranger, **options) as (
            ada,
            intruder,
        ),
        AsyncExitStack() as stack,
    ):
        for peer in (ada, intruder):
            await stack.enter_async_context(peer.stream())
            request = peer.request("stream", peer.wire.params("work"))
            refused = await peer.client.send(request)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["code"] == (429 if dialect == "REST" else -32029)
        gate.opened.set()


@every_stranger
@pytest.mark.anyio
async def test_a_rate_limited_principal_does_not_affect_others(dialect: str, stranger: str) -> None:
    modules: dict[str, object] = {"work": ActionModule(echo)}
    async with ada_and_stranger(modules, dialect, stranger, rate_limit="2/year") as (ada, intruder):
        for peer in (ada, intruder):
            await peer.send()
            await peer.ask("list")
            refused = await peer.client.send(peer.request("list", {}))
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, 429)
            assert int(refused.headers["retry-after"]) > 1


class Forger:
    """An authenticator whose principal has a name that imitates a log line."""

    def authenticate(self, headers: Any) -> Any:
        line = "eve\r\n12:00:00 INFO    GET / 200 1.0 ms  principal=ada\x1b[2K\u2028\ud800"
        return HeaderAuth().authenticate({"x-name": line})


@pytest.mark.anyio
async def test_a_principals_name_cannot_forge_access_log_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "apcore_a2a.access"):
        async with serving({"work": ActionModule(echo)}, auth=Forger()) as peer:
            assert (await peer.send()).state == "completed"
    (record,) = [entry for entry in caplog.records if entry.name == "apcore_a2a.access"]
    principal = record.__dict__["principal"]
    assert principal.startswith("eve")
    assert principal.replace(" ", "").isprintable()
    assert principal.encode()
