"""Tasks in an SQLite file: one machine, one process, nothing lost."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
