"""Push configs of tasks, and the notifications that an outbox keeps for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlsplit

from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core.data import Task, TaskPushNotificationConfig
from apcore_a2a_core.errors import clean
from apcore_a2a_core.records import Payload, Version

TOO_MANY = "too many pending notifications"
"""Failure of a webhook whose owner has too many pending notifications."""
WEBHOOK_GONE = "the webhook was deleted"
"""Failure of a notification whose webhook was deleted."""
MAX_WEBHOOKS = 10
"""Webhooks that a task may have."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A push config of a task (A2A 1.0 §4.3.1), and whether it has failed.

    Attributes:
        config: the push config as its client sees it.
        version: the protocol version that it was created in, and is notified in.
        failure: the reason why nothing is delivered any more; empty while the webhook works.
        trace: the span of its task, as `str` writes a `Trace`; empty if it is unknown.
    """

    config: TaskPushNotificationConfig = field(repr=False)
    version: Version = "1.0"
    failure: str = ""
    trace: str = ""

    @property
    def host(self) -> str:
        """The host of its URL; empty if a store has returned an invalid URL."""
        try:
            return urlsplit(self.config.url).hostname or ""
        except ValueError:
            return ""


EditWebhooks: TypeAlias = Callable[[Sequence[Webhook]], Sequence[Webhook]]
"""Function that takes the existing webhooks of a task, and returns the new ones."""


def with_webhook(webhooks: Sequence[Webhook], webhook: Webhook) -> list[Webhook]:
    """Return *webhooks* with one more, which replaces the one with the same id.

    Raises:
        InvalidParamsError: There are `MAX_WEBHOOKS` others already.
    """
    others = [existing for existing in webhooks if existing.config.id != webhook.config.id]
    if len(others) >= MAX_WEBHOOKS:
        raise InvalidParamsError(f"A task has at most {MAX_WEBHOOKS} push configurations")
    return [*others, webhook]


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification of one event for one webhook: a row of an outbox.

    Attributes:
        task_id: the task's id.
        owner: the id of the principal that the task belongs to.
        version: the version of the event.
        payload: the event.
        webhook: the webhook as it was when the notification was claimed.
        attempts: how often the notification has been claimed, this time included.
        task: the task at the time of the event, if the store still has it.
    """

    task_id: str
    owner: str
    version: int
    payload: Payload
    webhook: Webhook
    attempts: int
    task: Task | None = None

    def __str__(self) -> str:
        config_id, host = clean(self.webhook.config.id, 60), clean(self.webhook.host, 100)
        return f"webhook {config_id} of task {self.task_id} at {host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Limits on the notifications that a replica claims at once.

    Attributes:
        limit: the most notifications to claim in all.
        per_host: the most notifications to claim of one owner for one host.
        per_owner: the most notifications to claim of one owner.
        hosts: pairs of owner and host to claim nothing for, as they have no free slot.
        owners: owners to claim nothing for, as they have no free slot.
        seconds: how long the claimed notifications are leased.
    """

    limit: int
    per_host: int
    per_owner: int
    hosts: Sequence[tuple[str, str]] = ()
    owners: Sequence[str] = ()
    seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """The pending notifications of an outbox.

    Attributes:
        pending: their number.
        age: the age of the oldest one, in seconds.
    """

    pending: int = 0
    age: float = 0
