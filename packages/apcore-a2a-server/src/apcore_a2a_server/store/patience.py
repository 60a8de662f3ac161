"""Waits for a store that can't be used for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from random import random
from typing import TypeVar

from .errors import UnavailableError

Result = TypeVar("Result")

PATIENCE = 0.5
"""The part of a lease for which a change waits."""
RETRY = 0.1
"""Seconds before its second attempt, about; each further pause is twice as long."""
LONGEST = 1.0
"""Seconds between attempts at most: a store that comes back should not be flooded."""


async def patiently(attempt: Callable[[bool], Awaitable[Result]], lease_seconds: float) -> Result:
    """What comes of *attempt*, which is made again while the store can't be used.

    Args:
        attempt: Is told whether there was one before it: what that did is not known.
        lease_seconds: How long a lease lasts: the writer may have lost the task after that.

    Raises:
        UnavailableError: The store could not be used for half of a lease.
    """
    loop = asyncio.get_running_loop()
    end, again = loop.time() + PATIENCE * lease_seconds, False
    pause = RETRY
    while True:
        try:
            return await attempt(again)
        except UnavailableError:
            if loop.time() >= end:
                raise
            again = True
        await asyncio.sleep(pause * (0.5 + random()))  # not all at the same time
        pause = min(2 * pause, LONGEST)
