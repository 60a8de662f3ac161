"""An agent that stores its tasks in a SQLite file is killed, stopped, and started again."""

import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from apcore_a2a_client import Restarted, SyncA2AClient, TaskStatusUpdateEvent

from tests.client.foreign import free_port
from tests.facade.processes import Process, process
from tests.server.conftest import eventually

from .replicas import check_log, replica, replica_command, status_texts, write_modules

pytestmark = pytest.mark.process


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'agent.db'}"


@pytest.mark.smoke
def test_after_a_kill_every_running_task_resumes_or_fails(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as first:
        completed_id = first.start("again", seconds=0)
        first.wait_for_end(completed_id)
        paused_id = first.start("asks", seconds=0)
        eventually(lambda: first.state(paused_id) == "input-required")
        repeatable, unrepeatable = first.start("again", seconds=3), first.start("once", seconds=600)
        first.process.signal(signal.SIGKILL)
        first.process.end()
    with replica(tmp_path, store) as second:
        assert second.wait_for_end(completed_id, repeatable, unrepeatable) == [
            "completed",
            "completed",
            "failed",
        ]
        assert (second.count_starts(repeatable), second.count_starts(unrepeatable)) == (2, 1)
        reason = second.task(unrepeatable)["status"]["message"]["parts"][0]["text"]
        assert reason == "Replica lost while running"
        for task_id in (completed_id, repeatable, unrepeatable):
            check_log(second.events(task_id))
        assert "Started again: the replica that ran it was lost" in status_texts(
            second.events(repeatable)
        )
        assert second.state(paused_id) == "input-required"
        second.answer(paused_id, "yes")
        assert second.wait_for_end(paused_id) == ["completed"]


def test_a_stream_that_runs_again_replaces_its_artifact(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store) as first, first.stream("steps", seconds=0.2, steps=5) as events:
        task_id = next(events)[1]["task"]["id"]
        while "artifactUpdate" not in next(events)[1]:
            pass
        first.process.signal(signal.SIGKILL)
    with replica(tmp_path, store) as second:
        assert second.wait_for_end(task_id) == ["completed"]
        (artifact,) = second.task(task_id)["artifacts"]
        assert [part["data"]["seconds"] for part in artifact["parts"]] == [0, 1, 2, 3, 4]
        log = second.events(task_id)
        check_log(log)
        chunks = [event["artifactUpdate"] for _, event in log if "artifactUpdate" in event]
        assert [chunk.get("append", False) for chunk in chunks].count(False) == 2


@contextmanager
def replica_at_port(port: int, home: Path, store: str) -> Iterator[Process]:
    """Run a replica at a port that a client knows."""
    with process(replica_command(write_modules(home), store, port=port), home) as server:
        assert server.url.endswith(f":{port}")  # waits until the replica listens
        yield server
        server.end(signal.SIGTERM)


@pytest.mark.parametrize("protocol", ["1.0", "0.3"])
def test_a_client_is_notified_when_its_stream_restarts(
    protocol: str, tmp_path: Path, store: str
) -> None:
    values: list[float] = []
    restarts: list[list[float]] = []

    def record_restart() -> None:
        restarts.append([*values])
        values.clear()

    port = free_port()
    with SyncA2AClient(f"http://127.0.0.1:{port}", protocol=protocol, timeout=60) as client:
        with replica_at_port(port, tmp_path, store) as first:
            inputs = {"seconds": 0.2, "steps": 5}
            stream = client.stream("steps", inputs, on_restart=record_restart)
            values += [next(stream)["seconds"], next(stream)["seconds"]]
            first.signal(signal.SIGKILL)
            first.end()
        with replica_at_port(port, tmp_path, store):
            for value in stream:
                values.append(value["seconds"])  # one by one, because a restart clears them
            (task,) = client.list_tasks().tasks
            events = [*client.subscribe(task.id, last_event_id="0")]
    assert restarts[0][:2] == [0, 1]
    assert values == [0, 1, 2, 3, 4]
    (index,) = [index for index, event in enumerate(events) if isinstance(event, Restarted)]
    status_event = events[index + 1]
    assert isinstance(status_event, TaskStatusUpdateEvent)
    assert status_event.metadata == {"apcore": {"restarted": True}}


def test_at_a_stop_repeatable_tasks_are_left_for_the_next_process(
    tmp_path: Path, store: str
) -> None:
    with replica(tmp_path, store) as first:
        repeatable, unrepeatable = first.start("again", seconds=3), first.start("once", seconds=3)
        assert first.process.end(signal.SIGTERM) == 0
    with replica(tmp_path, store) as second:
        assert second.wait_for_end(unrepeatable) == ["failed"]
        assert "shutdown" in second.task(unrepeatable)["status"]["message"]["parts"][0]["text"]
        assert second.wait_for_end(repeatable) == ["completed"]
        assert (second.count_starts(repeatable), second.count_starts(unrepeatable)) == (2, 1)


def test_a_reader_of_a_released_task_is_disconnected_without_an_error_log(
    tmp_path: Path, store: str
) -> None:
    with replica(tmp_path, store) as first:
        with first.stream("steps", seconds=0.2, steps=100) as events:
            next(events)
            first.process.signal(signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError):  # not a normal end of the stream
                deque(events)
        assert first.process.end() == 0
        assert "ERROR" not in first.process.log


def test_a_second_process_is_refused_with_the_reason(tmp_path: Path, store: str) -> None:
    with replica(tmp_path, store):
        with process(replica_command(write_modules(tmp_path), store), tmp_path) as second:
            assert second.end() != 0
        assert "is in use by another process" in second.log
        assert "skills at" not in second.log
