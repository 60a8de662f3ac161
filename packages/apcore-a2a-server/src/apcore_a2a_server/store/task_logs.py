"""The logs of tasks that an in-process store keeps in memory."""

import time
from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, field

from .port import Event
from .webhooks import Webhook


class TaskLog(Struct):
    """The events, lease, webhooks and spans of a task that has not ended."""

    version: int
    events: list[Event] = field(default_factory=list[Event])
    epoch: int = 0
    starts: int = 1
    """How often its module was started since the task began or got its last answer."""
    started: float = field(default_factory=time.monotonic)
    """When its module was last started, by the monotonic clock."""
    expires: float | None = None
    """When its lease expires, by the monotonic clock; None while it has no lease."""
    deadline: float | None = None
    """When its pause ends without an answer, in seconds since 1970."""
    webhooks: Sequence[Webhook] = ()
    """Its webhooks, whether or not they could be saved."""
    spans: str = ""
    """The spans of its runs and waits so far."""

    def is_claimable(self) -> bool:
        """Return whether the task's lease has expired, or its deadline has passed."""
        if self.expires is not None:
            return self.expires <= time.monotonic()
        return self.deadline is not None and self.deadline <= time.time()


EndedLog: TypeAlias = tuple[float, int, tuple[bytes, ...], str]
"""The log of an ended task: its expiry by the monotonic clock, first version, events and spans.

It is a tuple because there are many logs, and the garbage collector does not scan tuples of
numbers, bytes and texts.
"""

NO_LOG: EndedLog = (0, 0, (), "")
