"""An agent whose disk is full refuses writes and recovers when there is space again."""

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.server.checking_client import check_no_leaks
from tests.server.conftest import eventually

from .disks import fill, small_disk
from .replicas import LEASE, TIMEOUT, Replica, check_log, notes, replica, status_texts

pytestmark = pytest.mark.process

SIZE = 2 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with small_disk(tmp_path / "disk", SIZE):
            yield tmp_path / "disk"
    except PermissionError as error:
        pytest.skip(f"Can't mount a small disk: {error}")


def is_healthy(agent: Replica) -> bool:
    return agent.client.get("/health").status_code == 200


def check_refused(agent: Replica, method: str, **params: object) -> httpx.Response:
    """Check that a request is refused with 503 and return the response."""
    answer = agent.client.post("/", json=agent.request(method, **params))
    check_no_leaks(answer.text)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
    assert answer.json()["error"]["code"] == -32029
    return answer


def send_params(skill: str) -> dict[str, object]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"seconds": 0}}]}
    return {"message": message, "metadata": {"skillId": skill}}


def make_room(agent: Replica, filler: Path) -> None:
    """Free the disk and wait until the agent is healthy again."""
    filler.unlink()
    started_at = time.monotonic()
    while not is_healthy(agent):
        assert time.monotonic() - started_at < TIMEOUT
        time.sleep(0.05)


def check_after_lost_leases(agent: Replica, task_ids: list[str]) -> None:
    """Check two tasks with lost leases: the repeatable one ran again, and the other one failed."""
    assert agent.wait_for_end(*task_ids) == ["completed", "failed"]
    assert [agent.count_starts(task_id) for task_id in task_ids] == [2, 1]
    for task_id in task_ids:
        check_log(agent.events(task_id))
    assert status_texts(agent.events(task_ids[1])) == ["Replica lost while running"]


def test_requests_that_cannot_be_stored_are_refused_and_running_tasks_recover(
    tmp_path: Path, disk: Path
) -> None:
    with (
        replica(tmp_path, f"sqlite:///{disk / 'agent.db'}", lease=20) as agent,
        ExitStack() as streaming,
    ):
        completed_ids = [agent.start("once", seconds=0) for _ in range(10)]
        agent.wait_for_end(*completed_ids)
        running_ids = [agent.start(skill, seconds=1) for skill in ("once", "again")]
        events = streaming.enter_context(agent.stream("steps", seconds=0.1, steps=20))
        first = next(events)
        filler = fill(disk)
        answer = check_refused(agent, "SendMessage", **send_params("once"))
        assert answer.json()["error"]["message"] == "The disk of the task store is full"
        check_refused(agent, "SendStreamingMessage", **send_params("steps"))
        agent.process.wait_for(rf"({disk / 'agent.db'} can't be written: disk is full)")
        assert not is_healthy(agent)
        reason = agent.client.get("/health").json()["reason"]
        assert reason == "The disk of the task store is full"
        assert "can't be reached" not in agent.process.log
        assert agent.wait_for_end(*completed_ids) == ["completed"] * 10
        for task_id in completed_ids:
            check_log(agent.events(task_id))
        assert len(agent.ask("ListTasks")["result"]["tasks"]) == 13
        eventually(
            lambda: [n.event for n in notes(tmp_path) if n.task_id in running_ids].count("end") == 2
        )
        assert [agent.state(task_id) for task_id in running_ids] == ["working", "working"]
        assert not is_healthy(agent)
        make_room(agent, filler)
        assert agent.wait_for_end(*running_ids) == ["completed", "completed"]
        for task_id in running_ids:
            check_log(agent.events(task_id))
            assert agent.count_starts(task_id) == 1
        check_log([first, *events])
        assert agent.wait_for_end(agent.start("once", seconds=0)) == ["completed"]
        # failed health checks log "disk is full" as well, but not "can't be written"
        assert agent.process.log.count("can't be written: disk is full") == 1
        assert "can be used again" in agent.process.log


def test_a_disk_that_is_full_for_longer_than_a_lease_loses_no_running_task(
    tmp_path: Path, disk: Path
) -> None:
    with replica(tmp_path, f"sqlite:///{disk / 'agent.db'}") as agent:
        running_ids = [agent.start(skill, seconds=4) for skill in ("again", "once")]
        filler = fill(disk)
        time.sleep(2 * LEASE)
        make_room(agent, filler)
        assert agent.wait_for_end(*running_ids) == ["completed", "completed"]
        assert [agent.count_starts(task_id) for task_id in running_ids] == [1, 1]


def test_a_task_whose_end_cannot_be_stored_for_half_a_lease_loses_its_lease(
    tmp_path: Path, disk: Path
) -> None:
    # the change is retried from second 1 to 6
    with replica(tmp_path, f"sqlite:///{disk / 'agent.db'}", lease=10) as agent:
        running_ids = [agent.start(skill, seconds=1) for skill in ("again", "once")]
        filler = fill(disk)
        for task_id in running_ids:
            agent.process.wait_for(f"(Task {task_id}: given up, since the store is unavailable)")
        make_room(agent, filler)
        check_after_lost_leases(agent, running_ids)


def test_a_kill_with_a_full_disk_loses_nothing(tmp_path: Path, disk: Path) -> None:
    store = f"sqlite:///{disk / 'agent.db'}"
    with replica(tmp_path, store) as agent:
        task_ids = [agent.start(skill, seconds=0) for skill in ("once", "again", "asks") * 5]
        filler, count = fill(disk), len(task_ids)
        check_refused(agent, "SendMessage", **send_params("once"))
        states = [agent.state(task_id) for task_id in task_ids]
        agent.process.signal(signal.SIGKILL)
    filler.unlink()
    with replica(tmp_path, store) as agent:
        assert len(agent.ask("ListTasks")["result"]["tasks"]) == count
        for task_id, state in zip(task_ids, states, strict=True):
            assert state in ("working", agent.state(task_id))
    with sqlite3.connect(disk / "agent.db") as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    file.close()
