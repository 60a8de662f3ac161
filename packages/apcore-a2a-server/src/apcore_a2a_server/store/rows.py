"""Rows of the durable stores: tasks, events and webhooks as columns, and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from a2a import types as a2a
from apcore_a2a_core.records import TaskRecord, Version

from .port import Event, Page, Query, fold, number_of, pack, unpack
from .webhooks import Backlog, Notification, Webhook


def task_columns(record: TaskRecord) -> dict[str, Any]:
    """Return the columns of a task, but for its owner."""
    task = record.task
    return {
        "task_id": task.id,
        "context_id": task.context_id,
        "skill": record.skill,
        "state": task.status.state,
        "status_at": record.status_at,
        "version": record.version,
        "messages": record.messages,
        "body": task.SerializeToString(),
        "resume": record.resume,
        "deadline": record.deadline,
    }


def event_columns(event: Event) -> dict[str, Any]:
    """Return the columns of an event, but for its task."""
    return {"version": event.version, "body": pack(event.payload)}


def webhook_columns(webhook: Webhook) -> dict[str, Any]:
    """Return the columns of a webhook, but for its task."""
    return {
        "config_id": webhook.config.id,
        "host": webhook.host,
        "version": webhook.version,
        "failure": webhook.failure,
        "body": webhook.config.SerializeToString(),
    }


def arrays(rows: Iterable[Mapping[str, Any]], **names: str) -> dict[str, list[Any]]:
    """Return the values that columns have in all rows: for each new name, those of a column."""
    known = list(rows)
    return {name: [row[column] for row in known] for name, column in names.items()}


def webhook_from(body: bytes, version: Version, failure: str = "") -> Webhook:
    """Return the webhook of a row."""
    return Webhook(a2a.TaskPushNotificationConfig.FromString(body), version, failure)


def record_from(row: Any, owner: str, later: Iterable[bytes]) -> TaskRecord:
    """Return the record of a row, with the events that came after its body was written."""
    task = a2a.Task.FromString(row["body"])
    for body in later:
        payload = unpack(body)
        if isinstance(payload, a2a.TaskArtifactUpdateEvent):
            fold(task, payload)
    others = (row[name] for name in ("skill", "version", "resume", "messages", "deadline"))
    return TaskRecord(task, owner, *others)


def notification_from(row: Any, owner: str) -> Notification:
    """Return the notification of a row."""
    webhook = webhook_from(row["config"], row["dialect"])
    payload = unpack(row["body"])
    return Notification(row["task_id"], owner, row["version"], payload, webhook, row["attempts"])


def notification_columns(notification: Notification) -> dict[str, Any]:
    """Return the columns that identify a notification, its webhook and its latest attempt."""
    return {
        "task_id": notification.task_id,
        "config_id": notification.webhook.config.id,
        "version": notification.version,
        "attempts": notification.attempts,
        "config": notification.webhook.config.SerializeToString(),
    }


def backlog_of(rows: Iterable[Any], dead: int) -> Backlog:
    """Return the backlog of all owners' pending notifications, of which *dead* were given up."""
    counts = [(row["pending"], row["age"]) for row in rows]
    pending = sum(count for count, _ in counts)
    return Backlog(pending - dead, max((0.0, *(age for _, age in counts))))


def conditions(query: Query, owner: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the SQL conditions for all pages of a query, and the values of their parameters.

    Args:
        query: The query.
        owner: Its owner, as the store keeps it.
    """
    where, values = ["owner = :owner"], {"owner": owner}
    if query.context_id:
        where.append("context_id = :context_id")
        values["context_id"] = query.context_id
    if query.state:
        where.append("state = :state")
        values["state"] = query.state
    if query.after:
        where.append("status_at >= :after")
        values["after"] = query.after
    return tuple(where), values


def before_cursor(query: Query) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the condition for a page behind the query's cursor, and its value.

    Raises:
        InvalidParamsError: The cursor is none of ours.
    """
    if query.cursor is None:
        return (), {}
    return (f"{query.order} < :cursor",), {"cursor": number_of(query.cursor)}


@cache
def composed(block: str, conditions: tuple[str, ...], order: str) -> str:
    """Return a block that lists or counts tasks with its conditions and its order."""
    return block.format(conditions=" AND ".join(conditions), order=order)


def page_of(
    rows: Sequence[Any], query: Query, total: int, record_of: Callable[[Any], TaskRecord]
) -> Page:
    """Return the page of *rows*, of which there is one more than fits if another page follows."""
    more = len(rows) > query.limit
    cursor = str(rows[query.limit - 1]["place"]) if more else None
    return Page([record_of(row) for row in rows[: query.limit]], cursor, total)
