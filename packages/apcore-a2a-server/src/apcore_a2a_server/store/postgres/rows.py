"""Rows of PostgreSQL to what they hold, and back."""

from collections.abc import Sequence
from typing import Any

from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import SETTLED, TERMINAL

from apcore_a2a_server.store.port import Change, Event, NewTask
from apcore_a2a_server.store.rows import (
    arrays,
    event_columns,
    record_from,
    task_columns,
    webhook_columns,
)
from apcore_a2a_server.store.webhooks import Webhook


def owner_bytes(owner: str) -> bytes:
    """Return an identity as bytes: it may hold NUL, and PostgreSQL's text can't."""
    return owner.encode("utf-8", "surrogatepass")


def owner_text(owner: bytes) -> str:
    """Return the identity again."""
    return owner.decode("utf-8", "surrogatepass")


def new_task(new: NewTask) -> dict[str, Any]:
    """Return the values of a new task, but for its lease."""
    return {
        **task_columns(new.record),
        **_of_events(new.events),
        **webhook_arrays(new.webhooks),
        "owner": owner_bytes(new.record.owner),
        "message_bodies": [each.SerializeToString() for each in new.record.said_since(0)],
        "key": None if new.key is None else new.key.text,
        "digest": None if new.key is None else new.key.digest,
    }


def changed_state(change: Change) -> dict[str, Any]:
    """Return the values of a change of state, but for its lease."""
    record, state = change.record, change.record.task.status.state
    return {
        **task_columns(record),
        **_condition(change),
        **_of_events(change.events),
        "run": int(change.run),
        "settled": state in SETTLED,
        "terminal": state in TERMINAL,
        "message_bodies": [message.SerializeToString() for message in record.said()],
        "state_versions": [event.version for event in change.states],
    }


def added_chunks(change: Change) -> dict[str, Any]:
    """Return the values of a change that adds chunks only."""
    version = {"task_id": change.record.task.id, "version": change.record.version}
    return {**version, **_condition(change), **_of_events(change.events)}


def _condition(change: Change) -> dict[str, Any]:
    """Return what the task must still have."""
    return {"base": change.base, "epoch": None if change.lease is None else change.lease.epoch}


def _of_events(events: Sequence[Event]) -> dict[str, Any]:
    return arrays(map(event_columns, events), event_versions="version", event_bodies="body")


def webhook_arrays(webhooks: Sequence[Webhook]) -> dict[str, list[Any]]:
    """Return the columns of webhooks as arrays."""
    return arrays(
        map(webhook_columns, webhooks),
        config_ids="config_id",
        hosts="host",
        dialects="version",
        failures="failure",
        configs="body",
    )


def record_of(row: Any) -> TaskRecord:
    """Return the record of a row."""
    return record_from(row, owner_text(row["owner"]), row["later"] or ())
