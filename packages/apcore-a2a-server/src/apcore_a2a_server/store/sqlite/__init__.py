"""The task store in an SQLite file: durable, for one process."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
