"""The limits of a gRPC server: the size of messages, and the number of open calls."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

OTHER_CALLS = 1000
"""Concurrent calls in addition to those that run tasks or stream events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """The limits of a gRPC server.

    Attributes:
        max_body: Maximum size of a message, in bytes.
        max_values: Maximum number of values in a message.
        max_calls: Maximum number of concurrent calls that run tasks or stream events.
        client_share: Fraction of `max_open_calls` that one client may have; None for no limit.
        request_timeout: Seconds for a request to arrive, in addition to the time to transfer
            `max_body`.
        keep_alive: Interval in seconds of pings on idle connections.
    """

    max_body: int
    max_values: int
    max_calls: int
    client_share: float | None
    request_timeout: float
    keep_alive: float

    @property
    def max_open_calls(self) -> int:
        """Maximum number of concurrent calls of any kind."""
        return self.max_calls + OTHER_CALLS


class ReadSlots:
    """Slots for the messages that are being read.

    gRPC buffers a message until it is complete, and shows its size only then. So each slot
    stands for a message of the maximum size, and there are as many slots as memory allows.
    One client has at most half of them.

    Args:
        total: Maximum number of messages that are read at a time.
    """

    def __init__(self, total: int) -> None:
        self._all = asyncio.Semaphore(total)
        self._per_client = max(total // 2, 1)
        self._by_client: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncGenerator[None]:
        """Wait for a slot for *client*, and hold it during the block."""
        client_slots = self._by_client.get(client)
        if client_slots is None:
            client_slots = self._by_client[client] = asyncio.Semaphore(self._per_client)
        async with client_slots, self._all:
            yield
