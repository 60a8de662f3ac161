"""Tasks, their events, and where they are kept: the part of an agent that outlives a request."""

from .errors import (
    LeaseLostError,
    NotSavedError,
    StaleError,
    StoreError,
    StoreFullError,
    UnavailableError,
)
from .events import Event, fold
from .inprocess import InProcessStore
from .journal import Journal
from .keeper import Keeper
from .locations import open_store
from .memory import InMemoryTaskStore
from .port import Change, Claim, Lease, Order, Page, Query, Retention, Store
from .records import TaskListResult, TaskRecord, TaskStore, shortened, trim
from .simple import ScannedStore, SdkStore, store_of
from .webhooks import Outbox, Payload, Transition, Version, Webhook

__all__ = [
    "Change",
    "Claim",
    "Event",
    "InMemoryTaskStore",
    "InProcessStore",
    "Journal",
    "Keeper",
    "Lease",
    "LeaseLostError",
    "NotSavedError",
    "Order",
    "Outbox",
    "Page",
    "Payload",
    "Query",
    "Retention",
    "ScannedStore",
    "SdkStore",
    "StaleError",
    "Store",
    "StoreError",
    "StoreFullError",
    "TaskListResult",
    "TaskRecord",
    "TaskStore",
    "Transition",
    "UnavailableError",
    "Version",
    "Webhook",
    "fold",
    "open_store",
    "shortened",
    "store_of",
    "trim",
]
