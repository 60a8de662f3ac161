"""Misbehaving modules: only their own task may fail."""

import json
import logging

import httpx
import pytest

from .checking_client import Agent, Answer, state_of
from .modules import EXCEPTIONS, OUTPUTS, SECRET

pytestmark = pytest.mark.rotating("agent", "rpc", "dialect")

INTERNAL_ERROR = -32603


def reason(answer: Answer) -> tuple[int, str]:
    """Return the code and message of the error in a failed task."""
    error = answer.task["status"]["message"]["parts"][1]["data"]
    return error["code"], error["message"]


def ask(agent: Agent, skill: str, case: str, operation: str = "send") -> Answer:
    return agent.ask(operation, agent.params(skill, agent.part(data={"what": case})))


@pytest.mark.rotating("skill")
@pytest.mark.parametrize("skill", ["raises", "raises.later", "raises.stream"])
@pytest.mark.parametrize("case", EXCEPTIONS)
def test_an_exception_fails_only_its_task(rpc_v10: Agent, skill: str, case: str) -> None:
    answer = ask(rpc_v10, skill, case)
    if answer.code is None:
        assert answer.state == "failed"
    else:  # an error about the inputs: the send is refused
        assert (answer.code, case in {"input", "schema", "details"}) == (-32602, True)
    assert rpc_v10.send().state == "completed"


@pytest.mark.parametrize("case", EXCEPTIONS)
def test_an_exception_ends_the_stream(rpc_v10: Agent, case: str) -> None:
    answer = ask(rpc_v10, "raises.stream", case, "stream")
    assert state_of(answer.events[-1]["statusUpdate"]) == "failed"
    assert rpc_v10.ask("get", {"id": answer.task_id}).state == "failed"
    assert rpc_v10.send().state == "completed"


@pytest.mark.parametrize("case", ["value", "key", "exit", "interrupt", "memory"])
def test_a_failed_task_has_the_code_of_an_internal_error(agent: Agent, case: str) -> None:
    assert reason(ask(agent, "raises", case)) == (INTERNAL_ERROR, "Internal error")


@pytest.mark.parametrize("case", OUTPUTS)
def test_an_output_that_cannot_be_sent_as_json_fails_only_its_task(agent: Agent, case: str) -> None:
    answer = ask(agent, "bad_output", case)
    assert answer.state == "failed"
    assert reason(answer)[0] == INTERNAL_ERROR
    assert "artifacts" not in answer.task
    listed = agent.ask("list", {"contextId": answer.task["contextId"]}).result["tasks"]
    assert [task["id"] for task in listed] == [answer.task["id"]]


@pytest.mark.parametrize("case", OUTPUTS)
def test_a_chunk_that_cannot_be_sent_as_json_fails_only_its_task(agent: Agent, case: str) -> None:
    answer = ask(agent, "bad_output.stream", case, "stream")
    last = answer.events[-1]
    assert state_of(last.get("statusUpdate") or last) == "failed"
    stored = agent.ask("get", {"id": answer.task_id})
    assert stored.state == "failed"
    assert len(stored.task["artifacts"][0]["parts"]) == 1


@pytest.mark.parametrize("case", ["nan", "infinity", "long integer", "object", "deep", "surrogate"])
def test_a_task_that_fails_for_its_output_says_so(agent: Agent, case: str) -> None:
    message = reason(ask(agent, "bad_output", case))[1]
    assert "output" in message.lower()
    assert message != "Internal error"


@pytest.mark.parametrize("skill", ["order.total", "echo", "no.such"])
def test_an_invalid_nested_call_is_an_internal_error_to_the_client(
    agent: Agent, skill: str
) -> None:
    for operation in ("send", "stream"):
        answer = ask(agent, "nested", skill, operation)
        if operation == "stream":
            answer = agent.ask("get", {"id": answer.task_id})
        assert answer.state == "failed"
        assert reason(answer) == (INTERNAL_ERROR, "Internal error")


@pytest.mark.parametrize("ending", ["\r\n", "\n", "\x1b[2K", "\u2028", "\x85", "\0"])
def test_clients_cannot_forge_log_lines(
    agent: Agent, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    forged = f"x{ending}FORGED all is well"
    with caplog.at_level(logging.DEBUG):
        agent.send(forged)
        agent.stream(forged)
        agent.send("echo", agent.part(data={forged: forged}), contextId=forged, messageId=forged)
        agent.send("raises", agent.part(data={"what": forged}), metadata={forged: forged})
        agent.send(taskId=forged)
        if not agent.restful:
            agent.ask("get", {"id": forged})
            agent.ask("get", {"id": forged}, method=forged, id=forged)
    records = [record for record in caplog.records if not record.name.startswith("http")]
    assert records
    for record in records:
        text = logging.Formatter("%(message)s").format(record)
        assert not any(line.startswith("FORGED") for line in text.splitlines())
        assert "\x1b" not in text


def test_the_log_has_the_details_that_clients_do_not_see(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    ask(agent, "raises", "value")
    assert SECRET in caplog.text


def test_inputs_and_outputs_are_not_logged(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        agent.send("echo", agent.part(text="private-7319"))
        agent.send("order.total", agent.part(data={"customer": "private-7319"}))
        agent.send("raises", agent.part(data={"what": "value", "note": "private-7319"}))
    records = [record for record in caplog.records if not record.name.startswith("http")]
    assert records
    for record in records:
        assert "private-7319" not in logging.Formatter("%(message)s").format(record)


def test_lists_work_after_every_kind_of_bad_output(client: httpx.Client) -> None:
    agent = Agent(client, "1.0")
    for case in OUTPUTS:
        agent.send("bad_output", agent.part(data={"what": case}), contextId="all-kinds")
    listed = agent.ask("list", {"contextId": "all-kinds", "includeArtifacts": True}).result
    assert {state_of(task) for task in listed["tasks"]} == {"failed"}
    assert listed["totalSize"] == len(OUTPUTS)
    old = Agent(client, "0.3").ask("list", {"contextId": "all-kinds"}).result["tasks"]
    assert {json.dumps(task["id"]) for task in old} == {
        json.dumps(task["id"]) for task in listed["tasks"]
    }
