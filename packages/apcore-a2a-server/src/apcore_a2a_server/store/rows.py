"""Rows of the durable stores: conversion of tasks, events and webhooks to columns and back."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from apcore_a2a_core.data import (
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
)
from apcore_a2a_core.records import Payload, TaskRecord, Version, fill, gaps, without_large
from apcore_a2a_core.states import NUMBERS, SETTLED, TERMINAL
from apcore_a2a_core.values import dump_json, read_json

from apcore_a2a_server.trace_context import MAX_SPANS_SIZE

from .operator_port import OpenTasks
from .page_tokens import PageTokens
from .port import Change, Event, fold, pack_payload, unpack_payload
from .queries import Page, Query
from .webhooks import (
    MAX_ATTEMPTS_SIZE,
    Attempt,
    Backlog,
    Notification,
    Webhook,
    WebhookQuery,
    WebhookStatus,
    attempts_from,
)

STATES = {number: state for state, number in NUMBERS.items()}
"""States by their numbers in the columns of tasks."""


def task_columns(record: TaskRecord) -> dict[str, Any]:
    """Return the columns of a task, except its owner.

    Large messages of the history are stored in separate rows, and the body has gaps instead. The
    rows are found by `record.first`; if it is negative (unknown), the body has all messages.
    """
    task = record.task
    return {
        "task_id": task.id,
        "context_id": task.context_id,
        "skill": record.skill,
        "state": NUMBERS[task.status.state],
        "status_at": record.status_at,
        "version": record.version,
        "messages": record.messages,
        "body": dump_json(without_large(task) if record.first >= 0 else task),
        "resume": record.resume,
        "deadline": record.deadline,
    }


def change_columns(change: Change) -> dict[str, Any]:
    """Return the columns of a task after a change of state, with flags and spans of the change."""
    state = change.record.task.status.state
    return {
        **task_columns(change.record),
        "run": int(change.run),
        "restart": int(change.restart),
        "settled": state in SETTLED,
        "terminal": state in TERMINAL,
        "spans": change.spans,
        "max_spans": MAX_SPANS_SIZE,
    }


def event_columns(event: Event) -> dict[str, Any]:
    """Return the columns of an event, except its task."""
    return {"version": event.version, "body": pack_payload(event.payload)}


def gap_parameters(task: Task, earlier_count: int = 0) -> dict[str, Any] | None:
    """Return the parameters of a query for the messages that a history lacks; None if it has all.

    Args:
        task: The task.
        earlier_count: How many messages of the task came before those in its history.
    """
    missing = gaps(task)
    if not missing:
        return None
    limit = missing[-1] - missing[0] + 1
    return {"task_id": task.id, "offset": earlier_count + missing[0], "limit": limit}


def fill_gaps(task: Task, bodies: Sequence[bytes]) -> None:
    """Fill a history's gaps with the messages that a query with `gap_parameters` has returned."""
    fill(task, bodies, gaps(task)[0])


def webhook_columns(webhook: Webhook, attempts: Mapping[bytes, str]) -> dict[str, Any]:
    """Return the columns of a webhook, except its task.

    Args:
        webhook: The webhook.
        attempts: The attempts of webhooks as text, by webhook body.
    """
    body = dump_json(webhook.config)
    return {
        "config_id": webhook.config.id,
        "host": webhook.host,
        "version": webhook.version,
        "failure": webhook.failure,
        "trace": webhook.trace,
        "body": body,
        "attempts": attempts.get(body, ""),
    }


def column_arrays(rows: Iterable[Mapping[str, Any]], **columns: str) -> dict[str, list[Any]]:
    """Return arrays with the columns of all rows; arguments are `array_name="column_name"`."""
    all_rows = list(rows)
    return {name: [row[column] for row in all_rows] for name, column in columns.items()}


def webhook_from(body: bytes, version: Version, failure: str, trace: str) -> Webhook:
    """Return the webhook of a row."""
    return Webhook(read_json(TaskPushNotificationConfig, body), version, failure, trace)


def record_from(task_row: Any, owner: str, later_events: Iterable[bytes]) -> TaskRecord:
    """Return the record of a row, with the chunks that were added after its body was written."""
    task = read_json(Task, task_row["body"])
    for event_body in later_events:
        payload = unpack_payload(event_body)
        if isinstance(payload, TaskArtifactUpdateEvent):
            fold(task, payload)
    columns = ("skill", "version", "resume", "messages", "deadline")
    return TaskRecord(task, owner, *(task_row[column] for column in columns))


def open_tasks_from(rows: Iterable[Any]) -> OpenTasks:
    """Return the open tasks by state, from rows with a state, a count and the oldest time."""
    counts, oldest_times = Counter[TaskState](), dict[TaskState, float]()
    for number, count, oldest in rows:
        state = STATES[number]
        counts[state] += count
        oldest_times[state] = min(oldest, oldest_times.get(state, oldest))
    return OpenTasks(counts, oldest_times)


def notification_from(row: Any, owner: str, payload: Payload) -> Notification:
    """Return the notification of a row."""
    webhook = webhook_from(row["config"], row["dialect"], "", row["trace"])
    return Notification(row["task_id"], owner, row["version"], payload, webhook, row["attempts"])


def notification_parameters(
    notification: Notification, attempt: Attempt | None = None
) -> dict[str, Any]:
    """Return the parameters that identify a notification, its claim and its webhook.

    Also return *attempt* as a line of text, and the maximum size of all attempts of a webhook.
    """
    return {
        "line": "" if attempt is None else attempt.line(),
        "max_size": MAX_ATTEMPTS_SIZE,
        "task_id": notification.task_id,
        "config_id": notification.webhook.config.id,
        "version": notification.version,
        "attempts": notification.attempts,
        "config": dump_json(notification.webhook.config),
    }


def webhook_status_from(row: Any, owner: str) -> WebhookStatus:
    """Return the status of a webhook from its row."""
    webhook = webhook_from(row["config"], row["dialect"], row["failure"], row["trace"])
    attempts = attempts_from(row["attempts"])
    return WebhookStatus(row["task_id"], owner, webhook, row["pending"], row["due"], attempts)


def webhook_conditions(
    query: WebhookQuery, encode_owner: Callable[[str], Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the SQL conditions of a query for webhooks `w` of tasks `t`, and its parameters."""
    filters = {
        "w.task_id = :task_id": query.task_id is not None,
        "t.owner = :owner": query.owner is not None,
        "t.owner >= :owner AND t.owner < :owner_end": query.owner is None and query.owner_prefix,
        "w.failure <> ''": query.state == "failed",
        "w.failure = ''": query.state == "active",
    }
    parameters = {
        "task_id": query.task_id,
        **_owner_parameters(query.owner, query.owner_prefix, encode_owner),
        "limit": query.limit,
    }
    return tuple(condition for condition, value in filters.items() if value), parameters


def backlog_from(owner_rows: Iterable[Any], dead_letters: int) -> Backlog:
    """Return the backlog of all owners.

    Args:
        owner_rows: The number of pending notifications and the age of the oldest, by owner.
        dead_letters: How many of these notifications were given up after the count.
    """
    counts = [(row["pending"], row["age"]) for row in owner_rows]
    pending = sum(count for count, _ in counts)
    return Backlog(pending - dead_letters, max((0.0, *(age for _, age in counts))))


def sql_conditions(
    query: Query, encode_owner: Callable[[str], Any], position: int | None
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]:
    """Return the SQL conditions of a query, those of its page, and the parameters of both.

    Args:
        query: The query.
        encode_owner: Converts an owner to the type of the store's column.
        position: The position after which the page begins; None for the first page.
    """
    filters = {
        "owner = :owner": query.owner is not None,
        "owner >= :owner AND owner < :owner_end": query.owner is None and query.owner_prefix,
        "context_id = :context_id": query.context_id,
        "state = :state": query.state,
        "status_at >= :after": query.after,
    }
    conditions = tuple(condition for condition, value in filters.items() if value)
    state = None if query.state is None else NUMBERS[query.state]
    parameters = {
        **asdict(query),
        **_owner_parameters(query.owner, query.owner_prefix, encode_owner),
        "state": state,
        "limit": query.limit + 1,
    }
    if position is None:
        return conditions, conditions, parameters
    page_conditions = (*conditions, f"{query.order} < :cursor")
    return conditions, page_conditions, {**parameters, "cursor": position}


def _owner_parameters(
    owner: str | None, prefix: str, encode_owner: Callable[[str], Any]
) -> dict[str, Any]:
    """Return the parameters for an owner, or for all owners whose names begin with a prefix."""
    return {
        "owner": encode_owner(prefix if owner is None else owner),
        "owner_end": encode_owner(prefix_end(prefix)),
    }


def prefix_end(prefix: str) -> str:
    """Return the first text that sorts, as bytes, after all texts that begin with a prefix.

    An empty prefix has no such text: the result is empty.
    """
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else ""


@cache
def with_conditions(block: str, conditions: tuple[str, ...], order: str) -> str:
    """Fill conditions and an order into *block*, a statement that lists or counts rows."""
    return block.format(conditions=" AND ".join(conditions) or "TRUE", order=order)


def page_from(
    rows: Sequence[Any],
    query: Query,
    total: int,
    tokens: PageTokens,
    record_of: Callable[[Any], TaskRecord],
) -> Page:
    """Return a page; *rows* has one row more than fits if another page follows."""
    has_more = len(rows) > query.limit
    next_cursor = tokens.seal(query, rows[query.limit - 1]["position"]) if has_more else None
    return Page([record_of(row) for row in rows[: query.limit]], next_cursor, total)
