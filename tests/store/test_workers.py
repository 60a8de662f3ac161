"""`serve(workers=…)`: processes with one port and one database."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.facade.processes import (
    Process,
    agent_client,
    extensions,
    free_port,
    process,
    run,
    serve_command,
)
from tests.server.conftest import eventually
from tests.server.test_serve import background_request, command_with_stdin, last_state, refuses

from .postgresql import Database

pytestmark = pytest.mark.process
Json = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return extensions(tmp_path)


@contextmanager
def two_workers(server: Database, folder: Path, **options: Any) -> Iterator[Process]:
    """Serve with two workers."""
    server.clear()
    options = {"workers": 2, "task_store": server.url, "metrics": True, **options}
    with process(serve_command(folder, **options), folder.parent) as agent:
        agent.wait_for("(Press Ctrl.C)")
        yield agent
        if agent.is_running:
            agent.end(signal.SIGTERM)


def workers_of(agent: Process) -> list[int]:
    """Return the process ids of the workers."""
    return [
        int(pid) for pid in Path(f"/proc/{agent.id}/task/{agent.id}/children").read_text().split()
    ]


def get_json(agent: Process, path: str) -> Json:
    """Return the document at *path*, over a new connection."""
    document: Json = httpx.get(agent.url + path, trust_env=False).json()
    return document


def count_serving_workers(agent: Process) -> int:
    """Return how many workers serve."""
    return int(get_json(agent, "/health").get("workers", 0))


@pytest.mark.smoke
def test_workers_share_tasks_and_one_that_is_killed_is_replaced(
    server: Database, folder: Path
) -> None:
    with two_workers(server, folder) as agent:
        ids = []
        for _ in range(10):  # each over a new connection
            with agent_client(agent) as client:
                ids.append(client.send().task["id"])
        for task_id in ids:
            with agent_client(agent) as client:
                assert client.ask("get", {"id": task_id}).state == "completed"

        first, second = workers_of(agent)
        os.kill(first, signal.SIGKILL)
        agent.wait_for(r"(was ended by SIGKILL; restarting it in 0\.5 s)")
        eventually(lambda: count_serving_workers(agent) == 2)
        assert second in workers_of(agent)
        assert get_json(agent, "/metrics")["completed_tasks"] == 10
        skills = get_json(agent, "/apcore/skills")
        assert skills["scope"] == "workers"
        assert [skill["id"] for skill in skills["skills"]] == ["echo"]
        (skill,) = skills["skills"]
        assert (skill["runs"], sum(skill["perMinute"]), len(skill["slowest"])) == (10, 10, 5)
        assert {run["taskId"] for run in skill["slowest"]} < {*ids}
        now = get_json(agent, "/apcore/now")
        assert (now["scope"], now["workers"], now["threads"]["limit"]) == ("store", 2, 2 * 64)
        assert (now["lastHour"]["completed"], sum(now["perMinute"]["started"])) == (10, 10)

        assert agent.end(signal.SIGTERM) == 0
        assert refuses(agent.url)
    assert agent.log.count("skills at") == 1
    assert "Traceback" not in agent.log


def test_one_signal_lets_the_tasks_of_all_workers_finish(server: Database, folder: Path) -> None:
    with two_workers(server, folder, shutdown_timeout=20) as agent, ExitStack() as stack:
        streams = [stack.enter_context(background_request(agent, "stream", 6)) for _ in range(6)]
        kept_alive = stack.enter_context(agent_client(agent))
        eventually(lambda: kept_alive.client.get("/metrics").json()["active_tasks"] == 6)
        for pid in (agent.id, *workers_of(agent)):  # as terminals and service managers do
            os.kill(pid, signal.SIGINT)
        eventually(lambda: kept_alive.client.get("/health").json()["status"] == "draining")
        eventually(lambda: refuses(agent.url))

        assert agent.end() == 0
        assert [last_state(stream.answer) for stream in streams] == [("completed", "")] * 6


def test_a_second_signal_ends_all_workers_at_once(server: Database, folder: Path) -> None:
    with (
        two_workers(server, folder, shutdown_timeout=600) as agent,
        background_request(agent, "stream", 600) as stream,
    ):
        agent.signal(signal.SIGTERM)
        agent.wait_for("(Ctrl.C again)")
        time.sleep(0.2)  # right after the first, a second signal counts as its repetition

        assert agent.end(signal.SIGTERM) == 0
        assert last_state(stream.answer) == ("failed", "Server shutdown")


def test_a_hangup_does_not_end_the_workers_of_a_service(server: Database, folder: Path) -> None:
    server.clear()
    command = command_with_stdin(os.devnull, folder, workers=2, task_store=server.url)
    with process(command, folder.parent) as agent:
        agent.wait_for("(Press Ctrl.C)")
        workers = workers_of(agent)
        for pid in (agent.id, *workers):
            os.kill(pid, signal.SIGHUP)
        with agent_client(agent) as client:
            assert client.send().state == "completed"
        assert workers_of(agent) == workers
        assert agent.end(signal.SIGTERM) == 0
    assert "restarting" not in agent.log


def test_a_worker_that_does_not_end_is_killed(server: Database, folder: Path) -> None:
    with two_workers(server, folder) as agent:
        os.kill(workers_of(agent)[0], signal.SIGSTOP)
        agent.signal(signal.SIGTERM)
        eventually(lambda: len(workers_of(agent)) == 1)

        assert agent.end(signal.SIGTERM) == 0
    assert "worker 1" in agent.wait_for("(Killing worker .*)")


def test_workers_end_with_their_parent(server: Database, folder: Path) -> None:
    with two_workers(server, folder) as agent:
        url = agent.url
        agent.signal(signal.SIGKILL)
        agent.end()
        eventually(lambda: refuses(url))


def test_a_worker_that_cannot_start_again_does_not_end_the_others(
    server: Database, folder: Path
) -> None:
    with two_workers(server, folder) as agent:
        (folder / "echo.py").rename(folder / "echo.txt")
        other_files = [folder / name for name in ("nap.py", "block.py", "crash.py")]
        for file in other_files:
            file.rename(file.with_suffix(".txt"))
        os.kill(workers_of(agent)[0], signal.SIGKILL)
        agent.wait_for("(Worker 1 could not start: There are no modules to serve)")
        with agent_client(agent) as client:
            assert client.send().state == "completed"
        for file in other_files:
            file.with_suffix(".txt").rename(file)
        eventually(lambda: count_serving_workers(agent) == 2)


def test_a_worker_that_crashes_is_started_again(server: Database, folder: Path) -> None:
    with two_workers(server, folder) as agent:
        with agent_client(agent) as client, suppress(httpx.HTTPError):  # the answer may be lost
            client.send("crash", client.part(data={}))
        agent.wait_for(r"(The worker crashed)")
        agent.wait_for(r"(exited with code 1; restarting it)")
        eventually(lambda: count_serving_workers(agent) == 2)


# A worker that fails when the server starts ends all workers


def test_a_database_that_cannot_be_reached_is_reported_once(folder: Path) -> None:
    store = f"postgresql://agent@127.0.0.1:{free_port()}/none"
    result = run(["serve", "--workers", "2", "--store", store, "--port", "0"], folder.parent)

    assert result.returncode == 2
    assert result.stderr.count("apcore-a2a: ") == 1
    assert "can't be reached" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_without_modules_is_reported_once(server: Database, tmp_path: Path) -> None:
    (tmp_path / "extensions").mkdir()
    options = ["--workers", "2", "--store", server.url, "--port", "0"]
    result = run(["serve", *options], tmp_path)

    assert result.returncode == 1
    assert result.stderr.count("There are no modules to serve in") == 1


def test_workers_that_are_killed_at_their_start_make_the_command_exit_with_2(
    server: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "extensions"
    folder.mkdir()
    (folder / "fatal.py").write_text("import os\nos.kill(os.getpid(), 9)")
    options = ["--workers", "2", "--store", server.url, "--port", "0"]
    result = run(["serve", *options], tmp_path)

    assert result.returncode == 2
    assert "A worker was ended by SIGKILL before it served" in result.stderr
