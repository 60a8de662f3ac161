"""Tasks, their events, and where they are kept: the part of an agent that outlives a request."""

from .errors import StoreFullError
from .journal import Event, Journal
from .memory import InMemoryTaskStore
from .records import TaskListResult, TaskRecord, TaskStore, shortened, trim
from .shelf import Order, Page, Query, Shelf
from .simple import ScannedStore, SdkStore, shelf_of
from .webhooks import Outbox, Payload, Transition, Version, Webhook

__all__ = [
    "Event",
    "InMemoryTaskStore",
    "Journal",
    "Order",
    "Outbox",
    "Page",
    "Payload",
    "Query",
    "ScannedStore",
    "SdkStore",
    "Shelf",
    "StoreFullError",
    "TaskListResult",
    "TaskRecord",
    "TaskStore",
    "Transition",
    "Version",
    "Webhook",
    "shelf_of",
    "shortened",
    "trim",
]
