"""ASGI middleware before an agent; security schemes are all that it knows of A2A."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from apcore_a2a_core import Authenticator
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from .auth import Authentication, caller_of, declared, principal_of
from .errors import ErrorMiddleware
from .logs import AccessLog, RedactingFormatter, log_context, set_up_logging
from .origin import OriginGuard, PageHeaders, origin_of
from .rates import MEMORY, RateLimit, RateLimiter, storage_of

__all__ = [
    "AccessLog",
    "Authentication",
    "ErrorMiddleware",
    "OriginGuard",
    "PageHeaders",
    "RateLimit",
    "RateLimiter",
    "RedactingFormatter",
    "build_middleware",
    "caller_of",
    "log_context",
    "principal_of",
    "set_up_logging",
]

logger = logging.getLogger("apcore_a2a.guards")


def build_middleware(
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
    """Return the middleware that is asked for, the outermost first.

    CORS comes before whatever refuses: browsers read a 401 or a 429 only with its headers, and
    their preflight requests have no credentials.

    Args:
        public: Paths, exactly as they are, that anybody may read.
        url: The agent's public address, whose pages may call: behind a proxy, requests do not
            always tell it.
        auth: Authenticates callers; None to let anybody call.
        cors_origins: Origins whose web pages may call; "*" for all.
        allowed_hosts: The `Host` headers that are answered; none for all.
        rate_limit: How often a client may ask; see `RateLimiter`.
        rate_limit_storage: Where that is counted.
        access_log: Whether each request is logged.

    Example:
        ```python
        from apcore_a2a_server.middleware import build_middleware
        from starlette.applications import Starlette

        app = Starlette(
            middleware=build_middleware(public=["/health"], allowed_hosts=["example.com"])
        )
        print([each.cls.__name__ for each in app.user_middleware])
        #> ['AccessLog', 'ErrorMiddleware', 'PageHeaders', 'TrustedHostMiddleware', 'OriginGuard']
        ```
    """
    found = [Middleware(AccessLog, public=public)] if access_log else []
    found += [Middleware(ErrorMiddleware), Middleware(PageHeaders)]
    if allowed_hosts:
        found.append(Middleware(TrustedHostMiddleware, allowed_hosts=[*allowed_hosts]))
    if cors_origins:
        found.append(_cors(cors_origins))
    own = [] if url is None else [origin_of(url)]
    found.append(Middleware(OriginGuard, allowed=[*cors_origins, *own]))
    if auth is not None:
        logger.info("Authentication required: %s", " or ".join(declared(auth)))
        found.append(Middleware(Authentication, authenticator=auth, public=public))
    storage_of(rate_limit_storage)  # refuse a wrong address even without a rate
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
