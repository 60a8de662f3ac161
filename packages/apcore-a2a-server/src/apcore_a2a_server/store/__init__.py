"""Tasks, their events, and where they are kept: the part of an agent that outlives a request."""

from apcore_a2a_core.records import (
    Payload,
    TaskListResult,
    TaskRecord,
    TaskStore,
    Version,
    shortened,
    trim,
)

from .adapters import ScannedStore, SdkStore, store_of
from .errors import (
    KeyReusedError,
    LeaseLostError,
    NotSavedError,
    RepeatedError,
    StaleError,
    StoreError,
    StoreFullError,
    UnavailableError,
)
from .inprocess import InProcessStore
from .leases import LeaseKeeper
from .live import LiveTasks
from .memory import InMemoryTaskStore
from .port import Change, Claim, Event, Lease, Order, Page, Query, Retention, SendKey, Store, fold
from .urls import open_store
from .webhooks import Backlog, ClaimRequest, Notification, Webhook, with_webhook

__all__ = [
    "Backlog",
    "Change",
    "Claim",
    "ClaimRequest",
    "Event",
    "InMemoryTaskStore",
    "InProcessStore",
    "KeyReusedError",
    "Lease",
    "LeaseKeeper",
    "LeaseLostError",
    "LiveTasks",
    "NotSavedError",
    "Notification",
    "Order",
    "Page",
    "Payload",
    "Query",
    "RepeatedError",
    "Retention",
    "ScannedStore",
    "SdkStore",
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
    "fold",
    "open_store",
    "shortened",
    "store_of",
    "trim",
    "with_webhook",
]
