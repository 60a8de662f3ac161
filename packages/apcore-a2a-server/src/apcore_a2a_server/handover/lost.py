"""A task that another process has left at work."""

import logging
from dataclasses import dataclass

from a2a import types as a2a
from apcore_a2a_store import Journal, Lease, TaskRecord, UnavailableError
from apcore_a2a_store.states import WORKING

from apcore_a2a_server.errors import StaleTaskError
from apcore_a2a_server.shared.updates import NewState, set_status

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restart:
    """The task works from its beginning on: what it has made so far is gone."""

    message: a2a.Message
    resume: bytes | None

    def apply(self, record: TaskRecord) -> a2a.TaskStatusUpdateEvent:
        """Begin anew, visibly."""
        del record.task.artifacts[:]
        return set_status(record, NewState(WORKING, self.message, resume=self.resume))


@dataclass(frozen=True, slots=True)
class Lost:
    """What begins such a task anew, and the right to do so."""

    restart: Restart
    lease: Lease


def left_to_others(journal: Journal, task_id: str, error: UnavailableError) -> Exception:
    """Let others have a task, when the store can't be told what has become of it; what to raise."""
    if not journal.store.is_durable:
        return error
    logger.error("What has become of task %s could not be written", task_id)
    journal.lose(task_id)
    return StaleTaskError()
