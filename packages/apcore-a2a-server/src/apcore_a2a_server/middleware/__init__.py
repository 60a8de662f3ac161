"""What stands before an agent: ASGI middleware, which of A2A knows security schemes alone."""

from .authentication import Authentication, caller_of, principal_of
from .boundary import Boundary
from .counting import CountAnswers
from .logs import AccessLog, Discreet, note, set_up_logging
from .origin import OriginGuard
from .pages import PageHeaders
from .rates import RateLimit, RateLimiter
from .stack import guards

__all__ = [
    "AccessLog",
    "Authentication",
    "Boundary",
    "CountAnswers",
    "Discreet",
    "OriginGuard",
    "PageHeaders",
    "RateLimit",
    "RateLimiter",
    "caller_of",
    "guards",
    "note",
    "principal_of",
    "set_up_logging",
]
