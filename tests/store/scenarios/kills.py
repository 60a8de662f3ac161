"""Processes that are gone at once."""

import time

from tests.push.receiver import receiving
from tests.store.clients import Clients
from tests.store.fleet import Fleet, fleet, settled
from tests.store.invariants import check, unfinished
from tests.store.trials import Trial

RUN = 3.0
"""Seconds that each task works."""


def kill_one_of_three(trial: Trial, *, rounds: int, tasks: int, lease: float) -> None:
    """Kill one of three replicas with its tasks at work, and start it again."""
    with (
        fleet(trial.home, [trial.server.url] * 3, lease) as agents,
        receiving() as receiver,
        Clients(agents.agent, receiver.url) as clients,
    ):
        for number in range(rounds):
            begin(trial, clients, tasks)
            trial.say(f"round {number + 1} of {rounds}: {unfinished(trial.server.url)} at work")
            _kill(trial, agents, lease)
            clients.finish()
            clients.look()
            check(trial.server.url, trial.home, clients.told)


def begin(trial: Trial, clients: Clients, tasks: int) -> None:
    """Have tasks of all kinds at work, of equal numbers, in any order."""
    kinds = [kind for kind in ("once", "again", "steps", "hooked") for _ in range(tasks // 4)]
    trial.random.shuffle(kinds)
    for kind in kinds:
        if kind == "steps":
            clients.stream("steps", seconds=RUN / 10, steps=10)
        else:
            skill = trial.random.choice(["once", "again"]) if kind == "hooked" else kind
            clients.send(skill, hooked=kind == "hooked", seconds=RUN)
    clients.wait()


def _kill(trial: Trial, agents: Fleet, lease: float) -> None:
    number = trial.random.randrange(len(agents.replicas))
    agents.kill(number)
    killed = time.monotonic()
    agents.begin(number)
    ended = settled(trial.server.url)
    trial.took("until all tasks of a killed replica had ended", ended - killed, lease + 2 + RUN)
