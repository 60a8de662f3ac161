"""Replicas keep their tasks while modules compute, and modules that wait run in parallel."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import pytest
from apcore_a2a_server.app.health import MAX_CHECK_WAIT

from tests.facade.processes import process

from .postgresql import Database
from .replicas import Replica, replica_command

LEASE = 10
"""Seconds that a lease lasts: less than the CPU time of all modules."""

pytestmark = [pytest.mark.process, pytest.mark.soak]

CALLS = 24  # concurrent
MODULE = """
import time
from apcore import ModuleAnnotations
from pydantic import BaseModel

class Work(BaseModel):
    compute: float = 0
    sleep: float = 0
    text: str = ""

class Done(BaseModel):
    rounds: int

class Works:
    description = "Computes or sleeps for some time, and notes its starts"
    input_schema = Work
    output_schema = Done
    annotations = ModuleAnnotations(idempotent=True)
    resources = {resources}

    def execute(self, inputs, context):
        with open("notes", "a") as file:
            print(context.data["ext.a2a.task_id"], "begin", time.time(), 0, file=file)
        time.sleep(inputs.get("sleep", 0))
        rounds, end = 0, time.thread_time() + inputs.get("compute", 0)
        while time.thread_time() < end:
            rounds += 1
        return {{"rounds": rounds}}
"""


@contextmanager
def agent(home: Path, store: str, resources: str = "{}") -> Iterator[Replica]:
    folder = home / "computing"
    folder.mkdir(exist_ok=True)
    (folder / "works.py").write_text(MODULE.format(resources=resources))
    with process(replica_command(folder, store, LEASE), home) as server:
        replica = Replica(server, home)
        with replica.client:
            yield replica


def send(replica: Replica, **inputs: float | str) -> Any:
    """Send a message and wait for its task."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": inputs}]}
    return replica.ask("SendMessage", message=message, metadata={"skillId": "works"})["result"]


def send_at_once(replicas: list[Replica], count: int = CALLS, **inputs: float | str) -> list[Any]:
    """Send messages at the same time, to each replica in turn; return their tasks."""
    with ThreadPoolExecutor(count) as pool:
        targets = [replicas[number % len(replicas)] for number in range(count)]
        return [
            answer["task"] for answer in pool.map(lambda target: send(target, **inputs), targets)
        ]


def check_completed_once(replica: Replica, tasks: list[Any]) -> None:
    assert {task["status"]["state"] for task in tasks} == {"TASK_STATE_COMPLETED"}
    assert {replica.count_starts(task["id"]) for task in tasks} == {1}


@pytest.mark.parametrize("resources", ["{}", "{'cpu': True}"], ids=["threads", "processes"])
def test_modules_that_compute_at_the_same_time_are_each_started_once(
    tmp_path: Path, resources: str
) -> None:
    with agent(tmp_path, f"sqlite:///{tmp_path / 'agent.db'}", resources) as replica:
        check_completed_once(replica, send_at_once([replica], compute=0.6))
        assert "WARNING" not in replica.process.log


@pytest.mark.database
def test_replicas_keep_their_tasks_while_modules_compute(server: Database, tmp_path: Path) -> None:
    server.clear()
    with ExitStack() as stack:
        replicas = [stack.enter_context(agent(tmp_path, server.url)) for _ in range(2)]
        check_completed_once(replicas[0], send_at_once(replicas, compute=0.6))
        assert all("replica was lost" not in replica.process.log for replica in replicas)


@pytest.mark.clock
def test_modules_that_wait_run_together(tmp_path: Path) -> None:
    with agent(tmp_path, "memory") as replica:
        send(replica)
        started_at = time.monotonic()
        check_completed_once(replica, send_at_once([replica], 64, sleep=1))
        assert time.monotonic() - started_at < 64 / 8


def poll_page(
    replica: Replica, path: str, stopped: threading.Event
) -> tuple[list[float], Counter[int]]:
    """Read a page until *stopped*; return how long each response took, and the status codes."""
    times, codes = list[float](), Counter[int]()
    with httpx.Client(base_url=replica.client.base_url, timeout=60) as client:
        while not stopped.wait(0.05):
            started_at = time.monotonic()
            codes[client.get(path).status_code] += 1
            times.append(time.monotonic() - started_at)
    return times, codes


@pytest.mark.clock
def test_health_checks_do_not_wait_for_large_tasks_that_compute(tmp_path: Path) -> None:
    stopped = threading.Event()
    with (
        agent(tmp_path, f"sqlite:///{tmp_path / 'agent.db'}") as replica,
        ThreadPoolExecutor(2) as pool,
    ):
        send(replica)
        health, card = (
            pool.submit(poll_page, replica, path, stopped)
            for path in ("/health", "/.well-known/agent-card.json")
        )
        try:
            check_completed_once(
                replica, send_at_once([replica], 60, compute=0.2, text="x" * 1_000_000)
            )
        finally:
            stopped.set()
        (times, codes), (card_times, _) = health.result(), card.result()
        assert codes.keys() == {200}
        # the card is in memory: it shows how long the event loop itself is held up
        assert quantiles(times, n=100)[-1] < 2 * quantiles(card_times, n=100)[-1] + MAX_CHECK_WAIT
