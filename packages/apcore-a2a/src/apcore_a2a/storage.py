"""Task stores, and what it takes to write one, under their `apcore_a2a` name."""

from apcore_a2a_core import TaskListResult, TaskRecord, TaskStore
from apcore_a2a_server import InMemoryTaskStore

__all__ = ["InMemoryTaskStore", "TaskListResult", "TaskRecord", "TaskStore"]
