"""The part of a task store's interface for the operators of the agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apcore_a2a_core.data import TaskState

from .replicas import Replica


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """The number and the age of tasks that have not ended.

    Attributes:
        counts: The number of tasks by state.
        oldest: The time of the oldest status by state, in seconds since 1970.
    """

    counts: Mapping[TaskState, int]
    oldest: Mapping[TaskState, float]


class OperatorPort:
    """Methods for operators; a store need not override those that it does not support."""

    async def open_tasks(self) -> OpenTasks | None:
        """Count the open tasks of all processes; return None if the store can't count them."""
        return None

    async def count_failed_webhooks(self) -> int | None:
        """Return how many webhooks of all tasks have failed; None if that is unknown."""
        return None

    async def owners(self, prefix: str) -> Sequence[str]:
        """Return the task owners whose names begin with a prefix."""
        return ()

    async def delete_ended(self, owner: str) -> int | None:
        """Delete an owner's tasks that have ended, with everything that belongs to them.

        Returns:
            The number of deleted tasks; None if the store can't delete them.
        """
        return None

    async def spans(self, task_id: str) -> str:
        """Return the spans that changes have added to a task, cut off at `MAX_SPANS_SIZE`."""
        return ""

    async def replicas(self) -> Sequence[Replica]:
        """Return the replicas that share the store and have reported lately."""
        return ()

    async def remove_replica(self, replica_id: str) -> None:
        """Remove a replica that shuts down and does not report itself any more."""

    async def lease_holders(self, task_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of the replicas that have a lease of these tasks, by task id."""
        return {}
