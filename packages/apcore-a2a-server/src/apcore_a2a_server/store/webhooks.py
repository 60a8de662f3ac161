"""Where the changes of a task are told, and to whom the journal hands them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from a2a import types as a2a
from apcore_a2a_core.records import Payload, Version

TOO_MANY = "too many notifications wait"
GONE = "the webhook is gone"
"""Why a notification is given up."""


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

    @property
    def host(self) -> str:
        """Where it is; empty when a store has given back what is no URL."""
        try:
            return urlsplit(self.config.url).hostname or ""
        except ValueError:
            return ""


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


@dataclass(frozen=True, slots=True)
class Notification:
    """What one webhook has to be told of one change: a row of an outbox.

    Attributes:
        task_id: the task's id.
        owner: the id of the principal that it belongs to.
        version: the number of the change.
        payload: the event that tells of it.
        webhook: who is to be told.
        attempts: how often it has been taken, this time included.
    """

    task_id: str
    owner: str
    version: int
    payload: Payload
    webhook: Webhook
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which notifications somebody has time for.

    Attributes:
        limit: how many.
        per_host: how many of one owner for one host.
        per_owner: how many of one owner.
        hosts: owners and hosts for which there is no time.
        owners: owners for whom there is none.
        seconds: how long they are kept from others.
    """

    limit: int
    per_host: int
    per_owner: int
    hosts: Sequence[tuple[str, str]] = ()
    owners: Sequence[str] = ()
    seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in an outbox.

    Attributes:
        pending: how many notifications.
        age: seconds since the oldest came.
        given_up: how many were given up just now, for there were too many.
    """

    pending: int = 0
    age: float = 0
    given_up: int = 0


class Outbox(Protocol):
    """What the journal hands transitions to that webhooks have to be told."""

    def put(self, transition: Transition, webhooks: Sequence[Webhook]) -> None:
        """Have each of *webhooks* told; returns at once."""
        ...

    def update(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        """The webhooks of a task are now these: no others are told anything any more."""
        ...
