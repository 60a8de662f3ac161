"""How soon one process knows of what another has done."""

import time

from tests.store.fleet import fleet
from tests.store.replicas import PATIENCE, Agent, notes
from tests.store.trials import Trial

LEASE = 15


def tell_others(trial: Trial, *, rounds: int, slack: float) -> None:
    """Cancel tasks and read streams at another replica, which hears of changes or does not."""
    stores, options = [trial.server.url] * 3, ["", "", "deaf"]
    with fleet(trial.home, stores, LEASE, options) as agents:
        one, other, deaf = agents.replicas
        holds = (
            trial.spread("cancel, told", cancels(trial, one, other, rounds), slack * 0.05),
            trial.spread("event, told", lags(one, other, rounds), slack * 0.1),
            trial.spread("cancel, not told", cancels(trial, deaf, other, rounds), slack * 2.5),
            trial.spread("event, not told", lags(one, deaf, rounds), slack * 1.5),
        )
    assert all(holds), "some of it took longer"


def cancels(trial: Trial, runs: Agent, asks: Agent, rounds: int) -> list[float]:
    """Seconds from each cancel to when its module is told, in another process."""
    asked: dict[str, float] = {}
    for _ in range(rounds):
        task_id = runs.start("once", seconds=PATIENCE)
        time.sleep(trial.random.uniform(0.05, 0.15))  # so that not all come at the same moment
        asked[task_id] = time.time()
        asks.ask("CancelTask", id=task_id)
    deadline = time.monotonic() + PATIENCE
    while not set(asked) <= set(told := _told(trial)):
        assert time.monotonic() < deadline, f"{len(set(asked) - set(told))} were not told"
        time.sleep(0.1)
    return [told[task_id] - at for task_id, at in asked.items()]


def _told(trial: Trial) -> dict[str, float]:
    """When modules were told that they are canceled, by the ids of their tasks."""
    return {note.task_id: note.at for note in notes(trial.home) if note.what == "cancel"}


def lags(runs: Agent, reads: Agent, steps: int) -> list[float]:
    """Seconds from each event of a task to when it is read, from another process."""
    found: list[float] = []
    with runs.stream("ticks", seconds=0.07, steps=steps) as events:
        _, first = next(events)
        for _, event in reads.follow(first["task"]["id"]):
            if "artifactUpdate" in event:
                (part,) = event["artifactUpdate"]["artifact"]["parts"]
                found.append(time.time() - part["data"]["seconds"])
    return found
