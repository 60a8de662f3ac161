"""Members of requests: both spellings of ProtoJSON, and required members."""

import json
from typing import Any

import pytest

from .checking_client import Agent, Json

pytestmark = pytest.mark.rotating("agent", "rpc", "dialect")


def in_proto_spelling(value: Any) -> Any:
    """Return the value with member names as in the protocol's `.proto` file."""
    text = json.dumps(value)
    for name in ("messageId", "contextId", "taskId", "returnImmediately", "historyLength"):
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        text = text.replace(f'"{name}"', f'"{snake}"')
    return json.loads(text)


def test_members_may_be_spelled_as_in_the_proto_file(agent: Agent) -> None:
    params = {
        **agent.params("echo", contextId="my context"),
        "configuration": {"historyLength": 0},
    }
    task = agent.ask("send", in_proto_spelling(params)).task
    assert task["contextId"] == "my context"
    assert "history" not in task or task["history"] == []


@pytest.mark.parametrize("member", ["context_id", "contextId"])
def test_an_id_beside_the_message_may_be_spelled_either_way(agent: Agent, member: str) -> None:
    params = {**agent.params("echo"), member: "my context"}
    assert agent.ask("send", params).task["contextId"] == "my context"


def test_null_in_the_message_leaves_the_id_beside_it(agent: Agent) -> None:
    params = {**agent.params("echo", contextId=None), "contextId": "my context"}
    assert agent.ask("send", params).task["contextId"] == "my context"


@pytest.mark.parametrize("member", ["mime_type", "mimeType"])
def test_the_media_type_of_a_file_in_0_3_may_be_spelled_either_way(
    rpc_v03: Agent, member: str
) -> None:
    part = {"kind": "file", "file": {"bytes": "aGk=", member: "image/png"}}
    params = rpc_v03.params("echo", rpc_v03.part(text="x"), part)
    (message,) = rpc_v03.ask("send", params).task["history"]
    assert message["parts"][1]["file"] == {"bytes": "aGk=", "mimeType": "image/png"}


@pytest.mark.parametrize("member", ["task_id", "taskId"])
def test_the_id_of_a_task_may_be_spelled_as_in_the_srs(rpc_v03: Agent, member: str) -> None:
    task_id = rpc_v03.send().task["id"]
    assert rpc_v03.ask("get", {member: task_id}).result["id"] == task_id


def test_names_in_metadata_data_and_artifacts_keep_their_spelling(agent: Agent) -> None:
    data = {"context_id": 1, "contextId": 2, "message_id": 3}
    params = agent.params("mirror", agent.part(data={"value": data}), metadata=data)
    task = agent.ask("send", params).task
    (message,) = task["history"]
    assert message["metadata"] == data
    (artifact,) = task["artifacts"]
    assert artifact["parts"][0]["data"] == {"value": data}


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("send", {"message": {"message_id": "m2"}}),
        ("send", {"message": {"contextId": "a", "context_id": "a"}}),
        ("send", {"contextId": "a", "context_id": "a"}),
        ("list", {"pageSize": 5, "page_size": 5}),
    ],
)
def test_a_member_in_both_spellings_is_refused(rpc: Agent, operation: str, members: Json) -> None:
    params: Json = rpc.params() if operation == "send" else {}
    params = {
        **params,
        **members,
        "message": {**params.get("message", {}), **members.get("message", {})},
    }
    answer = rpc.ask(operation, params)
    assert answer.code == -32602
    assert len(answer.fields) == 1


@pytest.mark.parametrize("name", ["page_size", "pageSize"])
def test_a_page_has_the_requested_size(agent: Agent, name: str) -> None:
    for _ in range(3):
        agent.send()
    if agent.modern:
        assert len(agent.ask("list", {name: 2}).result["tasks"]) == 2
    else:
        assert len(agent.ask("list", {"limit": 2}).result["tasks"]) == 2


@pytest.mark.parametrize("role", ["ROLE_AGENT", "agent", "", None])
def test_a_message_from_a_client_must_have_the_role_user(agent: Agent, role: str | None) -> None:
    for operation in ("send", "stream"):
        answer = agent.ask(operation, agent.params(role=role))
        assert answer.code == -32602
        assert answer.fields == ["params.message.role"]


@pytest.mark.parametrize("message_id", ["", None])
def test_a_message_must_have_an_id(agent: Agent, message_id: str | None) -> None:
    answer = agent.ask("send", agent.params(messageId=message_id))
    assert (answer.code, answer.fields) == (-32602, ["params.message.messageId"])


@pytest.mark.parametrize("operation", ["get", "cancel", "subscribe"])
@pytest.mark.parametrize("params", [{}, {"id": ""}, {"id": None}])
def test_a_request_for_a_task_must_have_its_id(rpc: Agent, operation: str, params: Json) -> None:
    answer = rpc.ask(operation, params)
    assert (answer.code, answer.fields) == (-32602, ["params.id"])


@pytest.mark.parametrize("operation", ["push set", "push get", "push list", "push delete"])
def test_a_request_for_webhooks_must_have_the_id_of_the_task(rpc: Agent, operation: str) -> None:
    answer = rpc.ask(operation, {"url": "https://example.com/"})
    assert answer.code == -32602
    assert answer.fields in (["params.taskId"], ["params.id"])


def test_a_member_that_is_nested_too_deeply_is_named_in_the_error(rpc: Agent) -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    answer = rpc.ask("send", rpc.params("mirror", rpc.part(data={"n": 1}), metadata={"deep": deep}))
    assert answer.code == -32602
    assert answer.message == "Invalid params: params.message.metadata is nested too deeply"
