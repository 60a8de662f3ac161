"""Replicas that are suspended and then continue."""

import signal
import time

from tests.store.fleet import Fleet, wait_for_deliveries, wait_for_tasks
from tests.store.replicas import Note, notes
from tests.store.trials import Trial

from .work import finish_tasks, start_tasks, three_replicas

WAKING = 1.5
"""Seconds that a resumed replica gets to notice that its leases are lost."""


def sleep_past_the_lease(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float
) -> None:
    """Suspend one of three replicas for longer than its leases last, then resume it."""
    with three_replicas(trial, lease) as (agents, receiver, clients):
        for number in range(rounds):
            start_tasks(trial, clients, tasks, seconds)
            late_notes = _sleep(trial, agents, lease + 2 + seconds)
            trial.say(f"round {number + 1} of {rounds}: {len(late_notes)} notes after the resume")
            assert late_notes, "no task was running"
            finish_tasks(trial, clients, receiver)


def _sleep(trial: Trial, agents: Fleet, limit: float) -> list[Note]:
    """Suspend a replica until others have ended its tasks; return its notes after it resumes."""
    number = trial.random.randrange(len(agents.replicas))
    agents.signal(number, signal.SIGSTOP)
    stopped_at = time.monotonic()
    ended_at = wait_for_tasks(trial.server.url)
    trial.record_duration(
        "until all tasks of a suspended replica had ended", ended_at - stopped_at, limit
    )
    wait_for_deliveries(trial.server.url)
    resumed_at = time.time()
    agents.signal(number, signal.SIGCONT)
    time.sleep(WAKING)
    process = agents.replicas[number].process
    assert process.is_running, process.log
    return [
        note for note in notes(trial.home) if note.process == process.id and note.at >= resumed_at
    ]
