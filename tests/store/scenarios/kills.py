"""Processes that are gone at once."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.store.fleet import CLAIMED, Fleet, ended, settled
from tests.store.invariants import unfinished
from tests.store.trials import Trial

from .work import begin, end, three


def kill_one_of_three(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float
) -> None:
    """Kill one of three replicas with its tasks at work, and start it again."""
    with three(trial, lease) as (agents, receiver, clients):
        for number in range(rounds):
            begin(trial, clients, tasks, seconds)
            trial.say(f"round {number + 1} of {rounds}: {unfinished(trial.server.url)[0]} at work")
            _kill(trial, agents, lease + 2 + seconds)
            end(trial, clients, receiver)


def _kill(trial: Trial, agents: Fleet, limit: float) -> None:
    number = trial.random.randrange(len(agents.replicas))
    agents.kill(number)
    killed = time.monotonic()
    with ThreadPoolExecutor(1) as aside:
        another = aside.submit(agents.begin, number)
        at = ended(trial.server.url)
        another.result()
    trial.took("until all tasks of a killed replica had ended", at - killed, limit)
    told = settled(trial.server.url)
    trial.took("until all webhooks of these had been told", told - killed, limit + CLAIMED)
