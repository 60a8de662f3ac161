"""The task store in a PostgreSQL database, which several replicas share."""

from .store import PostgresStore

__all__ = ["PostgresStore"]
