"""A database that is gone for a while."""

import time

import httpx

from tests.store.fleet import Fleet
from tests.store.replicas import PATIENCE, Replica
from tests.store.trials import Trial

from .work import begin, end, three

BACK = 5.0
"""Seconds in which all serve again."""


def lose_the_database(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float, gone: float
) -> None:
    """Stop PostgreSQL at once with tasks at work and streams open, and start it again."""
    with three(trial, lease) as (agents, receiver, clients):
        for number in range(rounds):
            trial.say(f"round {number + 1} of {rounds}")
            begin(trial, clients, tasks, seconds)
            trial.server.stop("immediate")
            for replica in agents.replicas:
                refused(trial, replica, "GetTask", id="unknown")
            time.sleep(gone)
            trial.server.start()
            _return(trial, agents)
            end(trial, clients, receiver)


def refused(
    trial: Trial, replica: Replica, method: str, limit: float = 1, **params: object
) -> None:
    """Have a replica without a database say that it is to be asked again, and that it is ill."""
    begun = time.monotonic()
    answer = replica.client.post("/", json=replica.request(method, **params))
    trial.took(f"until {method} was answered with 503", time.monotonic() - begun, limit)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
    begun = time.monotonic()
    assert replica.client.get("/health").status_code == httpx.codes.SERVICE_UNAVAILABLE
    trial.took("until /health said unhealthy", time.monotonic() - begun, limit=1)


def _return(trial: Trial, agents: Fleet) -> None:
    """Wait until all serve again."""
    begun = time.monotonic()
    for replica in agents.replicas:
        serves(replica)
    trial.took("until all served again", time.monotonic() - begun, BACK)


def serves(replica: Replica) -> None:
    """Wait until a replica is well, and runs tasks."""
    deadline = time.monotonic() + PATIENCE
    while replica.client.get("/health").status_code != httpx.codes.OK:
        assert time.monotonic() < deadline, "it is not well"
        assert replica.process.runs, replica.process.log
        time.sleep(0.05)
    task_id = replica.start("once", seconds=0)
    assert replica.ended(task_id) == ["completed"], replica.task(task_id)
