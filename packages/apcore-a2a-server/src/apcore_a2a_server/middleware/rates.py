"""Rate limits for requests and for calls of skills.

The library `limits` is imported late: it takes 150 ms, and most agents have no rate limits.
"""

import logging
import math
import time
from collections.abc import Collection
from inspect import isawaitable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from apcore_a2a_server.errors import RateStorageDownError
from apcore_a2a_server.fields import OptionError

from .auth import caller_of, client_of
from .errors import Refusal, is_public, rate_storage_down_refusal, refuse

logger = logging.getLogger("apcore_a2a.middleware")

MEMORY = "memory://"
"""The URL of the storage in this process."""
ASYNC = "async+"
"""The prefix of the URLs of asynchronous storages."""


class RateLimiter:
    """Limiter that counts in sliding windows, in memory or in a storage that replicas share.

    Args:
        rate: One or more rates, such as `100/minute` or `10/second;100/minute`.
        storage: `memory://`, or the URL of an asynchronous storage of the `limits` library, such
            as `async+redis://…`.
        option: The name of the option that sets the rate, for error messages.

    Raises:
        ValueError: *rate* or *storage* is invalid.

    Example:
        ```python
        import asyncio

        from apcore_a2a_server.middleware import RateLimiter


        async def main():
            limiter = RateLimiter("1/minute")
            return await limiter.count_use("ada"), await limiter.count_use("ada") > 0


        print(asyncio.run(main()))
        #> (0, True)
        ```
    """

    def __init__(self, rate: str, storage: str = MEMORY, option: str = "rate_limit") -> None:
        from limits import aio, parse_many, strategies

        backend = storage_of(storage)
        try:
            self._rates = parse_many(rate)
        except ValueError:
            self._rates = []
        if not self._rates or any(rate.amount < 1 for rate in self._rates):
            raise OptionError(option, f"must look like 10/second;100/minute, not {rate!r}")
        # `memory://` stays synchronous, since `async+memory://` checks all keys at every hit.
        library: Any = aio.strategies if storage.startswith(ASYNC) else strategies
        self._strategy = library.SlidingWindowCounterRateLimiter(backend)

    async def count_use(self, *key: str) -> int:
        """Count a use for *key* and return 0; at the limit, only return the seconds to wait.

        Raises:
            RateStorageDownError: The storage is unavailable.
        """
        try:
            return await self._count_use(*key)
        except Exception:  # each storage raises the errors of its own client library
            extra = {"event": "rate_limits_failed"}
            logger.exception("The storage of the rate limits failed", extra=extra)
            raise RateStorageDownError from None

    async def _count_use(self, *key: str) -> int:
        # If one rate refuses a use, the use must not count for the other rates, so all rates are
        # tested first. Between `test` and `hit`, a concurrent use may still take the last place.
        for rate in self._rates:
            if not await _resolved(self._strategy.test(rate, *key)):
                return await self._seconds_to_wait(rate, *key)
        for rate in self._rates:
            if not await _resolved(self._strategy.hit(rate, *key)):
                return await self._seconds_to_wait(rate, *key)
        return 0

    async def _seconds_to_wait(self, rate: Any, *key: str) -> int:
        stats = await _resolved(self._strategy.get_window_stats(rate, *key))
        reset: float = stats.reset_time
        return max(1, math.ceil(reset - time.time()))


async def _resolved(result: Any) -> Any:
    return await result if isawaitable(result) else result


def storage_of(uri: str) -> Any:
    """Return the storage at *uri*.

    Raises:
        ValueError: The storage can't be used. The message names only the scheme of *uri*, which may
            contain a password.
    """
    from limits.errors import ConfigurationError
    from limits.storage import storage_from_string

    if not uri.startswith((MEMORY, ASYNC)):  # a synchronous storage blocks the event loop
        problem = "must be memory:// or asynchronous, such as async+redis://…"
        raise OptionError("rate_limit_storage", problem)
    try:
        return storage_from_string(uri)
    except ConfigurationError as error:
        is_missing = "prerequisite" in str(error)
        reason = "its library is not installed" if is_missing else "unknown scheme"
        scheme = uri.partition(":")[0]
        problem = f"can't be used: {scheme}: {reason}; use memory:// or async+redis://…"
        raise OptionError("rate_limit_storage", problem) from None


class RateLimit:
    """ASGI middleware that limits the request rate of each client, as `client_of` names it.

    Args:
        app: The wrapped application.
        limiter: The limiter that counts requests.
        public: Paths that can be read without a limit.
    """

    def __init__(self, app: ASGIApp, limiter: RateLimiter, *, public: Collection[str] = ()) -> None:
        self._app = app
        self._limiter = limiter
        self._public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it (RFC 6585 §4)."""
        refusal = None
        if scope["type"] == "http" and not is_public(scope, self._public):
            refusal = await check_rate(self._limiter, caller_of(scope)[0], client_of(scope))
        if refusal is not None:
            await refuse(scope, receive, send, *refusal)
        else:
            await self._app(scope, receive, send)


async def check_rate(limiter: RateLimiter, principal: str, client: str) -> Refusal | None:
    """Count a request of *client*, as `client_of` names it; return a refusal, if any."""
    try:
        seconds = await limiter.count_use("principal" if principal else "address", client)
    except RateStorageDownError as error:
        return rate_storage_down_refusal(error)
    if not seconds:
        return None
    return Refusal(429, "Too many requests", {"retry-after": str(seconds)})
