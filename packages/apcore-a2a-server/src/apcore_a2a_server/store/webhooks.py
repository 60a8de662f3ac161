"""Webhooks of tasks, their notifications, and delivery attempts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core.data import Task, TaskPushNotificationConfig
from apcore_a2a_core.errors import clean
from apcore_a2a_core.records import Payload, Version

TOO_MANY_PENDING = "too many pending notifications"
"""Failure of a webhook whose owner has too many pending notifications."""
WEBHOOK_GONE = "the webhook was deleted"
"""Failure of a notification whose webhook was deleted."""
MAX_WEBHOOKS = 10
"""Maximum number of webhooks of a task."""
MAX_KEPT_ATTEMPTS = 20
"""Maximum number of attempts that are kept for a webhook."""
MAX_ATTEMPTS_SIZE = 1600
"""Maximum size of a webhook's attempts as text, in characters: a line has at most 80."""

AttemptResult: TypeAlias = Literal["delivered", "retried", "failed"]
AttemptReason: TypeAlias = Literal[
    "", "status", "timeout", "unresolved", "not_allowed", "connection", "not_encoded"
]
"""The reason why an attempt has not delivered its notification, without text from the receiver.

`status` is any status but 2xx; `connection` includes TLS errors and broken responses.
"""
WebhookFilter: TypeAlias = Literal["all", "active", "failed"]


@dataclass(frozen=True, slots=True)
class Webhook:
    """A push config of a task (A2A 1.0 §4.3.1), and whether it has failed.

    Attributes:
        config: the push config as its client sees it.
        version: the protocol version of the request that created it, and of its notifications.
        failure: the reason why nothing is delivered any more; empty while the webhook works.
        trace: the `Trace` of its task as text; empty if the trace is unknown.
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
    """Return *webhooks* with *webhook*, which replaces any with the same id.

    Raises:
        InvalidParamsError: The task already has `MAX_WEBHOOKS` others.
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
        owner: the owner of the task, as in its `TaskRecord`.
        version: the version of the event.
        payload: the event.
        webhook: the webhook as it was when the notification was claimed.
        attempts: how often the notification has been claimed, this time included.
        task: the task at the time of the event; None if the store does not keep it.
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


class Attempt(NamedTuple):
    """An attempt to deliver a notification, and its result.

    Attributes:
        at: when it began, in seconds since 1970.
        seconds: how long it took.
        result: `delivered`; `retried` if another attempt follows; otherwise `failed`.
        status: the HTTP status; 0 without a response.
        reason: why the notification was not delivered; empty if it was.

    Example:
        ```python
        from apcore_a2a_server.store.webhooks import Attempt, attempts_from

        text = Attempt(1000.5, 0.25, "retried", 503, "status").line()
        print(attempts_from(text) == [Attempt(1000.5, 0.25, "retried", 503, "status")])
        #> True
        ```
    """

    at: float
    seconds: float
    result: AttemptResult
    status: int = 0
    reason: AttemptReason = ""

    def line(self) -> str:
        """Return the attempt as a line of text, which stores put before earlier lines."""
        return f"{self.at:.3f} {self.seconds:.6f} {self.result} {self.status} {self.reason}\n"


def with_attempt(text: str, attempt: Attempt) -> str:
    """Return the attempts in *text* with one more, the newest first."""
    return (attempt.line() + text)[:MAX_ATTEMPTS_SIZE]


def attempts_from(text: str) -> list[Attempt]:
    """Return the attempts in *text*, the newest first; a last line that was cut off is left out."""
    attempts: list[Attempt] = []
    for line in text.split("\n")[:-1][:MAX_KEPT_ATTEMPTS]:
        at, seconds, result, status, reason = line.split(" ")
        outcome = cast("AttemptResult", result), int(status), cast("AttemptReason", reason)
        attempts.append(Attempt(float(at), float(seconds), *outcome))
    return attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookQuery:
    """A query for the webhooks of tasks.

    Attributes:
        task_id: the task; None for all tasks.
        owner: the owner of the tasks; None for all owners.
        owner_prefix: the prefix of the owners' names, if `owner` is None; empty for all owners.
        state: the state of the webhooks, `active` or `failed`; `all` for both.
        limit: the maximum number of webhooks to return.
    """

    task_id: str | None = None
    owner: str | None = None
    owner_prefix: str = ""
    state: WebhookFilter = "all"
    limit: int = 50

    def matches(self, webhook: Webhook) -> bool:
        """Return whether a webhook has the state of the query; its task is not compared."""
        return self.state in ("all", "failed" if webhook.failure else "active")


@dataclass(frozen=True, slots=True)
class WebhookStatus:
    """A webhook, with its pending notifications and its last attempts.

    Attributes:
        task_id: the id of its task.
        owner: the owner of its task.
        webhook: the webhook.
        pending: the number of its pending notifications.
        due: when the next attempt is due, in seconds since 1970; None if no notification is
            pending. During an attempt, this is when the claim on its notification expires.
        attempts: the last attempts, the newest first.
    """

    task_id: str
    owner: str
    webhook: Webhook
    pending: int = 0
    due: float | None = None
    attempts: Sequence[Attempt] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Limits on the notifications that a replica claims in one call.

    Attributes:
        limit: the maximum number of notifications to claim.
        per_host: the maximum number for one owner and one host.
        per_owner: the maximum number for one owner.
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
