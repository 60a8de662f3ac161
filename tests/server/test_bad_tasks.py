"""Unknown tasks, and invalid requests about tasks."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from .checking_client import Agent, Json, state_of

pytestmark = pytest.mark.rotating("agent", "rpc", "dialect")

NOT_STRINGS = [5, 1.5, True, [], ["a"], {}, {"a": 1}]
UNKNOWN = [
    "unknown",
    "00000000-0000-4000-8000-000000000000",
    "x" * 300,
    "a\0b",
    "a\r\nb",
    "\x1b[31m",
    "..",
    "%00",
    "💥",
]


@pytest.fixture
def working_task(agent: Agent) -> Iterator[Json]:
    """Yield a task that runs until it is canceled."""
    task = agent.start("slow")
    yield task
    agent.ask("cancel", {"id": task["id"]})


@pytest.fixture
def finished_task(agent: Agent) -> Json:
    return agent.send().task


@pytest.mark.rotating("rpc", "operation")
@pytest.mark.parametrize("operation", ["get", "cancel", "subscribe"])
@pytest.mark.parametrize("task_id", UNKNOWN)
def test_an_unknown_task_is_not_found(rpc: Agent, operation: str, task_id: str) -> None:
    answer = rpc.ask(operation, {"id": task_id})
    assert answer.code == -32001
    assert answer.error == rpc.ask(operation, {"id": "another"}).error


@pytest.mark.parametrize("task_id", ["unknown", "a%00b", "a%0D%0Ab", "%1B[31m", "%F0%9F%92%A5"])
def test_an_unknown_task_is_not_found_in_rest(rest: Agent, task_id: str) -> None:
    for operation in ("get", "cancel", "subscribe"):
        assert rest.ask(operation, {"id": task_id}).response.status_code == 404


@pytest.mark.parametrize("task_id", UNKNOWN)
def test_a_message_to_an_unknown_task_is_refused(agent: Agent, task_id: str) -> None:
    assert agent.send(taskId=task_id).code in {-32001, -32602}
    assert agent.stream(taskId=task_id).code in {-32001, -32602}


@pytest.mark.rotating("rpc", "operation")
@pytest.mark.parametrize("operation", ["get", "cancel", "subscribe"])
@pytest.mark.parametrize("task_id", NOT_STRINGS)
def test_a_task_id_that_is_not_a_string_is_invalid_params(
    rpc: Agent, operation: str, task_id: object
) -> None:
    assert rpc.ask(operation, {"id": task_id}).code == -32602


@pytest.mark.rotating("rpc", "operation")
@pytest.mark.parametrize("operation", ["get", "cancel", "subscribe"])
@pytest.mark.parametrize("params", [{}, {"id": None}, {"id": ""}])
def test_a_missing_task_id_is_refused(rpc: Agent, operation: str, params: Json) -> None:
    assert rpc.ask(operation, params).code in {-32602, -32001}


def test_a_message_to_a_finished_task_is_refused(agent: Agent, finished_task: Json) -> None:
    for answer in (
        agent.send(taskId=finished_task["id"]),
        agent.stream(taskId=finished_task["id"]),
    ):
        assert answer.code == -32004
    assert agent.ask("get", {"id": finished_task["id"]}).task == finished_task


def test_a_message_to_a_working_task_is_refused_at_once(agent: Agent, working_task: Json) -> None:
    assert state_of(working_task) == "working"
    for answer in (agent.send(taskId=working_task["id"]), agent.stream(taskId=working_task["id"])):
        assert answer.code == -32004
    assert agent.ask("get", {"id": working_task["id"]}).task == working_task


def test_a_message_to_a_task_of_another_context_is_invalid_params(
    agent: Agent, working_task: Json, finished_task: Json
) -> None:
    for task in (working_task, finished_task):
        for context in ("another", finished_task["contextId"] + " ", "x" * 300):
            assert agent.send(taskId=task["id"], contextId=context).code == -32602


def test_a_finished_task_cannot_be_canceled(agent: Agent, finished_task: Json) -> None:
    assert agent.ask("cancel", {"id": finished_task["id"]}).code == -32002
    assert agent.ask("get", {"id": finished_task["id"]}).state == "completed"


def test_a_subscription_to_a_finished_task_gets_its_final_state_or_an_error(
    agent: Agent, finished_task: Json
) -> None:
    answer = agent.ask("subscribe", {"id": finished_task["id"]})
    if agent.modern:
        assert answer.code == -32004
    else:
        assert [state_of(event) for event in answer.events] == ["completed"]


@pytest.mark.parametrize("last", ["-1", "x", "1.5", "9" * 30, "", "\u00b2", "99"])
def test_a_last_event_id_that_was_never_sent_is_ignored(
    agent: Agent, working_task: Json, last: str
) -> None:
    """The stream begins with the current task instead."""
    params = {"id": working_task["id"]}
    request = {"jsonrpc": "2.0", "id": 1, "method": agent.method("subscribe"), "params": params}
    path, body = "/", request
    if agent.restful:
        path, body = f"/tasks/{working_task['id']}:subscribe", {}
    headers = [*agent.headers.items(), ("Last-Event-ID", last)]
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    with agent.client.stream("POST", path, json=body, headers=raw) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("id: ")
        assert working_task["id"] in next(lines)


@pytest.mark.parametrize("dialect", ["1.0", "REST"])
@pytest.mark.parametrize("size", [-1, 0, 101, "x", 1.5, 2**31, 10**30, True, [], {}])
def test_an_invalid_page_size_is_invalid_params(
    client: httpx.Client, dialect: str, size: object
) -> None:
    assert Agent(client, dialect).ask("list", {"pageSize": size}).code == -32602


@pytest.mark.parametrize("limit", [-1, "x", "", 1.5, 10**30, True, [], {}])
def test_a_limit_that_is_not_a_count_is_invalid_params(rpc_v03: Agent, limit: object) -> None:
    assert rpc_v03.ask("list", {"limit": limit}).code == -32602


@pytest.mark.parametrize("token", ["x", "-1", "1.5", "9" * 30, "\u00b2", "٣", "a\0b", "1 OR 1=1"])
def test_an_unknown_page_token_is_invalid_params(agent: Agent, token: str) -> None:
    name = "pageToken" if agent.modern else "cursor"
    assert agent.ask("list", {name: token}).code == -32602


@pytest.mark.parametrize("token", NOT_STRINGS)
def test_a_page_token_that_is_not_a_string_is_invalid_params(rpc: Agent, token: object) -> None:
    assert rpc.ask("list", {"pageToken" if rpc.modern else "cursor": token}).code == -32602


@pytest.mark.parametrize("status", ["done", "TASK_STATE_DONE", 3, True, [], ["working"], {}])
def test_an_unknown_status_is_invalid_params(agent: Agent, status: object) -> None:
    assert agent.ask("list", {"status": status}).code == -32602


@pytest.mark.parametrize(
    "moment",
    [
        "yesterday",
        "2026-13-01T00:00:00Z",
        "2026-01-01T25:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "99999-01-01T00:00:00Z",
        5,
        True,
        [],
        {"seconds": 1},
    ],
)
def test_an_invalid_time_is_invalid_params(agent: Agent, moment: object) -> None:
    assert agent.ask("list", {"statusTimestampAfter": moment}).code == -32602


@pytest.mark.parametrize("context", NOT_STRINGS)
def test_a_context_id_that_is_not_a_string_is_invalid_params(rpc: Agent, context: object) -> None:
    assert rpc.ask("list", {"contextId": context}).code == -32602


@pytest.mark.parametrize("context", ["unknown", "a\0b", "x" * 3000, "' OR 1=1"])
def test_an_unknown_context_has_no_tasks(agent: Agent, context: str) -> None:
    answer = agent.ask("list", {"contextId": context})
    assert answer.code == -32602 or answer.result["tasks"] == []


@pytest.mark.parametrize("exists", [True, False])
def test_push_methods_are_refused_if_push_notifications_are_off(
    agent: Agent, finished_task: Json, exists: bool
) -> None:
    task_id = finished_task["id"] if exists else "unknown"
    url = "https://hooks.example.com/a2a"
    config: Json = {"pushNotificationConfig": {"id": "c1", "url": url}}
    if agent.modern:
        config = {"id": "c1", "url": url}
    config_params = {"taskId": task_id, "id": "c1"}
    if not agent.modern:
        config_params = {"id": task_id, "pushNotificationConfigId": "c1"}
    list_params = {"taskId": task_id} if agent.modern else {"id": task_id}
    assert agent.ask("push set", {"taskId": task_id, **config}).code == -32003
    assert agent.ask("push get", config_params).code == -32003
    assert agent.ask("push delete", config_params).code == -32003
    assert agent.ask("push list", list_params).code == -32003


def test_a_push_config_in_a_send_is_refused_if_push_notifications_are_off(agent: Agent) -> None:
    name = "taskPushNotificationConfig" if agent.modern else "pushNotificationConfig"
    configuration = {name: {"url": "https://hooks.example.com/a2a"}}
    context = str(uuid4())
    params = {**agent.params(contextId=context), "configuration": configuration}
    for operation in ("send", "stream"):
        assert agent.ask(operation, params).code == -32003
    assert agent.ask("list", {"contextId": context}).result["tasks"] == []


def test_there_is_no_extended_card_without_authentication(agent: Agent) -> None:
    assert agent.ask("card").code == (-32004 if agent.modern else -32007)
    assert agent.client.get("/agent/authenticatedExtendedCard").status_code == 404


def test_the_extended_card_has_a_second_method_name_in_0_3(rpc: Agent) -> None:
    assert rpc.ask("card", method="agentCard/get").code == -32007
