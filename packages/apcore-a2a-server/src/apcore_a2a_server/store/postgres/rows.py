"""Rows of PostgreSQL: records and changes as SQL parameters, and rows as records."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.values import dump_json

from apcore_a2a_server.store.port import Change, Event, NewTask
from apcore_a2a_server.store.replicas import Replica
from apcore_a2a_server.store.rows import (
    change_columns,
    column_arrays,
    event_columns,
    record_from,
    task_columns,
    webhook_columns,
)
from apcore_a2a_server.store.webhooks import Webhook


def owner_bytes(owner: str) -> bytes:
    """Return a principal's id as bytes: it may contain NUL, which PostgreSQL's text can't."""
    return owner.encode("utf-8", "surrogatepass")


def owner_text(owner: bytes) -> str:
    """Return the principal's id that `owner_bytes` encoded."""
    return owner.decode("utf-8", "surrogatepass")


def create_parameters(new_task: NewTask) -> dict[str, Any]:
    """Return the parameters of a new task, without its lease."""
    messages = new_task.record.messages_after(0)
    return {
        **task_columns(new_task.record),
        **_event_arrays(new_task.slim_events()),
        **webhook_arrays(new_task.webhooks),
        "owner": owner_bytes(new_task.record.owner),
        "message_bodies": [*map(dump_json, messages)],
        "key": None if new_task.key is None else new_task.key.text,
        "digest": None if new_task.key is None else new_task.key.digest,
    }


def chunk_parameters(change: Change) -> dict[str, Any]:
    """Return the parameters that every change has; chunks and progress need no others."""
    return {
        "task_id": change.record.task.id,
        "version": change.record.version,
        "base": change.base,
        "epoch": None if change.lease is None else change.lease.epoch,
        **_event_arrays(change.events),
    }


def state_parameters(change: Change) -> dict[str, Any]:
    """Return the parameters of a change of state, without those of a new lease."""
    messages = change.record.messages_after(change.known_messages)
    return {
        **chunk_parameters(change),
        **change_columns(change),
        "message_bodies": [*map(dump_json, messages)],
        "state_versions": [event.version for event in change.state_events],
    }


def _event_arrays(events: Sequence[Event]) -> dict[str, Any]:
    return column_arrays(map(event_columns, events), event_versions="version", event_bodies="body")


def webhook_arrays(
    webhooks: Sequence[Webhook], attempts: Mapping[bytes, str] = MappingProxyType({})
) -> dict[str, list[Any]]:
    """Return the columns of webhooks as arrays; the keys of *attempts* are webhook bodies."""
    return column_arrays(
        (webhook_columns(webhook, attempts) for webhook in webhooks),
        config_ids="config_id",
        hosts="host",
        dialects="version",
        failures="failure",
        traces="trace",
        configs="body",
        attempts="attempts",
    )


def replica_parameters(replica: Replica) -> dict[str, Any]:
    """Return the parameters of the statement that saves a replica."""
    return {
        "replica_id": replica.id,
        "host": replica.host,
        "pid": replica.pid,
        "version": replica.version,
        "started": replica.started_at,
        "draining": replica.is_draining,
        "leases": replica.leases,
        "running": replica.running,
    }


def replica_from(row: Any) -> Replica:
    """Return the replica of a row; the database's clock has measured the row's `age`."""
    return Replica(
        **{name: row[name] for name in ("id", "host", "pid", "version", "leases", "running")},
        started_at=row["started"],
        seen_at=time.time() - row["age"],
        is_draining=row["draining"],
    )


def record_of(task_row: Any) -> TaskRecord:
    """Return the record of a row, with gaps for large messages."""
    return record_from(task_row, owner_text(task_row["owner"]), task_row["later_events"] or ())
