"""Where the changes of a task are told, and to whom the journal hands them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from a2a import types as a2a

Version: TypeAlias = Literal["1.0", "0.3"]
Payload: TypeAlias = a2a.Task | a2a.TaskStatusUpdateEvent | a2a.TaskArtifactUpdateEvent


@dataclass(frozen=True, slots=True)
class Webhook:
    """A push configuration of a task (A2A 1.0 §4.3.1), and what has become of it.

    Attributes:
        config: the configuration as its client sees it.
        version: the version of the protocol that it was set in, and is told in.
        failure: why nothing is sent there any more; empty as long as something is.
    """

    config: a2a.TaskPushNotificationConfig = field(repr=False)
    version: Version = "1.0"
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """A task that has come into a state.

    Attributes:
        task: the task as it is then; its artifacts may still grow, and its state stays.
        owner: the id of the principal that it belongs to.
        version: the number of the change.
        payload: the event that tells of it.
    """

    task: a2a.Task
    owner: str
    version: int
    payload: Payload


class Outbox(Protocol):
    """What the journal hands transitions to that webhooks have to be told."""

    def put(self, transition: Transition, webhooks: Sequence[Webhook]) -> None:
        """Have each of *webhooks* told; returns at once."""
        ...

    def update(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """The webhooks of a task are now these: no others are told anything any more."""
        ...
