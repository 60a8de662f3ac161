"""What becomes of runs whose process ends, or can't say how they have ended."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from apcore.cancel import CancelToken
from apcore_a2a_store import Journal, Lease, UnavailableError

logger = logging.getLogger(__name__)


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
        await journal.store.release(leases)
    return {lease.task_id for lease in leases}


def is_left(journal: Journal, task_id: str, error: BaseException) -> bool:
    """Whether a task is left to who claims it: its run has ended, and the store can't be used."""
    if not isinstance(error, UnavailableError):
        return False
    logger.error("The end of task %s could not be written", task_id)
    journal.lose(task_id)
    return True
