"""Processes that are stopped, and go on as if nothing had happened."""

import signal
import time

from tests.store.fleet import Fleet, ended, settled
from tests.store.replicas import Note, notes
from tests.store.trials import Trial

from .work import begin, end, three

WAKING = 1.5
"""Seconds that what has woken up may still take."""


def sleep_past_the_lease(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float
) -> None:
    """Stop one of three replicas for longer than its leases last, and let it go on."""
    with three(trial, lease) as (agents, receiver, clients):
        for number in range(rounds):
            begin(trial, clients, tasks, seconds)
            woken = _sleep(trial, agents, lease + 2 + seconds)
            trial.say(f"round {number + 1} of {rounds}: it woke up in {len(woken)} tasks")
            assert woken, "nothing was at work"
            end(trial, clients, receiver)


def _sleep(trial: Trial, agents: Fleet, limit: float) -> list[Note]:
    """Let one sleep until others have ended its tasks; what its modules note afterwards."""
    number = trial.random.randrange(len(agents.replicas))
    agents.signal(number, signal.SIGSTOP)
    stopped = time.monotonic()
    over = ended(trial.server.url)
    trial.took("until all tasks of a stopped replica had ended", over - stopped, limit)
    settled(trial.server.url)
    at = time.time()
    agents.signal(number, signal.SIGCONT)
    time.sleep(WAKING)
    process = agents.replicas[number].process
    assert process.runs, process.log
    return [note for note in notes(trial.home) if note.process == process.id and note.at >= at]
