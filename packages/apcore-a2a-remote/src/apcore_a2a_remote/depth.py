"""Limits on nested calls, for agents that call each other in a circle.

All calls of a circle that returns to this process have the same trace, so the open calls of each
trace are counted. A circle may also return to another replica, so the metadata of each request has
the number of agents that the request has passed through.
"""

import threading
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from apcore.errors import CallDepthExceededError

HOPS = "apcoreHops"
"""The member of a request's metadata with the number of agents that the request passed through."""
REQUEST_METADATA = "ext.a2a.request_metadata"
"""The member of `context.data` with the metadata of the request that a call belongs to."""


class OpenCalls:
    """The number of open remote calls of each trace, in all threads of this process.

    >>> calls = OpenCalls()
    >>> with calls.count_call("4bf92f35", 1, []):
    ...     calls.total
    1
    """

    def __init__(self) -> None:
        self._by_trace: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """The number of open calls of all traces."""
        return self._by_trace.total()

    @contextmanager
    def count_call(self, trace_id: str, limit: int, call_chain: list[str]) -> Generator[None]:
        """Count a call while the block runs.

        Raises:
            CallDepthExceededError: The trace has *limit* open calls already.
        """
        with self._lock:
            if self._by_trace[trace_id] >= limit:
                raise CallDepthExceededError(limit + 1, limit, call_chain)
            self._by_trace[trace_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._by_trace[trace_id] -= 1
                if not self._by_trace[trace_id]:
                    del self._by_trace[trace_id]


open_calls = OpenCalls()
"""The open calls of this process, to all remote agents."""


def count_hops(context: Any, limit: int) -> int:
    """Return the number of agents that a request has passed through once this call arrives.

    Raises:
        CallDepthExceededError: There are more than *limit* agents, or the number in the metadata
            of the request is invalid.
    """
    metadata: Mapping[str, Any] = context.data.get(REQUEST_METADATA) or {}
    earlier_hops = metadata.get(HOPS, 0)
    is_valid = isinstance(earlier_hops, int | float) and 0 <= earlier_hops < 10**6
    hops = int(earlier_hops) + 1 if is_valid else limit + 1
    if hops > limit:
        raise CallDepthExceededError(hops, limit, [*context.call_chain])
    return hops
