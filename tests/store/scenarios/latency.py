"""The delay until one replica sees the changes of another."""

import time

from tests.store.fleet import fleet
from tests.store.replicas import TIMEOUT, Agent, notes
from tests.store.trials import Trial

LEASE = 15  # seconds


def measure_latency(trial: Trial, *, rounds: int, slack: float) -> None:
    """Cancel tasks and read streams at another replica, with and without change notifications."""
    stores, options = [trial.server.url] * 3, ["", "", "polling"]
    with fleet(trial.home, stores, LEASE, options) as agents:
        first, second, polling = agents.replicas
        within_limits = (
            trial.record_durations(
                "cancel, notified", cancel_delays(trial, first, second, rounds), slack * 0.05
            ),
            trial.record_durations(
                "event, notified", event_delays(first, second, rounds), slack * 0.1
            ),
            trial.record_durations(
                "cancel, polled", cancel_delays(trial, polling, second, rounds), slack * 2.5
            ),
            trial.record_durations(
                "event, polled", event_delays(first, polling, rounds), slack * 1.5
            ),
        )
    assert all(within_limits), "some delays were too long"


def cancel_delays(trial: Trial, runner: Agent, caller: Agent, rounds: int) -> list[float]:
    """Return the seconds from each cancel to its arrival at the module, on another replica."""
    requested: dict[str, float] = {}
    for _ in range(rounds):
        task_id = runner.start("once", seconds=TIMEOUT)
        # cancel at various points of the polling interval
        time.sleep(trial.random.uniform(0.05, 0.15))
        requested[task_id] = time.time()
        caller.ask("CancelTask", id=task_id)
    deadline = time.monotonic() + TIMEOUT
    while not set(requested) <= set(canceled := _cancel_times(trial)):
        missing = len(set(requested) - set(canceled))
        assert time.monotonic() < deadline, f"{missing} were not canceled"
        time.sleep(0.1)
    return [canceled[task_id] - at for task_id, at in requested.items()]


def _cancel_times(trial: Trial) -> dict[str, float]:
    """Return when modules were canceled, by the ids of their tasks."""
    return {note.task_id: note.at for note in notes(trial.home) if note.event == "cancel"}


def event_delays(runner: Agent, reader: Agent, steps: int) -> list[float]:
    """Return the seconds from each event of a task to its arrival, on another replica."""
    delays: list[float] = []
    with runner.stream("ticks", seconds=0.07, steps=steps) as events:
        _, first = next(events)
        for _, event in reader.follow(first["task"]["id"]):
            if "artifactUpdate" in event:
                (part,) = event["artifactUpdate"]["artifact"]["parts"]
                delays.append(time.time() - part["data"]["seconds"])
    return delays
