"""A running server as the rounds see it."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tools.benchmarks.scenarios import Target
from tools.benchmarks.servers import Server

_NO_TASK = "00000000-0000-4000-8000-000000000000"
_TASK_ID = re.compile(rb'"id": ?"([0-9a-f-]{36})"')
_SETTLE = 4.0  # seconds a server gets to end its asyncio tasks


def task_ids(bodies: Iterable[bytes]) -> list[str]:
    """The ids of the tasks in those answers."""
    return [found[1].decode() for body in bodies if (found := _TASK_ID.search(body))]


@dataclass(slots=True)
class Subject:
    """A server, and what the scenarios need to know of it."""

    server: Server
    task: str = _NO_TASK
    idle: int = 0
    """How many asyncio tasks it has when nothing runs."""

    @property
    def name(self) -> str:
        """The server's."""
        return self.server.name

    @property
    def stack(self) -> str:
        """The name of what it runs on."""
        return self.server.stack.name

    @property
    def is_bare(self) -> bool:
        """Whether it only echoes."""
        return self.name == "bare"

    @property
    def target(self) -> Target:
        """What its requests depend on."""
        return Target(self.task, in_message=self.name == "old")

    def count_tasks(self) -> int:
        """How many asyncio tasks it has now."""
        return sum(self.server.state().tasks.values())

    def tasks_beyond_idle(self) -> int:
        """How many asyncio tasks do not end within some seconds."""
        until = time.monotonic() + _SETTLE
        while (left := self.count_tasks() - self.idle) > 0 and time.monotonic() < until:
            time.sleep(0.05)
        return max(0, left)

    def __str__(self) -> str:
        return f"{self.name} on {self.stack}"
