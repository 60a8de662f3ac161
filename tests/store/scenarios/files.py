"""Kills of a single process that stores its tasks in a SQLite file."""

import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import httpx
from apcore_a2a_server.store import Store

from tests.store.invariants import Observed, check, read, start_counts
from tests.store.replicas import TIMEOUT, Replica, replica
from tests.store.trials import Trial

LEASE = 1.5  # seconds
SENDERS = 4  # concurrent clients


def kill_agent_with_sqlite_file(trial: Trial, *, rounds: int) -> None:
    """Kill an agent with a SQLite file at random moments while four clients start tasks."""
    path, observed = trial.home / "agent.db", Observed()
    for number in range(1, rounds + 1):
        with replica(trial.home, f"sqlite:///{path}", LEASE) as agent:
            killed = threading.Event()
            with ThreadPoolExecutor(SENDERS) as threads:
                for _ in range(SENDERS):
                    threads.submit(_keep_sending, agent, observed, killed, trial.random)
                killed.wait(trial.random.uniform(0.2, 1))
                agent.process.signal(signal.SIGKILL)
                killed.set()
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if number % 20 == 0 or number == rounds:
            _check_store(trial, path, observed)
            trial.say(f"{number} of {rounds} kills, {len(observed.tasks)} tasks acknowledged")
    assert len(observed.tasks) > 5 * rounds, f"{len(observed.tasks)} tasks are too few"


def _keep_sending(
    agent: Replica, observed: Observed, killed: threading.Event, random: Random
) -> None:
    """Start tasks until the agent is gone."""
    while not killed.is_set():
        skill = random.choice(["once", "again", "again", "asks"])
        try:
            observed.tasks.add(agent.start(skill, seconds=random.choice([0, 0.05, 1])))
        except (httpx.HTTPError, KeyError):  # the agent was killed, or returned an error
            return


def _check_store(trial: Trial, path: Path, observed: Observed) -> None:
    """Wait until all tasks have ended or paused, then check the store."""
    address = f"sqlite:///{path}"
    with replica(trial.home, address, LEASE) as agent:
        # a task that was killed three times starts again a minute after its last start
        deadline = time.monotonic() + max(Store.restart_pauses) + TIMEOUT
        while running := {*read(address).unfinished} - _paused(address):
            assert time.monotonic() < deadline, f"{running} did not end"
            time.sleep(0.1)
        observed.paused.update(_paused(address))
        unknown = observed.tasks - observed.paused - {*observed.ends}
        observed.ends.update({task_id: agent.state(task_id) for task_id in unknown})
    check(address, trial.home, observed)
    starts = start_counts(trial.home)
    assert not [task_id for task_id in observed.paused if starts[task_id]]


def _paused(address: str) -> set[str]:
    """Return the tasks that wait for approval, even those never acknowledged to a client."""
    stored = read(address).tasks
    return {task_id for task_id, task in stored.items() if task.state == "input-required"}
