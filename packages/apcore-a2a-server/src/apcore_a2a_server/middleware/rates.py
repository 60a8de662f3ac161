"""How often somebody may do something."""

import math
import time
from collections.abc import Collection
from inspect import isawaitable
from typing import Any

from limits import parse_many
from limits.aio.strategies import SlidingWindowCounterRateLimiter as SharedLimiter
from limits.errors import ConfigurationError
from limits.storage import storage_from_string
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.types import ASGIApp, Receive, Scope, Send

from apcore_a2a_server.fields import OptionError

from .auth import caller_of
from .errors import is_public, refuse

MEMORY = "memory://"


class RateLimiter:
    """Counts in windows of time, in memory or in a store that several processes share.

    Args:
        rate: How often: `100/minute`, or several: `10/second;100/minute`.
        storage: Where counts are, as the `limits` library names it: `async+redis://…`.
        option: What the rate is called in errors.

    Raises:
        ValueError: *rate* or *storage* is none.

    Example:
        ```python
        import asyncio

        from apcore_a2a_server.middleware import RateLimiter


        async def main():
            limiter = RateLimiter("1/minute")
            return await limiter.wait("ada"), await limiter.wait("ada") > 0


        print(asyncio.run(main()))
        #> (0, True)
        ```
    """

    def __init__(self, rate: str, storage: str = MEMORY, option: str = "rate_limit") -> None:
        found: Any = storage_of(storage)
        try:
            self._items = parse_many(rate)
        except ValueError:
            self._items = []
        if not self._items or any(item.amount < 1 for item in self._items):
            raise OptionError(option, f"must look like 10/second;100/minute, not {rate!r}")
        # in memory the synchronous one: the other looks at every key for every hit
        kind: Any = (
            SharedLimiter if storage.startswith("async+") else SlidingWindowCounterRateLimiter
        )
        self._strategy = kind(found)

    async def wait(self, *who: str) -> int:
        """0 when *who* may, which counts; else how many seconds to wait."""
        for item in self._items:
            if not await _done(self._strategy.test(item, *who)):
                return await self._seconds(item, *who)
        for item in self._items:  # counted only when no rate refuses it
            if not await _done(self._strategy.hit(item, *who)):  # others were faster
                return await self._seconds(item, *who)
        return 0

    async def _seconds(self, item: Any, *who: str) -> int:
        stats = await _done(self._strategy.get_window_stats(item, *who))
        reset: float = stats.reset_time
        return max(1, math.ceil(reset - time.time()))


async def _done(result: Any) -> Any:
    return await result if isawaitable(result) else result


def storage_of(uri: str) -> Any:
    """The storage at *uri*.

    Raises:
        ValueError: There is none; the text has nothing of the address, which may hold a password.
    """
    try:
        return storage_from_string(uri)
    except ConfigurationError as error:
        reason = "a library that it needs is missing" if "prerequisite" in str(error) else "unknown"
        kind = uri.partition(":")[0]
        problem = f"can't be used: {kind}: {reason}; memory:// and async+redis://… can"
        raise OptionError("rate_limit_storage", problem) from None


class RateLimit:
    """ASGI middleware: 429 for a principal that asks too often, or an address without one.

    Args:
        app: The application behind.
        limiter: Counts.
        public: Paths that may be read as often as one likes.
    """

    def __init__(self, app: ASGIApp, limiter: RateLimiter, *, public: Collection[str] = ()) -> None:
        self._app = app
        self._limiter = limiter
        self._public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it (RFC 6585 §4)."""
        seconds = 0
        if scope["type"] == "http" and not is_public(scope, self._public):
            principal, _ = caller_of(scope)
            host = str((scope.get("client") or ("",))[0])
            who = ("principal", principal) if principal else ("address", host)
            seconds = await self._limiter.wait(*who)
        if seconds:
            extra = {"retry-after": str(seconds)}
            await refuse(scope, receive, send, 429, "Too many requests", extra)
        else:
            await self._app(scope, receive, send)
