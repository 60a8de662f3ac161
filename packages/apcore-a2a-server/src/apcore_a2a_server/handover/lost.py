"""A task that another process has left at work."""

from dataclasses import dataclass

from a2a import types as a2a
from apcore_a2a_store import Lease, TaskRecord
from apcore_a2a_store.states import WORKING

from apcore_a2a_server.shared.updates import NewState, set_status


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
