"""What waits to be told."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from apcore_a2a_core.errors import clean

from apcore_a2a_server.store import Webhook

from .notice import Notice


def name(webhook: Webhook, task_id: str) -> str:
    """What a webhook is called in logs."""
    place = clean(webhook.host, 100)
    return f"webhook {clean(webhook.config.id, 60)} of task {task_id} at {place}"


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
        """Where the webhook is."""
        return self.webhook.host

    @property
    def is_idle(self) -> bool:
        """Whether nothing is going to happen by itself."""
        return not (self.is_waiting or self.work or self.timer)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return not (self.rows or self.failure)

    def __str__(self) -> str:
        return name(self.webhook, self.task_id)

    __repr__ = __str__

    def hurry(self) -> bool:
        """Give up waiting for the next attempt; whether it has waited."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
        return timer is not None
