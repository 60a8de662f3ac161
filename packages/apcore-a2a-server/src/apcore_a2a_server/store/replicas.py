"""Replicas: the processes that serve an agent, as they report themselves to a shared store."""

import os
import re
import socket
import time
from importlib.metadata import version
from secrets import token_hex

from msgspec import Struct

MAX_HOST_LENGTH = 60
"""Maximum number of characters of a host's name."""
REPLICA_TTL_IN_LEASE_DURATIONS = 4
"""Number of lease durations for which a replica stays listed after its last report."""


class Replica(Struct, frozen=True, kw_only=True):
    """A process that serves the agent.

    Attributes:
        id: the name of its host, its process id, and random digits that make the id unique.
        host: the name of its host.
        pid: its process id.
        version: its version of apcore-a2a-server.
        started_at: when it started, in seconds since 1970 by its own clock.
        seen_at: when it last reported itself, in seconds since 1970.
        is_draining: whether it is shutting down.
        leases: how many leases it has.
        running: how many runs it has.
    """

    id: str
    host: str
    pid: int
    version: str
    started_at: float
    seen_at: float
    is_draining: bool = False
    leases: int = 0
    running: int = 0


def this_process() -> Replica:
    """Return this process as a replica with a new id.

    Example:
        ```python
        from apcore_a2a_server.store.replicas import this_process

        print(this_process().id == this_process().id)
        #> False
        ```
    """
    host, pid, now = socket.gethostname()[:MAX_HOST_LENGTH], os.getpid(), time.time()
    name = re.sub(r"[^A-Za-z0-9.-]", "-", host) or "host"
    return Replica(
        id=f"{name}-{pid}-{token_hex(3)}",
        host=host,
        pid=pid,
        version=version("apcore-a2a-server"),
        started_at=now,
        seen_at=now,
    )
