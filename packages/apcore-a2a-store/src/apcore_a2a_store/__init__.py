"""Tasks, their events, and where they are kept: the part of an agent that outlives a request."""

from .errors import StoreFullError
from .journal import Event, Journal, Order, Page, Payload, Query, Shelf
from .memory import InMemoryTaskStore
from .records import TaskListResult, TaskRecord, TaskStore, shortened, trim
from .simple import ScannedStore, SdkStore, shelf_of

__all__ = [
    "Event",
    "InMemoryTaskStore",
    "Journal",
    "Order",
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
    "shelf_of",
    "shortened",
    "trim",
]
