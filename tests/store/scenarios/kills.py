"""Replicas that are killed."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.store.fleet import CLAIM_SECONDS, Fleet, wait_for_deliveries, wait_for_tasks
from tests.store.invariants import count_unfinished
from tests.store.trials import Trial

from .work import finish_tasks, start_tasks, three_replicas


def kill_one_of_three(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float
) -> None:
    """Kill one of three replicas while it runs tasks, and start it again."""
    with three_replicas(trial, lease) as (agents, receiver, clients):
        for number in range(rounds):
            start_tasks(trial, clients, tasks, seconds)
            trial.say(
                f"round {number + 1} of {rounds}: {count_unfinished(trial.server.url)[0]} at work"
            )
            _kill_and_restart(trial, agents, lease + 2 + seconds)
            finish_tasks(trial, clients, receiver)


def _kill_and_restart(trial: Trial, agents: Fleet, limit: float) -> None:
    number = trial.random.randrange(len(agents.replicas))
    agents.kill(number)
    killed_at = time.monotonic()
    with ThreadPoolExecutor(1) as executor:
        restart = executor.submit(agents.restart, number)
        ended_at = wait_for_tasks(trial.server.url)
        restart.result()
    trial.record_duration(
        "until all tasks of a killed replica had ended", ended_at - killed_at, limit
    )
    delivered_at = wait_for_deliveries(trial.server.url)
    trial.record_duration(
        "until all their notifications were delivered",
        delivered_at - killed_at,
        limit + CLAIM_SECONDS,
    )
