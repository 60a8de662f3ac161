"""Push configs of tasks, and the notifications that an outbox keeps for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlsplit

from a2a import types as a2a
from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core.errors import clean
from apcore_a2a_core.records import Payload, Version

TOO_MANY = "too many notifications wait"
GONE = "the webhook is gone"
"""Why a notification is given up."""
MAX_WEBHOOKS = 10
"""How many webhooks a task may have."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A push config of a task (A2A 1.0 §4.3.1), and what has become of it.

    Attributes:
        config: the configuration as its client sees it.
        version: the version of the protocol that it was set in, and is notified in.
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


Edit: TypeAlias = Callable[[Sequence[Webhook]], Sequence[Webhook]]
"""Makes the new webhooks of a task from the ones that it has."""


def with_webhook(webhooks: Sequence[Webhook], webhook: Webhook) -> list[Webhook]:
    """Return *webhooks* with one more, which replaces the one with the same id.

    Raises:
        InvalidParamsError: A task can't have so many.
    """
    others = [known for known in webhooks if known.config.id != webhook.config.id]
    if len(others) >= MAX_WEBHOOKS:
        raise InvalidParamsError(f"A task has at most {MAX_WEBHOOKS} push configurations")
    return [*others, webhook]


@dataclass(frozen=True, slots=True)
class Notification:
    """An event that one webhook is to be notified of: a row of an outbox.

    Attributes:
        task_id: the task's id.
        owner: the id of the principal that it belongs to.
        version: the number of the event.
        payload: the event.
        webhook: the webhook as it was when this was claimed.
        attempts: how often it has been claimed, this time included.
        task: the task as it was at that event, where the store has it at hand.
    """

    task_id: str
    owner: str
    version: int
    payload: Payload
    webhook: Webhook
    attempts: int
    task: a2a.Task | None = None

    def __str__(self) -> str:
        config_id, host = clean(self.webhook.config.id, 60), clean(self.webhook.host, 100)
        return f"webhook {config_id} of task {self.task_id} at {host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Which notifications a process has time for.

    Attributes:
        limit: how many.
        per_host: how many of one owner for one host.
        per_owner: how many of one owner.
        hosts: owners and hosts for which there is no time.
        owners: owners for whom there is none.
        seconds: how long they are kept from other processes.
    """

    limit: int
    per_host: int
    per_owner: int
    hosts: Sequence[tuple[str, str]] = ()
    owners: Sequence[str] = ()
    seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """The notifications that wait in an outbox.

    Attributes:
        pending: how many there are.
        age: seconds since the oldest came.
    """

    pending: int = 0
    age: float = 0
