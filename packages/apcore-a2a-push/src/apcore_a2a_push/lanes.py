"""What waits to be told, and whose turn it is."""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from apcore_a2a_core.errors import clean
from apcore_a2a_store import Webhook

from .notice import Notice

PER_HOST = 8
"""How many notifications of a principal are under way to a host at a time."""
PER_OWNER = 32
"""How many to all hosts."""


@dataclass(slots=True)
class Row:
    """A transition that a webhook has to be told."""

    notice: Notice
    since: float = field(default_factory=time.monotonic)
    attempts: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Lane:
    """What one webhook of a task has to be told, in this order.

    Attributes:
        task_id: The task's id.
        owner: The principal that it belongs to.
        webhook: The webhook as it is now.
        rows: What it has to be told.
        is_waiting: Whether it waits for its turn.
        work: The turn that it has.
        timer: What the next attempt waits for, behind one that has failed.
        closed: Whether it has failed, and nothing more is taken.
        failure: Why, as long as that is not written down.
    """

    task_id: str
    owner: str
    webhook: Webhook
    rows: deque[Row] = field(default_factory=deque[Row])
    is_waiting: bool = False
    work: "asyncio.Task[None] | None" = None
    timer: asyncio.TimerHandle | None = None
    closed: bool = False
    failure: str = ""

    @property
    def host(self) -> str:
        """Where the webhook is; empty when a store has given back what is no URL."""
        try:
            return urlsplit(self.webhook.config.url).hostname or ""
        except ValueError:
            return ""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is going to happen by itself."""
        return not (self.is_waiting or self.work or self.timer)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return not (self.rows or self.failure)

    def __str__(self) -> str:
        place = clean(self.host, 100)
        return f"webhook {clean(self.webhook.config.id, 60)} of task {self.task_id} at {place}"

    __repr__ = __str__

    def hurry(self) -> bool:
        """Give up waiting for the next attempt; whether it has waited."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
        return timer is not None


class Turns:
    """The lanes of one principal that are ready, host by host.

    A host that is slow holds up its own lanes alone, and a principal with many of them its own.
    Lanes that wait here are data: they cost no worker until it is their turn.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Lane]] = OrderedDict()
        self._busy: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._busy)

    def wait(self, lane: Lane) -> None:
        """A lane is ready."""
        lane.is_waiting = True
        self._waiting.setdefault(lane.host, deque()).append(lane)

    def next(self) -> tuple[Lane, str] | None:
        """The lane whose turn it is, and its host; None when there is none or no place for it."""
        if self._busy.total() >= PER_OWNER:
            return None
        for host, lanes in self._waiting.items():  # few hosts can have all their places taken
            if self._busy[host] < PER_HOST:
                lane = lanes.popleft()
                lane.is_waiting = False
                self._waiting.move_to_end(host)
                if not lanes:
                    del self._waiting[host]
                self._busy[host] += 1
                return lane, host
        return None

    def leave(self, host: str) -> None:
        """An attempt at a host has ended."""
        self._busy[host] -= 1
        if not self._busy[host]:
            del self._busy[host]
