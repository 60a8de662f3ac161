"""From rows to what they are of, and back."""

from collections.abc import Sequence
from typing import Any

from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord, Version

from apcore_a2a_server.store.events import Event, fold, pack, unpack
from apcore_a2a_server.store.webhooks import Notification, Webhook


def owner_bytes(owner: str) -> bytes:
    """Identities may hold what PostgreSQL's text can't: NUL."""
    return owner.encode("utf-8", "surrogatepass")


def owner_text(owner: bytes) -> str:
    """The identity again."""
    return owner.decode("utf-8", "surrogatepass")


def event_columns(events: Sequence[Event]) -> tuple[list[int], list[bytes]]:
    """The versions and bodies of events."""
    return [event.version for event in events], [pack(event.payload) for event in events]


def webhook_columns(
    webhooks: Sequence[Webhook],
) -> tuple[list[str], list[str], list[str], list[str], list[bytes]]:
    """The ids, hosts, versions, failures and bodies of webhooks."""
    return (
        [webhook.config.id for webhook in webhooks],
        [webhook.host for webhook in webhooks],
        [webhook.version for webhook in webhooks],
        [webhook.failure for webhook in webhooks],
        [webhook.config.SerializeToString() for webhook in webhooks],
    )


def webhook_of(body: bytes, version: Version, failure: str = "") -> Webhook:
    """The webhook of a row."""
    return Webhook(a2a.TaskPushNotificationConfig.FromString(body), version, failure)


def notification_of(row: Any) -> Notification:
    """The notification of a row."""
    return Notification(
        row["task_id"],
        owner_text(row["owner"]),
        row["version"],
        unpack(row["body"]),
        webhook_of(row["webhook"], row["dialect"]),
        row["attempts"],
    )


def record_of(row: Any) -> TaskRecord:
    """The record of a row; what its body has not yet is in its chunks."""
    task = a2a.Task.FromString(row["body"])
    for body in row["chunks"] or ():
        payload = unpack(body)
        if isinstance(payload, a2a.TaskArtifactUpdateEvent):
            fold(task, payload)
    return TaskRecord(
        task,
        owner_text(row["owner"]),
        row["skill"],
        row["version"],
        row["resume"],
        row["messages"],
        row["deadline"],
    )


def moment(task: a2a.Task) -> float:
    """When it came into its state, in seconds since 1970."""
    timestamp = task.status.timestamp
    return timestamp.seconds + timestamp.nanos / 1e9
