"""The figures that workers share, and the stores that several processes can't share."""

import signal
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from apcore import Executor
from apcore_a2a_server import InMemoryTaskStore, serve
from apcore_a2a_server.app.app import build_app
from apcore_a2a_server.app.figures import ALIVE_AT, STORE_PROBLEM, Figures
from apcore_a2a_server.app.health import PROBLEMS, WORKER_TIMEOUT
from apcore_a2a_server.app.options import Settings
from apcore_a2a_server.app.sharing import server_processes
from apcore_a2a_server.fields import OptionError
from starlette.applications import Starlette

from tests.facade.processes import Process, extensions, process, run

from .inloop import Peer, serving
from .modules import registry
from .test_skill_figures import Worker

PROMETHEUS = {"accept": "text/plain"}


def first_worker_app(figures: Figures) -> Starlette:
    """Return the application of the first of two workers."""
    return build_app(Executor(registry()), Settings(metrics=True), figures)


async def health_of(peer: Peer) -> tuple[int, Any]:
    response = await peer.client.get("/health")
    return response.status_code, response.json()


class OtherWorker:
    """A context in which figures count as the other worker's."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def __enter__(self) -> Figures:
        self._figures.worker = 1
        return self._figures

    def __exit__(self, *_: object) -> None:
        self._figures.worker = 0


# Figures


@pytest.mark.anyio
async def test_metrics_are_sums_over_the_workers() -> None:
    figures = Figures(2)
    async with serving(first_worker_app(figures)) as peer:
        await peer.send("echo")
        with OtherWorker(figures) as other:
            other.add("requests 200", 7)
            other.set("open_streams", 3)
            other.set("uptime_seconds", 0)
        other_worker = Worker(figures.skills, 1)
        for skill in ["echo"] * 3 + ["other"] * 2:
            other_worker.run(skill=skill)
        metrics = (await peer.client.get("/metrics")).json()
        text = (await peer.client.get("/metrics", headers=PROMETHEUS)).text

    assert (metrics["completed_tasks"], metrics["open_streams"]) == (6, 3)
    assert metrics["total_requests"] == 8
    assert 0 < metrics["uptime_seconds"] < 60
    assert 'apcore_a2a_tasks_total{skill="echo",state="completed"} 4.0' in text
    assert 'apcore_a2a_tasks_total{skill="other",state="completed"} 2.0' in text
    assert 'apcore_a2a_run_seconds_count{skill="echo"} 4.0' in text
    assert 'apcore_a2a_run_seconds_count{skill="other"} 2.0' in text


def test_the_counts_of_a_worker_outlive_it() -> None:
    figures = Figures(2)
    figures.worker = 1
    figures.add("requests 500")
    figures.set("active_tasks", 2)
    figures.set(ALIVE_AT, time.monotonic())

    figures.clear(1)

    assert (figures.total("requests 500"), figures.total("active_tasks")) == (1, 0)
    assert figures.by_worker(ALIVE_AT) == [0, 0]


@pytest.mark.anyio
async def test_health_covers_all_workers() -> None:
    figures = Figures(2)
    async with serving(first_worker_app(figures)) as peer:
        assert (await health_of(peer))[1]["workers"] == 1
        with OtherWorker(figures) as other:
            other.set(ALIVE_AT, time.monotonic())
        assert (await health_of(peer))[1]["workers"] == 2

        with OtherWorker(figures) as other:
            other.set(STORE_PROBLEM, 1)
        assert await health_of(peer) == (503, {"status": "unhealthy", "reason": PROBLEMS[1]})

        with OtherWorker(figures) as other:
            other.set(STORE_PROBLEM, 0)
            other.set(ALIVE_AT, time.monotonic() - WORKER_TIMEOUT - 1)
        status, document = await health_of(peer)
        assert (status, document["reason"]) == (503, "A worker does not answer")

        figures.set_draining()
        status, document = await health_of(peer)
        assert (status, document["status"]) == (503, "draining")


# Stores that processes can't share


class NoTasks:
    """A task store that a user wrote."""

    async def save(self, record: Any) -> None: ...
    async def get(self, task_id: str) -> None: ...
    async def delete(self, task_id: str) -> None: ...
    async def list(self, context_id: Any, cursor: Any, limit: int) -> None: ...
    async def save_push_config(self, *_: Any) -> None: ...
    async def get_push_config(self, task_id: str) -> None: ...
    async def delete_push_config(self, task_id: str) -> None: ...


@pytest.mark.parametrize(
    ("store", "name"),
    [
        (None, "the memory store"),
        ("memory", "the memory store"),
        (InMemoryTaskStore(), "the memory store"),
        ("sqlite:///agent.db", "SQLite"),
        (NoTasks(), "this task store"),
    ],
)
def test_workers_need_a_store_that_they_can_share(store: Any, name: str) -> None:
    with pytest.raises(OptionError) as error:
        serve(registry(), port=0, workers=2, task_store=store)
    assert str(error.value) == (
        f"workers must be 1 with {name}, which processes can't share; "
        "for more, set the store to postgresql://…"
    )


def test_workers_do_not_serve_grpc() -> None:
    with pytest.raises(OptionError, match=r"^workers must be 1 with grpc_port"):
        serve(registry(), workers=2, grpc_port=0, task_store="postgresql://a@b/c")


def test_workers_need_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.fork")
    with pytest.raises(OptionError, match=r"^workers must be 1 on this operating system"):
        serve(registry(), workers=2, task_store="postgresql://a@b/c")


@pytest.mark.process
def test_the_command_names_the_flag_that_it_refuses(tmp_path: Path) -> None:
    extensions(tmp_path)
    result = run(["serve", "--workers", "2"], tmp_path)
    assert result.returncode == 1
    assert "--workers must be 1 with the memory store" in result.stderr


# Other servers


class Arbiter:
    """A stand-in for gunicorn's Arbiter; gunicorn is not installed."""

    def __init__(self, workers: Any) -> None:
        self.num_workers = workers

    def spawn_worker(self) -> tuple[str, int]:
        return server_processes()


@pytest.mark.parametrize(("workers", "count"), [(1, 1), (2, 2), (None, 1), ("many", 1)])
def test_the_processes_of_gunicorn_are_counted(
    workers: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "__name__", "gunicorn.arbiter")
    assert Arbiter(workers).spawn_worker() == ("gunicorn", count)


APP = """
import os
from apcore_a2a_server import create_app
app = create_app(os.environ["FOLDER"], allowed_hosts=["*"])
"""


def agent_under(server: str, arguments: list[str], home: Path) -> AbstractContextManager[Process]:
    """Start an agent with the memory store under another server."""
    (home / "served.py").write_text(APP)
    variables = {"FOLDER": str(extensions(home, "echo.py")), "PYTHONPATH": str(home)}
    return process([sys.executable, "-m", server, "served:app", *arguments], home, variables)


@pytest.mark.process
@pytest.mark.parametrize("server", ["uvicorn", "hypercorn"])
def test_several_processes_of_other_servers_are_refused(server: str, tmp_path: Path) -> None:
    bind = ["--port", "0"] if server == "uvicorn" else ["--bind", "127.0.0.1:0"]
    with agent_under(server, ["--workers", "2", *bind], tmp_path) as agent:
        agent.wait_for(f"(ValueError: {server} starts several processes, which can't share)")
        agent.end(signal.SIGTERM)


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["--workers", "1"], ["--reload"]])
def test_one_process_of_uvicorn_may_have_the_memory_store(
    arguments: list[str], tmp_path: Path
) -> None:
    with agent_under("uvicorn", [*arguments, "--port", "0"], tmp_path) as agent:
        agent.wait_for("(Application startup complete)")
        agent.end(signal.SIGTERM)
    assert "can't share" not in agent.log
