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
    with replica(tmp_path, store) as first, replica(tmp_path, store) as second:
        task_id = first.start("again", seconds=0)
        assert second.wait_for_end(task_id) == ["completed"]
        check_log(second.events(task_id))
        listed = second.ask("ListTasks")["result"]["tasks"]
        assert [task["id"] for task in listed] == [task_id]
        paused_id = first.start("asks", seconds=0)
        eventually(lambda: second.state(paused_id) == "input-required")
        second.answer(paused_id, "yes")
        assert first.wait_for_end(paused_id) == ["completed"]
        assert first.count_starts(paused_id) == 1


def test_a_cancel_reaches_the_module_on_another_replica(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as first, replica(tmp_path, store) as second:
        task_id = first.start("once", seconds=600)
        answer = second.ask("CancelTask", id=task_id)
        assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert first.wait_for_end(task_id) == ["canceled"]
        eventually(lambda: [note.event for note in notes(tmp_path)] == ["begin", "cancel"])
        check_log(first.events(task_id))


def test_a_stream_is_complete_on_another_replica(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as first, replica(tmp_path, store) as second:
        with first.stream("steps", seconds=0.2, steps=10) as events:
            task_id = next(events)[1]["task"]["id"]
            seen_events = second.events(task_id)
            assert [*events][-1] == seen_events[-1]
        check_log(seen_events)
        assert len(seen_events) == 13
        assert second.events(task_id, after=7) == seen_events[7:]


@pytest.mark.smoke
def test_the_tasks_of_a_killed_replica_are_taken_over(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as second:
        with replica(tmp_path, store) as first:
            repeatable = [first.start("again", seconds=5) for _ in range(10)]
            unrepeatable = [first.start("once", seconds=600) for _ in range(10)]
            first.process.signal(signal.SIGKILL)
        assert (
            second.wait_for_end(*repeatable, *unrepeatable) == ["completed"] * 10 + ["failed"] * 10
        )
        for task_id in (*repeatable, *unrepeatable):
            check_log(second.events(task_id))
        assert {second.count_starts(task_id) for task_id in unrepeatable} == {1}
        assert {second.count_starts(task_id) for task_id in repeatable} == {2}
        assert status_texts(second.events(unrepeatable[0])) == ["Replica lost while running"]


def test_a_replica_suspended_past_its_lease_writes_nothing_more(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as first, replica(tmp_path, store) as second:
        repeatable = [first.start("again", seconds=4) for _ in range(10)]
        unrepeatable = [first.start("once", seconds=600) for _ in range(10)]
        first.process.signal(signal.SIGSTOP)
        time.sleep(2 * LEASE)
        first.process.signal(signal.SIGCONT)
        assert (
            second.wait_for_end(*repeatable, *unrepeatable) == ["completed"] * 10 + ["failed"] * 10
        )
        eventually(lambda: len(notes(tmp_path)) == 60)  # 40 of `first`, 20 of `second`
        for task_id in (*repeatable, *unrepeatable):
            check_log(first.events(task_id))


def test_tasks_of_a_stopped_replica_are_taken_over_at_once(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store, lease=300) as first, replica(tmp_path, store, lease=6) as second:
        task_id = first.start("again", seconds=3)
        assert first.process.end(signal.SIGTERM) == 0
        assert second.wait_for_end(task_id) == ["completed"]
        assert second.count_starts(task_id) == 2


def test_a_send_repeated_at_another_replica_returns_the_same_task(
    tmp_path: Path, store: str
) -> None:
    with replica(tmp_path, store) as first, replica(tmp_path, store) as second:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"seconds": 0.3}}]}
        sent = {"message": {**message, "metadata": {"idempotencyKey": "k"}}}
        sent_tasks = [
            target.ask("SendMessage", metadata={"skillId": "once"}, **sent)["result"]["task"]
            for target in (first, second, first)
        ]
        assert len({task["id"] for task in sent_tasks}) == 1
        assert first.count_starts(sent_tasks[0]["id"]) == 1


def test_racing_answers_and_cancels_start_and_end_a_task_once(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as first, replica(tmp_path, store) as second:
        tasks = [first.start("asks", seconds=0.05) for _ in range(30)]
        eventually(lambda: {first.state(task_id) for task_id in tasks} == {"input-required"})

        def race(replica: Replica, *, cancels: bool) -> None:
            for task_id in tasks:
                if cancels:
                    replica.ask("CancelTask", id=task_id)
                else:
                    replica.ask(
                        "SendMessage",
                        message={
                            "messageId": "a",
                            "role": "ROLE_USER",
                            "taskId": task_id,
                            "parts": [{"text": "yes"}],
                        },
                    )

        threads = [
            threading.Thread(target=race, args=(target,), kwargs={"cancels": cancels})
            for target in (first, second)
            for cancels in (False, True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first.wait_for_end(*tasks)
        for task_id in tasks:
            check_log(second.events(task_id))
            assert first.count_starts(task_id) <= 1


@pytest.mark.smoke
def test_a_short_database_outage_loses_no_work(tmp_path: Path) -> None:
    with (
        database() as server,
        replica(tmp_path, server.url, lease=20) as first,
        replica(tmp_path, server.url, lease=20) as second,
    ):
        tasks = [
            agent.start(skill, seconds=2)
            for agent in (first, second)
            for skill in ("again", "once")
        ]
        server.stop("immediate")
        response = first.client.post("/", json=first.request("GetTask", id="unknown"))
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json()["error"]["code"] == -32029
        assert first.client.get("/health").status_code == 503
        eventually(lambda: [note.event for note in notes(tmp_path)].count("end") == 4)
        server.start()
        eventually(
            lambda: {agent.client.get("/health").status_code for agent in (first, second)} == {200}
        )
        assert second.wait_for_end(*tasks) == ["completed"] * 4
        for task_id in tasks:
            check_log(first.events(task_id))
            assert first.count_starts(task_id) == 1
        assert first.wait_for_end(first.start("once", seconds=0)) == ["completed"]
        assert "connection floor" not in first.process.log + second.process.log, (
            "the driver has logged failed attempts to reconnect"
        )
