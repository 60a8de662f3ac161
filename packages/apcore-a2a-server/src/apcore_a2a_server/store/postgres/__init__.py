"""Tasks in a PostgreSQL database: several replicas are one agent."""

from .store import PostgresStore

__all__ = ["PostgresStore"]
