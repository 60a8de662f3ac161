"""Task stores, and what it takes to write one, under their `apcore_a2a` name."""

from apcore_a2a_store import TaskListResult, TaskRecord, TaskStore

from ._parts import missing

try:
    from apcore_a2a_server import InMemoryTaskStore
except ModuleNotFoundError as error:
    raise missing(error, "server", "apcore_a2a.storage") from None

__all__ = ["InMemoryTaskStore", "TaskListResult", "TaskRecord", "TaskStore"]
