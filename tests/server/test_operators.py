"""Operators and approvers have access to other callers' tasks; strangers cannot detect them."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb
from apcore import ACL, ACLRule, Executor, Identity
from apcore_a2a_auth import APIKeyAuthenticator
from apcore_a2a_core.states import COMPLETED
from apcore_a2a_server import create_app
from apcore_a2a_server.fields import OptionError
from apcore_a2a_server.push import PushSettings

from .checking_client import Answer, Json, state_of
from .grpc_caller import connected_caller, serving_grpc
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    echo,
    metadata_of,
    registry_of,
    serving,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Echo

pytestmark = pytest.mark.anyio

ADA, BOB, OP, BOSS, BOTH = (
    {"x-api-key": f"the key of {name}"} for name in ("ada", "bob", "op", "boss", "both")
)
SECRET = "a diary"


def keys() -> APIKeyAuthenticator:
    return APIKeyAuthenticator(
        {
            ADA["x-api-key"]: Identity("ada", roles=("payer",)),
            BOB["x-api-key"]: Identity("bob"),
            OP["x-api-key"]: Identity("op", roles=("operator",)),
            BOSS["x-api-key"]: Identity("boss", roles=("boss",)),
            BOTH["x-api-key"]: Identity("both", roles=("operator", "boss")),
        }
    )


class RecordingModules:
    """Modules, of which `pay` and `ask` record the identity of their caller."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.callers: list[Any] = []

    def modules(self) -> dict[str, object]:
        async def run(inputs: Any, context: Any) -> Any:
            self.callers.append((context.identity.id, context.services.principal))
            return inputs

        async def ask(inputs: Any, context: Any) -> Any:
            if "name" not in inputs:
                context.services.ask(f"Which name for {SECRET}?", field="name")
            return await run(inputs, context)

        return {
            "work": ActionModule(echo),
            "wait": ActionModule(self.gate),
            "pay": ActionModule(run, annotations=NEEDS_APPROVAL),
            "ask": ActionModule(ask),
        }


def by(headers: Mapping[str, str]) -> Json:
    return dict(headers)


async def send_as(peer: Peer, skill: str, headers: Mapping[str, str], **members: Any) -> Answer:
    params = peer.wire.params(skill, peer.part(data={"text": SECRET}), **members)
    return await peer.ask("send", params, by(headers))


async def answer(peer: Peer, task: Json, headers: Mapping[str, str], **content: Any) -> Answer:
    params = answer_params(peer, task, **content)
    return await peer.ask("send", params, by(headers))


def answer_params(peer: Peer, task: Json, **content: Any) -> Json:
    params = peer.wire.params("", peer.part(**content), taskId=task["id"])
    return {"message": params["message"]}


def tasks_of(listed: Answer) -> list[Json]:
    tasks: list[Json] = listed.result["tasks"]
    return tasks


def audited_operations(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    return [
        tuple(vars(record).get(name) for name in ("operation", "operator", "owner"))
        for record in caplog.records
        if getattr(record, "event", "") == "operator_access"
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_operator_lists_and_reads_tasks_of_others_without_their_content(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    options: Json = {"auth": keys(), "operators": "operator", "state_history": True}
    async with serving(RecordingModules().modules(), dialect, **options) as peer:
        task = (await send_as(peer, "work", ADA)).task
        with caplog.at_level(logging.INFO, "apcore_a2a.audit"):
            read_back = (await peer.ask("get", {"id": task["id"]}, by(OP))).task
            (listed,) = tasks_of(await peer.ask("list", {}, by(OP)))
    assert SECRET in str(task)
    for shown in (read_back, listed):
        assert shown["id"] == task["id"]
        assert state_of(shown) == "completed"
        assert shown["status"]["timestamp"] == task["status"]["timestamp"]
        assert metadata_of(shown) == {"skillId": "work", "apcore": {"principal": "apikey|ada"}}
        assert SECRET not in str(shown)
        assert not shown.get("history")
        assert not shown.get("artifacts")
    operator = "apikey|op"
    assert audited_operations(caplog) == [
        ("GetTask", operator, "apikey|ada"),
        ("ListTasks", operator, None),
    ]


async def test_an_operator_reads_content_if_operators_read_is_content() -> None:
    options: Json = {"auth": keys(), "operators": "operator", "operators_read": "content"}
    async with serving(RecordingModules().modules(), **options) as peer:
        task = (await send_as(peer, "work", ADA)).task
        read_back = (await peer.ask("get", {"id": task["id"]}, by(OP))).task
    apcore = {**task["metadata"]["apcore"], "principal": "apikey|ada"}
    metadata = {**task["metadata"], "apcore": apcore}
    assert read_back == {**task, "metadata": metadata}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_callers_without_access_cannot_detect_that_a_task_exists(dialect: str) -> None:
    options: Json = {"auth": keys(), "operators": "operator", "approvers": "boss"}
    async with serving(RecordingModules().modules(), dialect, **options) as peer:
        task = (await send_as(peer, "work", ADA)).task
        paused = (await send_as(peer, "ask", ADA)).task
        for headers in (BOB, BOSS):
            for task_id in (task["id"], paused["id"], "another"):
                for operation in ("get", "cancel"):
                    refused = await peer.ask(operation, {"id": task_id}, by(headers))
                    assert refused.code == -32001
            assert tasks_of(await peer.ask("list", {}, by(headers))) == []
        assert (await answer(peer, paused, BOB, text="x")).code == -32001


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream_of_an_operator_has_only_states(dialect: str) -> None:
    release = asyncio.Event()

    async def chunks(inputs: Any, context: Any) -> Any:
        await context.services.progress(SECRET)
        yield {"text": SECRET}
        await release.wait()
        yield {"text": SECRET}

    options: Json = {"auth": keys(), "operators": "operator"}
    async with serving({"work": StreamModule(chunks)}, dialect, **options) as peer:
        params = peer.wire.params("work", peer.part(data={}))
        async with peer.streaming("stream", params, by(ADA)) as owners_stream:
            task_id = (await owners_stream.next()).body["id"]
            async with peer.streaming(
                "subscribe", {"id": task_id}, {**OP, "Last-Event-ID": "0"}
            ) as stream:
                first = await stream.next()
                release.set()
                frames = [first, *await stream.rest()]
            assert str((await owners_stream.rest())[-1]) == "status completed"
    assert [frame.kind for frame in frames] == ["task", "status", "status"]
    assert frames[-1].state == "completed"
    assert SECRET not in str([frame.body for frame in frames])


async def test_a_subscription_to_an_ended_task_is_audited_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options: Json = {"auth": keys(), "operators": "operator"}
    async with serving(RecordingModules().modules(), "0.3", **options) as peer:
        task = (await send_as(peer, "work", ADA)).task
        with caplog.at_level(logging.INFO, "apcore_a2a.audit"):
            async with peer.streaming("subscribe", {"id": task["id"]}, by(OP)) as stream:
                assert [frame.state for frame in await stream.rest()] == ["completed"]
    assert audited_operations(caplog) == [("SubscribeToTask", "apikey|op", "apikey|ada")]


async def test_an_operator_that_leaves_its_stream_cancels_nothing() -> None:
    recorder = RecordingModules()
    options: Json = {"auth": keys(), "operators": "operator", "shutdown_timeout": 1}
    async with serving(recorder.modules(), **options) as peer:
        params = {**peer.wire.params("wait"), "configuration": {"returnImmediately": True}}
        task_id = (await peer.ask("send", params, by(ADA))).task["id"]
        await recorder.gate.reached.wait()
        async with peer.streaming("subscribe", {"id": task_id}, by(OP)) as stream:
            await stream.next()
            assert task_id not in peer.agent.handler.watchers._watchers
        recorder.gate.opened.set()
        record = await peer.agent.setup.tasks.wait_until_settled(task_id)
    assert record.task.status.state == COMPLETED


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_lists_have_the_creation_time_of_each_task(dialect: str) -> None:
    async with serving(
        RecordingModules().modules(), dialect, auth=keys(), operators="operator"
    ) as peer:
        paused = (await send_as(peer, "ask", ADA)).task
        resumed = (await answer(peer, paused, ADA, text="Ada")).task
        assert state_of(resumed) == "completed"
        listed = [
            tasks_of(await peer.ask("list", {"historyLength": 0}, by(headers)))[0]
            for headers in (ADA, OP)
        ]
    created = {task["metadata"]["apcore"]["createdAt"] for task in (paused, resumed, *listed)}
    assert len(created) == 1
    assert created.pop() <= paused["status"]["timestamp"] <= resumed["status"]["timestamp"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_that_an_operator_cancels_names_the_operator(dialect: str) -> None:
    recorder = RecordingModules()
    async with serving(recorder.modules(), dialect, auth=keys(), operators="operator") as peer:
        paused = (await send_as(peer, "ask", ADA)).task
        canceled = (await peer.ask("cancel", {"id": paused["id"]}, by(OP))).task
        owners_task = (await peer.ask("get", {"id": paused["id"]}, by(ADA))).task
    assert state_of(canceled) == "canceled"
    assert SECRET not in str(canceled)
    (decision,) = owners_task["metadata"]["apcore"]["decisions"]
    assert (decision["principal"], decision["act"]) == ("apikey|op", "canceled")
    assert "operator" in str(owners_task["status"]["message"])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_of_an_operator_resumes_the_run_as_its_requester(dialect: str) -> None:
    recorder = RecordingModules()
    async with serving(recorder.modules(), dialect, auth=keys(), operators="operator") as peer:
        paused = (await send_as(peer, "ask", ADA)).task
        ended = (await answer(peer, paused, OP, text="Grace")).task
        owners_task = (await peer.ask("get", {"id": paused["id"]}, by(ADA))).task
    assert recorder.callers == [("ada", "apikey|ada")]
    assert state_of(ended) == "completed"
    assert "Grace" not in str(ended)
    assert "Grace" in str(owners_task["artifacts"])
    assert owners_task["metadata"]["apcore"]["decisions"][0]["act"] == "answered"


async def test_a_refused_answer_does_not_reveal_the_choices_to_an_operator() -> None:
    async def choose(inputs: Any, context: Any) -> Any:
        context.services.ask("Which?", field="name", choices=[SECRET, "another"])

    async with serving({"ask": ActionModule(choose)}, auth=keys(), operators="operator") as peer:
        paused = (await send_as(peer, "ask", ADA)).task
        refused = await answer(peer, paused, OP, data={"name": "neither"})
        owners_answer = await answer(peer, paused, ADA, data={"name": "neither"})
    assert (refused.code, owners_answer.code) == (-32602, -32602)
    assert SECRET in owners_answer.response.text
    assert SECRET not in refused.response.text


async def test_an_operator_has_the_same_access_over_grpc() -> None:
    options: Json = {"auth": keys(), "operators": "operator"}
    async with serving_grpc(RecordingModules().modules(), ADA, **options) as ada:
        task, paused = await ada.send("work", text=SECRET), await ada.send("ask", text=SECRET)
        async with connected_caller(ada.peer, ada.address, OP) as op:
            read_back = await op.get(task.id)
            assert read_back.status.state == task.status.state
            assert SECRET not in str(read_back)
            page = await op.stub.ListTasks(
                pb.ListTasksRequest(include_artifacts=True), metadata=op.pairs
            )
            assert {listed.id for listed in page.tasks} == {task.id, paused.id}
            assert SECRET not in str(page)
            request = pb.CancelTaskRequest(id=paused.id)
            canceled = await op.stub.CancelTask(request, metadata=op.pairs)
            assert canceled.status.state == pb.TASK_STATE_CANCELED
        async with connected_caller(ada.peer, ada.address, BOB) as bob:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await bob.get(task.id)
            assert refused.value.code() == grpc.StatusCode.NOT_FOUND


async def test_acl_rules_are_checked_again_for_the_requester() -> None:
    """An operator that may not call the skill may answer; the requester's rights decide."""
    recorder = RecordingModules()
    allowed = ["payer"]

    acl = ACL(
        [ACLRule(callers=["*"], targets=["*"], effect="allow", conditions={"roles": allowed})],
        default_effect="deny",
    )
    executor = Executor(registry_of(recorder.modules()), acl=acl)
    async with serving(executor, auth=keys(), operators="operator") as peer:
        first, second = [(await send_as(peer, "ask", ADA)).task for _ in range(2)]
        assert (await send_as(peer, "ask", OP)).code == -32001
        ended = await answer(peer, first, OP, text="Grace")
        assert state_of(ended.task) == "completed"
        allowed[:] = ["operator"]
        refused = await answer(peer, second, OP, text="Grace")
        assert refused.code is not None or state_of(refused.task) == "failed"
    executor.close()  # else apcore leaves the event loop of its checks open
    assert recorder.callers == [("ada", "apikey|ada")]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_operator_approves_nothing(dialect: str) -> None:
    recorder = RecordingModules()
    async with serving(recorder.modules(), dialect, auth=keys(), operators="operator") as peer:
        paused = (await send_as(peer, "pay", ADA)).task
        assert (await answer(peer, paused, OP, text="yes")).code == -32004
        assert state_of((await answer(peer, paused, ADA, text="yes")).task) == "completed"
    assert recorder.callers == [("ada", "apikey|ada")]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_approver_sees_and_decides_a_request_that_its_requester_cannot_decide(
    dialect: str,
) -> None:
    recorder = RecordingModules()
    options: Json = {"auth": keys(), "operators": "operator", "approvers": "boss"}
    async with serving(recorder.modules(), dialect, **options) as peer:
        paused, task_of_both = (
            (await send_as(peer, "pay", ADA)).task,
            (await send_as(peer, "pay", BOTH)).task,
        )
        for task, headers in ((paused, ADA), (paused, OP), (task_of_both, BOTH)):
            assert (await answer(peer, task, headers, text="yes")).code == -32004
        assert recorder.callers == []
        approvers_task = (await peer.ask("get", {"id": paused["id"]}, by(BOSS))).task
        assert approvers_task["status"]["message"] == paused["status"]["message"]
        assert not approvers_task.get("history")
        assert SECRET not in str((await peer.ask("get", {"id": paused["id"]}, by(OP))).task)
        assert (await peer.ask("cancel", {"id": paused["id"]}, by(BOSS))).code == -32004
        ended = (await answer(peer, paused, BOSS, data={"approved": True})).task
        assert state_of(ended) == "completed"
        assert SECRET not in str(ended)
        assert (await peer.ask("get", {"id": paused["id"]}, by(BOSS))).code == -32001
        task = (await peer.ask("get", {"id": paused["id"]}, by(ADA))).task
        rejected = (await answer(peer, task_of_both, BOSS, text="no")).task
    assert recorder.callers == [("ada", "apikey|ada")]
    (decision,) = task["metadata"]["apcore"]["decisions"]
    assert (decision["principal"], decision["act"]) == ("apikey|boss", "approved")
    assert state_of(rejected) == "rejected"


async def test_after_a_restart_an_answer_of_an_operator_resumes_the_run_as_its_requester(
    tmp_path: Any,
) -> None:
    recorder = RecordingModules()
    store = f"sqlite:///{tmp_path / 'agent.db'}"
    options: Json = {"auth": keys(), "operators": "operator", "task_store": store}
    async with serving(recorder.modules(), **options) as peer:
        paused = (await send_as(peer, "ask", ADA)).task
    async with serving(recorder.modules(), **options) as peer:
        listed = tasks_of(await peer.ask("list", {}, by(OP)))
        assert [task["id"] for task in listed] == [paused["id"]]
        assert state_of((await answer(peer, paused, OP, text="Grace")).task) == "completed"
    assert recorder.callers == [("ada", "apikey|ada")]


async def test_a_task_paused_before_there_were_operators_is_answered_by_its_requester_only(
    tmp_path: Any,
) -> None:
    recorder = RecordingModules()
    store = f"sqlite:///{tmp_path / 'agent.db'}"
    async with serving(recorder.modules(), auth=keys(), task_store=store) as peer:
        paused = (await send_as(peer, "ask", ADA)).task
    options: Json = {"auth": keys(), "operators": "operator", "task_store": store}
    async with serving(recorder.modules(), **options) as peer:
        assert (await answer(peer, paused, OP, text="Grace")).code == -32004
        assert state_of((await answer(peer, paused, ADA, text="Grace")).task) == "completed"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_operator_cannot_set_a_webhook_with_an_answer(dialect: str) -> None:
    push = PushSettings(dev=True)
    options: Json = {"auth": keys(), "operators": "operator", "push_notifications": push}
    options["operators_read"] = "content"
    hook = {"url": "http://127.0.0.1:9/hook", "id": "hook"}
    async with serving(RecordingModules().modules(), dialect, **options) as peer:
        paused = (await send_as(peer, "ask", ADA)).task
        params = answer_params(peer, paused, text="Grace")
        name = "taskPushNotificationConfig" if peer.wire.modern else "pushNotificationConfig"
        params["configuration"] = {name: hook}
        assert (await peer.ask("send", params, by(OP))).code == -32004
        task = (await peer.ask("get", {"id": paused["id"]}, by(ADA))).task
        assert await peer.agent.setup.tasks.store.webhooks(paused["id"]) == ()
    assert state_of(task) == "input-required"


async def test_in_a_tenant_an_operator_sees_the_tasks_of_that_tenant() -> None:
    tenants = {"tea": "work", "coffee": "work"}
    options: Json = {"auth": keys(), "operators": "operator", "tenants": tenants}
    async with serving(RecordingModules().modules(), **options) as peer:
        body = {"message": peer.wire.params("", peer.part(data={"text": SECRET}))["message"]}
        ids = {}
        for path in ("/", "/tea", "/coffee"):
            skill = {"metadata": {"skillId": "work"}} if path == "/" else {}
            request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
            response = await peer.client.post(
                path,
                json={**request, "params": {**body, **skill}},
                headers={**ADA, "A2A-Version": "1.0"},
            )
            ids[path] = response.json()["result"]["task"]["id"]

        async def call(path: str, method: str, params: Json) -> Json:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            headers = {**OP, "A2A-Version": "1.0"}
            response = await peer.client.post(path, json=request, headers=headers)
            document: Json = response.json()
            return document

        listed = (await call("/tea", "ListTasks", {}))["result"]
        assert [task["id"] for task in listed["tasks"]] == [ids["/tea"]]
        assert listed["totalSize"] == 1
        for path in ("/", "/coffee"):
            assert (await call("/tea", "GetTask", {"id": ids[path]}))["error"]["code"] == -32001
        everything = (await call("/", "ListTasks", {}))["result"]["tasks"]
        assert {task["id"] for task in everything} == {*ids.values()}
        assert {task["metadata"]["apcore"]["principal"] for task in everything} == {"apikey|ada"}


async def test_a_rule_can_be_a_function_and_only_true_counts() -> None:
    def rule(identity: Any) -> Any:
        return True if identity.id == "op" else "no"

    async with serving(RecordingModules().modules(), auth=keys(), operators=rule) as peer:
        task_id = (await send_as(peer, "work", ADA)).task["id"]
        assert (await peer.ask("get", {"id": task_id}, by(OP))).task["id"] == task_id
        assert (await peer.ask("get", {"id": task_id}, by(BOB))).code == -32001


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"operators": "operator"}, "operators needs auth"),
        ({"approvers": "boss"}, "approvers needs auth"),
        ({"operators": " ", "auth": keys()}, "operators must be a role"),
        ({"operators_read": "content", "auth": keys()}, "operators_read needs operators"),
    ],
)
def test_invalid_rules_are_refused(options: Json, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        create_app(registry_of({"echo": Echo()}), allowed_hosts=["*"], **options)
