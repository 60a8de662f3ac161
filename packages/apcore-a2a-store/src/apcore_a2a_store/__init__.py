"""Tasks, their events, and where they are kept: the part of an agent that outlives a request."""

from .errors import LeaseLostError, NotSavedError, StaleError, StoreError, StoreFullError
from .events import Event
from .inprocess import InProcessStore
from .journal import Journal
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
    "Version",
    "Webhook",
    "shortened",
    "store_of",
    "trim",
]
