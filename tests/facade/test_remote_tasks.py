"""`apcore-a2a tasks`: lists, pages, single tasks, and what is done to them."""

import pytest

from tests.serving import running

from .remote import Command, Fake, Json, task
from .remote import _elsewhere as _elsewhere
from .remote import agent as agent
from .remote import do as do


def test_tasks_are_listed_page_by_page(agent: str, do: Command) -> None:
    for text in "abc":
        do("call", agent, "echo", "--input", text, "--context", "pages")
    first = do("tasks", agent, "--context", "pages", "--limit", "2").json
    second = do("tasks", agent, "--context", "pages", "--cursor", first["nextPageToken"]).json

    tasks = first["tasks"] + second["tasks"]
    assert [len(first["tasks"]), len({found["id"] for found in tasks})] == [2, 3]
    assert "nextPageToken" not in second


@pytest.mark.parametrize("state", ["completed", "TASK_STATE_COMPLETED"])
def test_tasks_are_listed_by_their_state(state: str, agent: str, do: Command) -> None:
    context = f"of {state}"
    do("call", agent, "echo", "--input", "a", "--context", context)
    do("call", agent, "pays", "--context", context)
    listed = do("tasks", agent, "--context", context, "--state", state)

    assert listed.code == 0
    states = [found["status"]["state"] for found in listed.json["tasks"]]
    assert states == ["TASK_STATE_COMPLETED"]


def test_a_wrong_state_is_told_with_the_right_ones(agent: str, do: Command) -> None:
    done = do("tasks", agent, "--state", "bogus")

    assert (done.code, done.out) == (1, "")
    assert "bogus" in done.err
    assert "input-required" in done.err


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
def test_what_tasks_can_t_do_is_told(
    options: list[str], code: int, agent: str, do: Command
) -> None:
    done = do("tasks", agent, *options)

    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("apcore-a2a")


def test_one_task_is_shown(agent: str, do: Command) -> None:
    paused = do("call", agent, "pays").json

    assert do("tasks", agent, paused["id"]).json["id"] == paused["id"]


def test_a_task_is_canceled_once(agent: str, do: Command) -> None:
    paused = do("call", agent, "pays").json
    done = do("tasks", agent, paused["id"], "--cancel")
    assert (done.code, done.json["status"]["state"]) == (0, "TASK_STATE_CANCELED")

    again = do("tasks", agent, paused["id"], "--cancel")
    assert (again.code, again.out) == (3, "")
    assert "cancel" in again.err


@pytest.mark.parametrize(
    ("state", "code"),
    [("COMPLETED", 0), ("FAILED", 3), ("CANCELED", 3), ("REJECTED", 3), ("INPUT_REQUIRED", 4)],
)
def test_following_a_task_ends_as_the_task_does(state: str, code: int, do: Command) -> None:
    states = iter([task("WORKING"), task("WORKING"), task(state)])

    async def get() -> Json:
        return {"result": next(states)}

    with running(Fake(GetTask=get).app) as url:
        done = do("tasks", url, "t-1", "--follow")

    assert done.json["status"]["state"] == f"TASK_STATE_{state}"
    assert done.code == code
