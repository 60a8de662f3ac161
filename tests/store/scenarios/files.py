"""One process over a file, gone at once."""

import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import httpx

from tests.store.invariants import Told, begun, check, read
from tests.store.replicas import PATIENCE, Replica, replica
from tests.store.trials import Trial

LEASE = 1.5
SENDERS = 4


def kill_over_a_file(trial: Trial, *, rounds: int) -> None:
    """Kill an agent over a file at random moments, while four clients begin tasks."""
    path, told = trial.home / "agent.db", Told()
    for number in range(1, rounds + 1):
        with replica(trial.home, f"sqlite:///{path}", LEASE) as agent:
            ended = threading.Event()
            with ThreadPoolExecutor(SENDERS) as threads:
                for _ in range(SENDERS):
                    threads.submit(_keep_sending, agent, told, ended, trial.random)
                ended.wait(trial.random.uniform(0.2, 1))
                agent.process.signal(signal.SIGKILL)
                ended.set()
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if number % 20 == 0 or number == rounds:
            _hold(trial, path, told)
            trial.say(f"{number} of {rounds} kills, {len(told.tasks)} tasks are known")
    assert len(told.tasks) > 5 * rounds, f"{len(told.tasks)} tasks are no load"


def _keep_sending(agent: Replica, told: Told, ended: threading.Event, random: Random) -> None:
    """Begin tasks until the agent is gone."""
    while not ended.is_set():
        skill = random.choice(["once", "again", "again", "asks"])
        try:
            told.tasks.add(agent.start(skill, seconds=random.choice([0, 0.05, 1])))
        except (httpx.HTTPError, KeyError):  # it is gone
            return


def _hold(trial: Trial, path: Path, told: Told) -> None:
    """Let everything end that can, and look at what has come of it."""
    address = f"sqlite:///{path}"
    with replica(trial.home, address, LEASE) as agent:
        deadline = time.monotonic() + PATIENCE
        while left := {*read(address).working} - _paused(address):
            assert time.monotonic() < deadline, f"{left} did not end"
            time.sleep(0.1)
        told.paused.update(_paused(address))
        unknown = told.tasks - told.paused - {*told.ends}
        told.ends.update({task_id: agent.state(task_id) for task_id in unknown})
    check(address, trial.home, told)
    starts = begun(trial.home)
    assert not [task_id for task_id in told.paused if starts[task_id]]


def _paused(address: str) -> set[str]:
    """The tasks that wait for approval, also those whose senders know nothing of them."""
    kept = read(address).tasks
    return {task_id for task_id, task in kept.items() if task.state == "input-required"}
