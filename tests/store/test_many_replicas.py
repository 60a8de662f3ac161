"""Several replicas over one PostgreSQL act as one agent."""

import signal
import threading
import time
from pathlib import Path

import pytest

from tests.server.conftest import eventually

from .postgresql import Database, database
from .replicas import LEASE, Replica, check_log, notes, replica, status_texts

pytestmark = pytest.mark.process


@pytest.fixture
def store(server: Database) -> str:
    server.clear()
    return server.url


def test_any_replica_knows_every_task(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as one, replica(tmp_path, store) as other:
        task_id = one.start("again", seconds=0)
        assert other.ended(task_id) == ["completed"]
        check_log(other.events(task_id))
        listed = other.ask("ListTasks")["result"]["tasks"]
        assert [task["id"] for task in listed] == [task_id]
        asks = one.start("asks", seconds=0)
        eventually(lambda: other.state(asks) == "input-required")
        other.say(asks, "yes")
        assert one.ended(asks) == ["completed"]
        assert one.starts(asks) == 1


def test_a_cancel_reaches_the_module_on_another_replica(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as one, replica(tmp_path, store) as other:
        task_id = one.start("once", seconds=600)
        answer = other.ask("CancelTask", id=task_id)
        assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert one.ended(task_id) == ["canceled"]
        eventually(lambda: [note.event for note in notes(tmp_path)] == ["begin", "cancel"])
        check_log(one.events(task_id))


def test_a_stream_is_complete_on_another_replica(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as one, replica(tmp_path, store) as other:
        with one.stream("steps", seconds=0.2, steps=10) as events:
            task_id = next(events)[1]["task"]["id"]
            seen = other.events(task_id)
            assert [*events][-1] == seen[-1]
        check_log(seen)
        assert len(seen) == 13
        assert other.events(task_id, after=7) == seen[7:]


@pytest.mark.smoke
def test_the_tasks_of_a_killed_replica_are_taken_over(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as other:
        with replica(tmp_path, store) as one:
            again = [one.start("again", seconds=5) for _ in range(10)]
            once = [one.start("once", seconds=600) for _ in range(10)]
            one.process.signal(signal.SIGKILL)
        assert other.ended(*again, *once) == ["completed"] * 10 + ["failed"] * 10
        for task_id in (*again, *once):
            check_log(other.events(task_id))
        assert {other.starts(task_id) for task_id in once} == {1}
        assert {other.starts(task_id) for task_id in again} == {2}
        assert status_texts(other.events(once[0])) == ["Replica lost while running"]


def test_a_replica_suspended_past_its_lease_writes_nothing_more(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as one, replica(tmp_path, store) as other:
        again = [one.start("again", seconds=4) for _ in range(10)]
        once = [one.start("once", seconds=600) for _ in range(10)]
        one.process.signal(signal.SIGSTOP)
        time.sleep(2 * LEASE)
        one.process.signal(signal.SIGCONT)
        assert other.ended(*again, *once) == ["completed"] * 10 + ["failed"] * 10
        eventually(lambda: len(notes(tmp_path)) == 60)  # the resumed runs were canceled, too
        for task_id in (*again, *once):
            check_log(one.events(task_id))


def test_tasks_of_a_stopped_replica_are_taken_over_at_once(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store, lease=30) as one, replica(tmp_path, store, lease=6) as other:
        task_id = one.start("again", seconds=3)
        assert one.process.end(signal.SIGTERM) == 0
        assert other.ended(task_id) == ["completed"]
        assert other.starts(task_id) == 2


def test_a_send_repeated_at_another_replica_returns_the_same_task(
    tmp_path: Path, store: str
) -> None:
    with replica(tmp_path, store) as one, replica(tmp_path, store) as other:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"seconds": 0.3}}]}
        sent = {"message": {**message, "metadata": {"idempotencyKey": "k"}}}
        sent_tasks = [
            at.ask("SendMessage", metadata={"skillId": "once"}, **sent)["result"]["task"]
            for at in (one, other, one)
        ]
        assert len({task["id"] for task in sent_tasks}) == 1
        assert one.starts(sent_tasks[0]["id"]) == 1


def test_only_one_of_racing_answers_and_cancels_takes_effect(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as one, replica(tmp_path, store) as other:
        tasks = [one.start("asks", seconds=0.05) for _ in range(30)]
        eventually(lambda: {one.state(task_id) for task_id in tasks} == {"input-required"})

        def race(at: Replica, *, cancels: bool) -> None:
            for task_id in tasks:
                if cancels:
                    at.ask("CancelTask", id=task_id)
                else:
                    at.ask(
                        "SendMessage",
                        message={
                            "messageId": "a",
                            "role": "ROLE_USER",
                            "taskId": task_id,
                            "parts": [{"text": "yes"}],
                        },
                    )

        threads = [
            threading.Thread(target=race, args=(at,), kwargs={"cancels": cancels})
            for at in (one, other)
            for cancels in (False, True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one.ended(*tasks)
        for task_id in tasks:
            check_log(other.events(task_id))
            assert one.starts(task_id) <= 1


@pytest.mark.smoke
def test_a_short_database_outage_loses_no_work(tmp_path: Path) -> None:
    with (
        database() as server,
        replica(tmp_path, server.url, lease=20) as one,
        replica(tmp_path, server.url, lease=20) as other,
    ):
        tasks = [at.start(skill, seconds=2) for at in (one, other) for skill in ("again", "once")]
        server.stop("immediate")
        refused = one.client.post("/", json=one.request("GetTask", id="unknown"))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == -32029
        assert one.client.get("/health").status_code == 503
        eventually(lambda: [note.event for note in notes(tmp_path)].count("end") == 4)
        server.start()
        eventually(lambda: {at.client.get("/health").status_code for at in (one, other)} == {200})
        assert other.ended(*tasks) == ["completed"] * 4
        for task_id in tasks:
            check_log(one.events(task_id))
            assert one.starts(task_id) == 1
        assert one.ended(one.start("once", seconds=0)) == ["completed"]
        assert "connection floor" not in one.process.log + other.process.log, (
            "the driver has logged"
        )
