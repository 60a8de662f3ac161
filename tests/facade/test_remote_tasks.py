"""`apcore-a2a tasks`: list, page, show, follow and cancel tasks."""

import pytest

from tests.serving import running

from .remote import Cli, FakeAgent, Json, task
from .remote import _clean_environment as _clean_environment
from .remote import agent as agent
from .remote import cli as cli


def test_tasks_are_listed_page_by_page(agent: str, cli: Cli) -> None:
    for text in "abc":
        cli("call", agent, "echo", "--input", text, "--context", "pages")
    first = cli("tasks", agent, "--context", "pages", "--limit", "2").json
    second = cli("tasks", agent, "--context", "pages", "--cursor", first["nextPageToken"]).json

    tasks = first["tasks"] + second["tasks"]
    assert [len(first["tasks"]), len({listed["id"] for listed in tasks})] == [2, 3]
    assert "nextPageToken" not in second


@pytest.mark.parametrize("state", ["completed", "TASK_STATE_COMPLETED"])
def test_tasks_can_be_filtered_by_state(state: str, agent: str, cli: Cli) -> None:
    context = f"of {state}"
    cli("call", agent, "echo", "--input", "a", "--context", context)
    cli("call", agent, "pays", "--context", context)
    listed = cli("tasks", agent, "--context", context, "--state", state)

    assert listed.code == 0
    states = [entry["status"]["state"] for entry in listed.json["tasks"]]
    assert states == ["TASK_STATE_COMPLETED"]


def test_the_error_for_an_unknown_state_lists_the_known_states(agent: str, cli: Cli) -> None:
    outcome = cli("tasks", agent, "--state", "bogus")

    assert (outcome.code, outcome.out) == (1, "")
    assert "bogus" in outcome.err
    assert "input-required" in outcome.err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--follow"], 1),
        (["--cancel"], 1),
        (["--output", "x"], 1),
        (["t", "--follow", "--cancel"], 1),
        (["--limit", "many"], 1),
        (["--limit", "0"], 1),
        (["--cursor", "nonsense"], 3),
        (["nope"], 3),
        (["nope", "--cancel"], 3),
        (["nope", "--follow"], 3),
    ],
)
def test_wrong_arguments_of_the_command_are_reported(
    options: list[str], code: int, agent: str, cli: Cli
) -> None:
    outcome = cli("tasks", agent, *options)

    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("apcore-a2a")


def test_a_single_task_can_be_shown(agent: str, cli: Cli) -> None:
    paused = cli("call", agent, "pays").json

    assert cli("tasks", agent, paused["id"]).json["id"] == paused["id"]


def test_a_task_is_canceled_once(agent: str, cli: Cli) -> None:
    paused = cli("call", agent, "pays").json
    outcome = cli("tasks", agent, paused["id"], "--cancel")
    assert (outcome.code, outcome.json["status"]["state"]) == (0, "TASK_STATE_CANCELED")

    second_outcome = cli("tasks", agent, paused["id"], "--cancel")
    assert (second_outcome.code, second_outcome.out) == (3, "")
    assert "cancel" in second_outcome.err


@pytest.mark.parametrize(
    ("state", "code"),
    [("COMPLETED", 0), ("FAILED", 3), ("CANCELED", 3), ("REJECTED", 3), ("INPUT_REQUIRED", 4)],
)
def test_following_a_task_exits_with_the_code_of_its_state(state: str, code: int, cli: Cli) -> None:
    states = iter([task("WORKING"), task("WORKING"), task(state)])

    async def get() -> Json:
        return {"result": next(states)}

    with running(FakeAgent(GetTask=get).app) as url:
        outcome = cli("tasks", url, "t-1", "--follow")

    assert outcome.json["status"]["state"] == f"TASK_STATE_{state}"
    assert outcome.code == code
