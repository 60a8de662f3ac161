"""All guards in their order."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from apcore_a2a_core import Authenticator
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from .authentication import Authentication
from .boundary import Boundary
from .logs import AccessLog
from .origin import OriginGuard, origin_of
from .pages import PageHeaders
from .rates import MEMORY, RateLimit, RateLimiter, storage_of
from .schemes import declared

logger = logging.getLogger("apcore_a2a.guards")


def guards(
    *,
    public: Collection[str],
    url: str | None = None,
    auth: Authenticator | None = None,
    cors_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] = (),
    rate_limit: str | None = None,
    rate_limit_storage: str = MEMORY,
    access_log: bool = True,
) -> list[Middleware]:
    """The guards that are asked for, the first of them outermost.

    What answers browsers stands before what refuses, for they read a 401 or a 429 only with its
    headers, and ask without credentials first whether they may.

    Args:
        public: Paths, exactly as they are, that anybody may read.
        url: The agent's public address, whose pages may call: behind a proxy, requests do not
            always tell it.
        auth: Tells who calls; None for nobody in particular.
        cors_origins: Origins whose web pages may call; "*" for all.
        allowed_hosts: The `Host` headers that are answered; none for all.
        rate_limit: How often a client may ask; see `RateLimiter`.
        rate_limit_storage: Where that is counted.
        access_log: Whether each request is logged.

    Example:
        ```python
        from apcore_a2a_server.middleware import guards
        from starlette.applications import Starlette

        app = Starlette(middleware=guards(public=["/health"], allowed_hosts=["example.com"]))
        print([each.cls.__name__ for each in app.user_middleware])
        #> ['AccessLog', 'Boundary', 'PageHeaders', 'TrustedHostMiddleware', 'OriginGuard']
        ```
    """
    found = [Middleware(AccessLog, public=public)] if access_log else []
    found += [Middleware(Boundary), Middleware(PageHeaders)]
    if allowed_hosts:
        found.append(Middleware(TrustedHostMiddleware, allowed_hosts=[*allowed_hosts]))
    if cors_origins:
        found.append(_cors(cors_origins))
    own = [] if url is None else [origin_of(url)]
    found.append(Middleware(OriginGuard, allowed=[*cors_origins, *own]))
    if auth is not None:
        logger.info("Callers must be known, by %s", " or ".join(declared(auth)))
        found.append(Middleware(Authentication, authenticator=auth, public=public))
    storage_of(rate_limit_storage)  # a mistake in it shall show without a rate, too
    if rate_limit:
        limiter = RateLimiter(rate_limit, rate_limit_storage)
        found.append(Middleware(RateLimit, limiter=limiter, public=public))
    return found


def _cors(origins: Sequence[str]) -> Middleware:
    if "*" in origins:
        logger.warning("cors_origins=['*'] lets web pages of any origin call this agent")
    options: dict[str, Any] = {
        "allow_origins": [*origins],
        "allow_methods": ["GET", "POST", "DELETE"],
        "allow_headers": ["*"],
        "expose_headers": ["ETag", "Retry-After", "WWW-Authenticate"],
    }
    return Middleware(CORSMiddleware, **options)
