"""`apcore_a2a_guards` under its `apcore_a2a` name."""

from ._parts import missing

try:
    from apcore_a2a_guards import (
        AccessLog,
        Authentication,
        Boundary,
        CountAnswers,
        Discreet,
        OriginGuard,
        PageHeaders,
        RateLimit,
        RateLimiter,
        caller_of,
        guards,
        note,
        principal_of,
        set_up_logging,
    )
except ModuleNotFoundError as error:
    raise missing(error, "guards", "apcore_a2a.guards") from None

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
