"""`apcore-a2a check`: agents that work, and agents that do not."""

from typing import Any

import pytest
from apcore_a2a.command.check import check_card

from tests.serving import running

from .remote import CARD, Cli, FakeAgent, Json, sends, task
from .remote import _elsewhere as _elsewhere
from .remote import agent as agent
from .remote import cli as cli

OLD = {
    "name": "Old",
    "description": "An agent of 0.3",
    "version": "1",
    "protocolVersion": "0.3.0",
    "url": "https://agent.example/",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
}
NOT_FOUND = {"error": {"code": -32001, "message": "Task not found"}}
SKILL = {"id": "only", "name": "Only", "description": "The only one", "tags": []}


def outcomes(checks: Json) -> dict[str, str]:
    return {each["name"]: each["outcome"] for each in checks["checks"]}


def test_an_agent_of_this_project_passes_in_both_versions(agent: str, cli: Cli) -> None:
    outcome = cli("check", agent, "echo", "--input", "hi", "--json")

    assert (outcome.code, outcome.err) == (0, "")
    steps = ("card", "send", "get", "stream", "cancel", "errors")
    expected = {f"{version} {step}": "ok" for version in ("1.0", "0.3") for step in steps}
    assert outcomes(outcome.json) == expected
    assert outcome.json["verdict"] == "The agent works: 12 checks ok"


def test_input_that_the_skill_refuses_is_no_fault(agent: str, cli: Cli) -> None:
    outcome = cli("check", agent, "order", "--input", '{"nonsense": 1}', "--protocol", "1.0")

    found = outcomes(outcome.json)
    assert outcome.code == 0
    assert {found["1.0 send"], found["1.0 stream"], found["1.0 cancel"]} == {"skipped"}
    assert "try SKILL and --input" in outcome.out


def test_an_agent_that_breaks_the_protocol_fails(cli: Cli) -> None:
    card = {"capabilities": {"streaming": True}, "skills": [SKILL]}
    fake = FakeAgent(
        card,
        SendMessage=sends(task("COMPLETED", {"text": "done"})),
        GetTask={"result": task("WORKING")},
        SendStreamingMessage=[{"message": {"role": "ROLE_AGENT", "messageId": "m", "parts": []}}],
        CancelTask=NOT_FOUND,
    )
    with running(fake.app) as url:
        outcome = cli("check", url)

    found = outcomes(outcome.json)
    assert outcome.code == 3
    assert outcome.json["verdict"].startswith("The agent does not work as the protocol says")
    assert (found["1.0 send"], found["1.0 get"], found["1.0 errors"]) == ("ok", "FAILED", "FAILED")
    assert found["0.3"] == "skipped"


@pytest.mark.parametrize("tag", ["destructive", "requires-approval"])
def test_a_dangerous_skill_is_called_only_if_it_is_named(tag: str, cli: Cli) -> None:
    fake = FakeAgent(
        {"skills": [{**SKILL, "tags": [tag]}]},
        SendMessage=sends(task("COMPLETED", {"text": "done"})),
        GetTask=NOT_FOUND,
        CancelTask=NOT_FOUND,
    )
    with running(fake.app) as url:
        assert outcomes(cli("check", url).json)["1.0 send"] == "skipped"
        assert "SendMessage" not in fake.methods
        assert outcomes(cli("check", url, "only").json)["1.0 send"] == "ok"


def test_the_example_of_the_only_skill_is_sent(cli: Cli) -> None:
    fake = FakeAgent(
        {"skills": [{**SKILL, "examples": ['{"n": 1}']}]},
        SendMessage=sends(task("COMPLETED", {"text": "done"})),
        GetTask=NOT_FOUND,
        CancelTask=NOT_FOUND,
    )
    with running(fake.app) as url:
        cli("check", url)
    assert fake.bodies[0]["params"]["message"]["parts"] == [{"data": {"n": 1}}]


def test_an_agent_that_cannot_be_reached_exits_with_2(cli: Cli) -> None:
    assert cli("check", "http://127.0.0.1:9").code == 2


@pytest.mark.parametrize(
    ("document", "failures"),
    [
        (OLD, {}),
        ({**OLD, "version": None}, {"0.3 card": "version: "}),
        ({**OLD, "skills": [{"id": "x"}]}, {"0.3 card": "skills.0.name"}),
        ({"name": "Nothing"}, {"card": "it has neither"}),
        ({**CARD, "skills": 5}, {"1.0 card": "skills"}),
        ({**CARD, "name": ""}, {"1.0 card": "name"}),
    ],
)
def test_a_card_is_checked_by_the_schema_of_each_version_it_claims(
    document: Any, failures: dict[str, str]
) -> None:
    found = {each.name: each.details for each in check_card(document) if each.outcome == "FAILED"}
    assert found.keys() >= failures.keys()
    for name, problem in failures.items():
        assert problem in found[name]
    assert bool(found) is bool(failures)
