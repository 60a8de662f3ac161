"""Servers that are measured in rounds."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tools.benchmarks.scenarios import RequestOptions
from tools.benchmarks.servers import Server

_NO_TASK = "00000000-0000-4000-8000-000000000000"
_TASK_ID = re.compile(rb'"id": ?"([0-9a-f-]{36})"')
_SETTLE_TIMEOUT = 4.0  # seconds for a server to end its asyncio tasks


def task_ids(bodies: Iterable[bytes]) -> list[str]:
    """Return the ids of the tasks in these answers."""
    return [match[1].decode() for body in bodies if (match := _TASK_ID.search(body))]


@dataclass(slots=True)
class Subject:
    """A server, with the data that the scenarios need."""

    server: Server
    task_id: str = _NO_TASK
    idle_asyncio_tasks: int = 0
    """Number of asyncio tasks when no request runs."""

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.server.name

    @property
    def stack(self) -> str:
        """The name of the server's stack."""
        return self.server.stack.name

    @property
    def is_bare(self) -> bool:
        """Whether this is the bare server, which only echoes."""
        return self.name == "bare"

    @property
    def request_options(self) -> RequestOptions:
        """The options of the requests to the server."""
        return RequestOptions(self.task_id, in_message=self.name == "old")

    def count_asyncio_tasks(self) -> int:
        """Return the current number of asyncio tasks."""
        return sum(self.server.state().tasks.values())

    def leftover_asyncio_tasks(self) -> int:
        """Wait up to `_SETTLE_TIMEOUT` for asyncio tasks to end; return how many are left.

        The asyncio tasks of an idle server do not count.
        """
        deadline = time.monotonic() + _SETTLE_TIMEOUT
        while (
            leftover := self.count_asyncio_tasks() - self.idle_asyncio_tasks
        ) > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        return max(0, leftover)

    def __str__(self) -> str:
        return f"{self.name} on {self.stack}"
