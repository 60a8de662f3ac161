"""Replicas that are killed."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.store.fleet import CLAIM_SECONDS, Fleet, wait_for_deliveries, wait_for_tasks
from tests.store.invariants import unfinished
from tests.store.trials import Trial

from .work import finish_tasks, start_tasks, three_replicas


def kill_one_of_three(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float
) -> None:
    """Kill one of three replicas while it runs tasks, and start it again."""
    with three_replicas(trial, lease) as (agents, receiver, clients):
        for number in range(rounds):
            start_tasks(trial, clients, tasks, seconds)
            trial.say(f"round {number + 1} of {rounds}: {unfinished(trial.server.url)[0]} at work")
            _kill(trial, agents, lease + 2 + seconds)
            finish_tasks(trial, clients, receiver)


def _kill(trial: Trial, agents: Fleet, limit: float) -> None:
    number = trial.random.randrange(len(agents.replicas))
    agents.kill(number)
    killed = time.monotonic()
    with ThreadPoolExecutor(1) as executor:
        restarted = executor.submit(agents.restart, number)
        ended = wait_for_tasks(trial.server.url)
        restarted.result()
    trial.took("until all tasks of a killed replica had ended", ended - killed, limit)
    delivered = wait_for_deliveries(trial.server.url)
    trial.took(
        "until all their notifications were delivered", delivered - killed, limit + CLAIM_SECONDS
    )
