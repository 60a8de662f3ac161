"""Replicas that can't reach the database any more, while others can."""

import asyncio
import time
from typing import Any

import asyncpg

from tests.store.fleet import Fleet, ended
from tests.store.proxies import Wire
from tests.store.replicas import PATIENCE, Note, Replica, notes
from tests.store.trials import Trial

from .outages import BACK, refused, serves
from .work import begin, end, three

ANSWER = 3.0
"""Seconds in which a question is answered without the database, with a lease of up to 15 s."""
PATIENCE_OF_CHANGES = 0.5
"""The part of a lease for which changes wait in addition."""
EXPIRES = "SELECT id, extract(epoch FROM expires)::float8 FROM apcore_a2a.tasks WHERE id = ANY($1)"
driver: Any = asyncpg


def cut_one_off(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float, cut: float
) -> None:
    """Cut one of three replicas off from the database for longer than its leases last."""
    url = trial.server.url
    with (
        Wire(trial.server.port) as wire,
        three(trial, lease, [wire.leading_to(url), url, url]) as (agents, receiver, clients),
    ):
        for number in range(rounds):
            begin(trial, clients, tasks, seconds)
            trial.say(f"round {number + 1} of {rounds}")
            wire.cut()
            begun = time.monotonic()
            _without(trial, agents, begun, lease, seconds)
            begin(trial, clients, tasks // 4, 0)
            time.sleep(max(begun + cut - time.monotonic(), 0))
            wire.heal()
            healed = time.monotonic()
            serves(agents.replicas[0])
            trial.took("until it served again", time.monotonic() - healed, BACK)
            end(trial, clients, receiver)


def _without(trial: Trial, agents: Fleet, begun: float, lease: float, seconds: float) -> None:
    """What a replica does that is cut off, and what the others do."""
    replica, at = agents.replicas[0], time.time()
    ends = asyncio.run(_ends(trial.server.url, at_work(replica)))
    assert ends, "nothing was at work"
    refused(trial, replica, "GetTask", ANSWER, id="unknown")
    limit = ANSWER + PATIENCE_OF_CHANGES * lease
    refused(trial, replica, "CancelTask", limit, id=next(iter(ends)))
    canceled = _canceled(replica, set(ends))
    late = {note.task_id: note.at - ends[note.task_id] for note in canceled}
    stopped, limit = max(note.at for note in canceled) - at, min(ends.values()) - at
    trial.took("until work of a cut-off replica had stopped", stopped, limit)
    assert max(late.values()) < 0, f"work under leases of others: {late}"
    over = ended(trial.server.url)
    trial.took("until others had ended its tasks", over - begun, lease + 2 + seconds)
    assert replica.process.runs, replica.process.log


def at_work(replica: Replica) -> list[str]:
    """The tasks whose modules have begun in a process, and not ended."""
    own = [note for note in notes(replica.home) if note.process == replica.process.id]
    begun = {note.task_id for note in own if note.what == "begin"}
    return [*begun - {note.task_id for note in own if note.what != "begin"}]


async def _ends(address: str, tasks: list[str]) -> dict[str, float]:
    """When the leases of tasks end, in seconds since 1970."""
    connection = await driver.connect(address)
    try:
        return {task_id: at for task_id, at in await connection.fetch(EXPIRES, tasks) if at}
    finally:
        await connection.close()


def _canceled(replica: Replica, tasks: set[str]) -> list[Note]:
    """Wait until a process has stopped all these tasks: what it has noted last of them."""
    deadline = time.monotonic() + PATIENCE
    while True:
        own = [n for n in notes(replica.home) if n.process == replica.process.id]
        found = [n for n in own if n.task_id in tasks and n.what != "begin"]
        if {note.task_id for note in found} == tasks:
            return found
        assert time.monotonic() < deadline, f"work goes on: {len(tasks) - len(found)}"
        time.sleep(0.05)
