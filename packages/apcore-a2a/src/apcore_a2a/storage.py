"""`apcore_a2a_store`, task stores and what it takes to write one, under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_store import (
        InMemoryTaskStore,
        Page,
        Query,
        StoreFullError,
        TaskListResult,
        TaskRecord,
        TaskStore,
    )
except ModuleNotFoundError as error:
    raise missing(error, "store", "apcore_a2a.storage") from None

__all__ = [
    "InMemoryTaskStore",
    "Page",
    "Query",
    "StoreFullError",
    "TaskListResult",
    "TaskRecord",
    "TaskStore",
]
