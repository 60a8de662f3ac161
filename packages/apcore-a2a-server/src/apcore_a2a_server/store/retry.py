"""Retries while a store can't be used."""

import asyncio
from collections.abc import Awaitable, Callable
from random import random
from typing import TypeVar

from .exceptions import UnavailableError

RetryResult = TypeVar("RetryResult")

RETRY_FRACTION_OF_LEASE = 0.5  # part of a lease after which retries end
FIRST_PAUSE = 0.1  # seconds, on average; each further pause is twice as long
LONGEST_PAUSE = 1.0  # seconds, on average


async def retry_while_unavailable(
    attempt: Callable[[bool], Awaitable[RetryResult]], lease_seconds: float
) -> RetryResult:
    """Return the result of *attempt*, repeated while the store can't be used.

    Args:
        attempt: The function to call; its argument says whether the call is a retry. If so, an
            earlier call may have succeeded although its reply was lost.
        lease_seconds: How long a lease lasts; after that the writer may have lost the task.

    Raises:
        UnavailableError: The store could not be used for half of a lease.
    """
    loop = asyncio.get_running_loop()
    deadline, is_retry = loop.time() + RETRY_FRACTION_OF_LEASE * lease_seconds, False
    pause = FIRST_PAUSE
    while True:
        try:
            return await attempt(is_retry)
        except UnavailableError:
            if loop.time() >= deadline:
                raise
            is_retry = True
        # The random factor keeps replicas from returning to the store at the same moment.
        await asyncio.sleep(pause * (0.5 + random()))
        pause = min(2 * pause, LONGEST_PAUSE)
