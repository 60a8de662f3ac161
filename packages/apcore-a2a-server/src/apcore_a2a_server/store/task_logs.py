"""The logs of tasks that an in-process store keeps in memory."""

import time
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from .port import Event, pack_payload, unpack_payload
from .webhooks import Webhook


class TaskLog(Struct):
    """The events, lease, webhooks and spans of a task that can still change."""

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
    """The spans of its runs so far."""

    def is_claimable(self) -> bool:
        """Return whether its lease has expired, or its deadline has passed."""
        if self.expires is not None:
            return self.expires <= time.monotonic()
        return self.deadline is not None and self.deadline <= time.time()


EndedLog: TypeAlias = tuple[float, int, bytes, str]
"""The log of an ended task: when it may be deleted, its first version, its events and its spans.

There are many: the garbage collector does not scan tuples of numbers, bytes and texts, and few
objects are quick to delete, since they are no longer in the processor's cache by then.
"""

NO_LOG: EndedLog = (0, 0, b"", "")


def pack_events(events: Iterable[Event]) -> bytes:
    """Return the payloads of events as lines."""
    # compact JSON has no newlines, nor is the byte before it one (see `pack_payload`)
    return b"\n".join([pack_payload(event.payload) for event in events])


def unpack_events(packed: bytes, first_version: int, start: int, limit: int) -> list[Event]:
    """Return up to *limit* events from packed ones, without the first *start*.

    Args:
        packed: What `pack_events` has returned.
        first_version: The version of the first packed event.
        start: The number of events to leave out.
        limit: The maximum number of events.
    """
    lines = packed.split(b"\n", start + limit)[start : start + limit]
    numbered_lines = enumerate(lines, first_version + start)
    return [Event(version, unpack_payload(line)) for version, line in numbered_lines]
