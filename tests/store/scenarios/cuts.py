"""A replica that loses its connection to the database while the others keep theirs."""

import asyncio
import time
from typing import Any

import asyncpg

from tests.store.fleet import Fleet, wait_for_tasks
from tests.store.proxies import CuttableLink
from tests.store.replicas import TIMEOUT, Note, Replica, notes
from tests.store.trials import Trial

from .outages import RECOVERY, check_refused, wait_until_serving
from .work import finish_tasks, start_tasks, three_replicas

READ_TIMEOUT = 3.0
"""Seconds after which a read fails without the database, with a lease of up to 15 s."""
CHANGE_RETRY_SHARE = 0.5
"""Fraction of the lease for which a change is retried; its last try may take as long as a read."""
EXPIRES = "SELECT id, extract(epoch FROM expires)::float8 FROM apcore_a2a.tasks WHERE id = ANY($1)"
driver: Any = asyncpg


def cut_one_off(
    trial: Trial, *, rounds: int, tasks: int, seconds: float, lease: float, cut: float
) -> None:
    """Cut one of three replicas off from the database for longer than its leases last."""
    url = trial.server.url
    with (
        CuttableLink(trial.server.port) as link,
        three_replicas(trial, lease, [link.rerouted_url(url), url, url]) as (
            agents,
            receiver,
            clients,
        ),
    ):
        for number in range(rounds):
            start_tasks(trial, clients, tasks, seconds)
            trial.say(f"round {number + 1} of {rounds}")
            link.cut()
            started_at = time.monotonic()
            _check_takeover(trial, agents, started_at, lease, seconds)
            start_tasks(trial, clients, tasks // 4, 0)
            time.sleep(max(started_at + cut - time.monotonic(), 0))
            link.heal()
            healed_at = time.monotonic()
            wait_until_serving(agents.replicas[0])
            trial.record_duration("until it served again", time.monotonic() - healed_at, RECOVERY)
            finish_tasks(trial, clients, receiver)


def _check_takeover(
    trial: Trial, agents: Fleet, cut_at: float, lease: float, seconds: float
) -> None:
    """Check that a cut-off replica stops its runs in time and that the others take over."""
    replica, now = agents.replicas[0], time.time()
    lease_ends = asyncio.run(_lease_ends(trial.server.url, working_tasks(replica)))
    assert lease_ends, "no task was running"
    check_refused(trial, replica, "GetTask", READ_TIMEOUT, id="unknown")
    limit = READ_TIMEOUT + CHANGE_RETRY_SHARE * lease
    check_refused(trial, replica, "CancelTask", limit, id=next(iter(lease_ends)))
    last_notes = _wait_for_last_notes(replica, set(lease_ends))
    seconds_after_expiry = {note.task_id: note.at - lease_ends[note.task_id] for note in last_notes}
    stopped, limit = max(note.at for note in last_notes) - now, min(lease_ends.values()) - now
    trial.record_duration("until work of a cut-off replica had stopped", stopped, limit)
    assert max(seconds_after_expiry.values()) < 0, (
        f"tasks ran after their leases had expired: {seconds_after_expiry}"
    )
    taken_over_at = wait_for_tasks(trial.server.url)
    trial.record_duration(
        "until others had ended its tasks", taken_over_at - cut_at, lease + 2 + seconds
    )
    assert replica.process.is_running, replica.process.log


def working_tasks(replica: Replica) -> list[str]:
    """Return the tasks whose modules are running in a replica."""
    own_notes = [note for note in notes(replica.home) if note.process == replica.process.id]
    begun_ids = {note.task_id for note in own_notes if note.event == "begin"}
    return [*begun_ids - {note.task_id for note in own_notes if note.event != "begin"}]


async def _lease_ends(address: str, tasks: list[str]) -> dict[str, float]:
    """Return when the leases of tasks end, in seconds since 1970."""
    connection = await driver.connect(address)
    try:
        return {task_id: at for task_id, at in await connection.fetch(EXPIRES, tasks) if at}
    finally:
        await connection.close()


def _wait_for_last_notes(replica: Replica, tasks: set[str]) -> list[Note]:
    """Wait until a replica has stopped all these tasks; return the last note of each."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        own_notes = [n for n in notes(replica.home) if n.process == replica.process.id]
        last_notes = [n for n in own_notes if n.task_id in tasks and n.event != "begin"]
        if {note.task_id for note in last_notes} == tasks:
            return last_notes
        assert time.monotonic() < deadline, f"still running: {len(tasks) - len(last_notes)}"
        time.sleep(0.05)
