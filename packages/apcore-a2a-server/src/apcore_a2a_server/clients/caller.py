"""Who sent a request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .connection import Connection


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the principal its tasks belong to, and what came along."""

    owner: str = ""
    identity: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    connection: Connection = field(default_factory=Connection)
    root_path: str = ""
    """What the agent is mounted at, as far as the request tells."""

    @property
    def client(self) -> str:
        """Whom limits are for: the principal, or the address of who is unknown."""
        return self.owner or self.connection.host
