"""Retries while a store can't be used."""

import asyncio
from collections.abc import Awaitable, Callable
from random import random
from typing import TypeVar

from .errors import UnavailableError

Result = TypeVar("Result")

RETRY_FRACTION_OF_LEASE = 0.5
FIRST_PAUSE = 0.1  # seconds, about; each further pause is twice as long
LONGEST_PAUSE = 1.0  # seconds: a store that comes back should not be flooded


async def retry_while_unavailable(
    attempt: Callable[[bool], Awaitable[Result]], lease_seconds: float
) -> Result:
    """Return the result of *attempt*, which is repeated while the store can't be used.

    Args:
        attempt: Is given whether it is a retry: it is not known what the earlier attempts did.
        lease_seconds: How long a lease lasts; after that the writer may have lost the task.

    Raises:
        UnavailableError: The store could not be used for half of a lease.
    """
    loop = asyncio.get_running_loop()
    end, is_retry = loop.time() + RETRY_FRACTION_OF_LEASE * lease_seconds, False
    pause = FIRST_PAUSE
    while True:
        try:
            return await attempt(is_retry)
        except UnavailableError:
            if loop.time() >= end:
                raise
            is_retry = True
        await asyncio.sleep(pause * (0.5 + random()))  # not all replicas at the same time
        pause = min(2 * pause, LONGEST_PAUSE)
