"""ASGI middleware in front of an agent: logs, errors, hosts, origins, authentication and rates."""

import logging
from collections.abc import Callable, Collection, Sequence

from apcore_a2a_core import Authenticator
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from .auth import (
    Authentication,
    ClientKey,
    ClientKeys,
    caller_of,
    client_of,
    declared_schemes,
    principal_of,
)
from .front import FrontMiddleware, origin_of
from .logs import RedactingFormatter, log_context, set_up_logging
from .rates import RateLimit, RateLimiter
from .tenant_paths import TenantPaths

__all__ = [
    "Authentication",
    "ClientKeys",
    "FrontMiddleware",
    "RateLimit",
    "RateLimiter",
    "RedactingFormatter",
    "build_middleware",
    "caller_of",
    "client_of",
    "log_context",
    "principal_of",
    "set_up_logging",
]

logger = logging.getLogger("apcore_a2a.middleware")


def build_middleware(
    *,
    public: Collection[str],
    url: str | None = None,
    auth: Authenticator | None = None,
    cors_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] = (),
    limiter: RateLimiter | None = None,
    auth_limiter: RateLimiter | None = None,
    client_key: ClientKey | None = None,
    access_log: bool = True,
    reserved_names: Collection[str] | None = None,
    on_response: Callable[[int], None] | None = None,
) -> list[Middleware]:
    """Return the middleware for these options, the outermost first.

    CORS comes before authentication and rate limits: browsers show a 401 or a 429 to a page only
    with the headers of CORS, and send preflight requests without credentials.

    Args:
        public: Exact paths that can be read without authentication or limits.
        url: The agent's public URL; pages of its origin may call the agent. Behind a proxy, this
            origin can't always be derived from a request.
        auth: The authenticator of callers; None to allow anonymous calls.
        cors_origins: Origins whose web pages may call the agent; "*" for all.
        allowed_hosts: Names of hosts that are served; empty, or with "*", for all.
        limiter: Counts the requests of each client; None for no limit.
        auth_limiter: Counts the requests that authentication refuses, by client address; None for
            no limit.
        client_key: Function that names the client towards whose limits a request counts; see
            `ClientKeys`.
        access_log: Whether each request is logged.
        reserved_names: First segments of the agent's own paths, which are not tenants; None if
            there are no tenants.
        on_response: Function to call with the status of each response.

    Raises:
        ValueError: `url`, or a security scheme of the authenticator, is invalid.

    Example:
        ```python
        from apcore_a2a_server.middleware import build_middleware
        from starlette.applications import Starlette

        app = Starlette(
            middleware=build_middleware(public=["/health"], allowed_hosts=["example.com"])
        )
        print([middleware.cls.__name__ for middleware in app.user_middleware])
        #> ['FrontMiddleware']
        ```
    """
    stack: list[Middleware] = []
    if reserved_names is not None:
        stack.append(Middleware(TenantPaths, reserved=reserved_names))
    own_origins = [] if url is None else [origin_of(url)]
    front = Middleware(
        FrontMiddleware,
        public=public,
        allowed_hosts=() if "*" in allowed_hosts else allowed_hosts,
        allowed_origins=[*cors_origins, *own_origins],
        access_log=access_log,
        on_response=on_response,
    )
    stack.append(front)
    if cors_origins:
        stack.append(_cors(cors_origins))
    if auth is not None:
        schemes, extra = " or ".join(declared_schemes(auth)), {"event": "authentication_required"}
        logger.info("Authentication required: %s", schemes, extra=extra)
        authentication = Middleware(
            Authentication, authenticator=auth, public=public, auth_limiter=auth_limiter
        )
        stack.append(authentication)
    if client_key is not None:
        stack.append(Middleware(ClientKeys, client_key=client_key, public=public))
    if limiter is not None:
        stack.append(Middleware(RateLimit, limiter=limiter, public=public))
    return stack


def _cors(origins: Sequence[str]) -> Middleware:
    if "*" in origins:
        message = "cors_origins=['*'] lets web pages of any origin call this agent"
        logger.warning(message, extra={"event": "cors_open"})
    return Middleware(
        CORSMiddleware,
        allow_origins=[*origins],
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["A2A-Extensions", "Allow", "ETag", "Retry-After", "WWW-Authenticate"],
    )
