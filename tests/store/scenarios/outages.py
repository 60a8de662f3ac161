"""A database that is down for a while."""

import time

import httpx

from tests.store.fleet import Fleet
from tests.store.replicas import TIMEOUT, Replica
from tests.store.trials import Trial

from .work import finish_tasks, start_tasks, three_replicas

RECOVERY = 5.0
"""Seconds after an outage within which replicas must serve again."""


def lose_the_database(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float, downtime: float
) -> None:
    """Crash PostgreSQL while tasks run and streams are open, and start it again."""
    with three_replicas(trial, lease) as (agents, receiver, clients):
        for number in range(rounds):
            trial.say(f"round {number + 1} of {rounds}")
            start_tasks(trial, clients, tasks, seconds)
            trial.server.stop("immediate")
            for replica in agents.replicas:
                check_refused(trial, replica, "GetTask", id="unknown")
            time.sleep(downtime)
            trial.server.start()
            _wait_for_recovery(trial, agents)
            finish_tasks(trial, clients, receiver)


def check_refused(
    trial: Trial, replica: Replica, method: str, limit: float = 1, **params: object
) -> None:
    """Check that a replica without its database answers 503 and is unhealthy."""
    started_at = time.monotonic()
    answer = replica.client.post("/", json=replica.request(method, **params))
    trial.record_duration(
        f"until {method} was answered with 503", time.monotonic() - started_at, limit
    )
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
    started_at = time.monotonic()
    assert replica.client.get("/health").status_code == httpx.codes.SERVICE_UNAVAILABLE
    trial.record_duration("until /health said unhealthy", time.monotonic() - started_at, limit=1)


def _wait_for_recovery(trial: Trial, agents: Fleet) -> None:
    """Wait until all replicas serve again."""
    started_at = time.monotonic()
    for replica in agents.replicas:
        wait_until_serving(replica)
    trial.record_duration("until all served again", time.monotonic() - started_at, RECOVERY)


def wait_until_serving(replica: Replica) -> None:
    """Wait until a replica is healthy and runs tasks."""
    deadline = time.monotonic() + TIMEOUT
    while replica.client.get("/health").status_code != httpx.codes.OK:
        assert time.monotonic() < deadline, "the replica is unhealthy"
        assert replica.process.is_running, replica.process.log
        time.sleep(0.05)
    task_id = replica.start("once", seconds=0)
    assert replica.wait_for_end(task_id) == ["completed"], replica.task(task_id)
