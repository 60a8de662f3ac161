"""What becomes of runs whose process ends."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from apcore.cancel import CancelToken
from apcore_a2a_store import Journal, Lease, UnavailableError


class Run(Protocol):
    """What is asked of a run here."""

    token: CancelToken
    lease: Lease | None
    is_kept: bool


async def hand_over(journal: Journal, runs: Iterable[tuple[Run, "asyncio.Task[None]"]]) -> set[str]:
    """Let others run again, at once, what may be run again; the ids of these tasks."""
    found = [(run, task) for run, task in runs if run.lease and run.is_kept]
    for run, task in found:
        run.token.cancel()
        task.cancel()
    leases = [run.lease for run, _ in found if run.lease]
    for lease in leases:
        journal.lose(lease.task_id)
    if leases:
        with suppress(UnavailableError):  # then they end by themselves
            await journal.store.release(leases)
    return {lease.task_id for lease in leases}
