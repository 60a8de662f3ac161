"""Task stores, their configuration, and the interfaces for new ones.

A new store implements `Store`, which the server uses, or the smaller `TaskStore`, which the server
adapts. `Claim` is about tasks, but `ClaimRequest` is about notifications.
"""

from apcore_a2a_core.records import Payload, TaskListResult, TaskRecord, TaskStore, Version

from .exceptions import (
    DiskFullError,
    KeyReusedError,
    LeaseLostError,
    NotSavedError,
    RepeatedError,
    StaleError,
    StoreError,
    StoreFullError,
    UnavailableError,
)
from .memory import InMemoryTaskStore
from .port import Change, Claim, Event, Lease, NewTask, Retention, SendKey, Store
from .queries import Page, Query
from .urls import open_store
from .webhooks import Backlog, ClaimRequest, Notification, Webhook, with_webhook

__all__ = [
    "Backlog",
    "Change",
    "Claim",
    "ClaimRequest",
    "DiskFullError",
    "Event",
    "InMemoryTaskStore",
    "KeyReusedError",
    "Lease",
    "LeaseLostError",
    "NewTask",
    "NotSavedError",
    "Notification",
    "Page",
    "Payload",
    "Query",
    "RepeatedError",
    "Retention",
    "SendKey",
    "StaleError",
    "Store",
    "StoreError",
    "StoreFullError",
    "TaskListResult",
    "TaskRecord",
    "TaskStore",
    "UnavailableError",
    "Version",
    "Webhook",
    "open_store",
    "with_webhook",
]
