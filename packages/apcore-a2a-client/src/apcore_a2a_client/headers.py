"""Headers of requests: validation of callers' headers, and headers of W3C Trace Context."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

Headers: TypeAlias = Mapping[str, str]
NO_HEADERS: Headers = {}
HeaderSource: TypeAlias = Callable[[], Headers | Awaitable[Headers]]
"""A function or coroutine function that returns headers."""

RESERVED_HEADERS = frozenset(
    {
        "a2a-version",
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "transfer-encoding",
    }
)
"""Headers of A2A and HTTP that callers may not pass: the client sets those that it needs."""
PUBLIC_HEADERS = frozenset({"a2a-extensions", "traceparent", "tracestate", "user-agent"})
"""Headers that do not count as credentials."""


def check_headers(headers: Headers | None) -> dict[str, str]:
    """Return *headers* with names in lower case.

    Raises:
        TypeError: They are not a mapping of strings.
        ValueError: A name or value is not valid in HTTP, or a name is in `RESERVED_HEADERS`.
    """
    if headers is None:
        return {}
    # callers may have no type checker
    if not isinstance(headers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"headers must be a mapping, not {type(headers).__name__}")
    return {
        check_header_name(name).lower(): check_header_value(value, f"header {name}")
        for name, value in headers.items()
    }


def check_header_source(headers: Headers | HeaderSource | None) -> Headers | HeaderSource:
    """Return *headers* unchanged if it is a function, otherwise the result of `check_headers`."""
    return headers if callable(headers) else check_headers(headers)


def check_header_name(name: str) -> str:
    """Return *name* if it can be the name of a header (RFC 9110 §5.6.2) that callers may set.

    Raises:
        TypeError: It is not a string.
        ValueError: It is not a valid name, or is in `RESERVED_HEADERS`.
    """
    # callers may have no type checker
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"The name of a header must be a string, not {type(name).__name__}")
    if not name or not all(c.isascii() and (c.isalnum() or c in "!#$%&'*+-.^_`|~") for c in name):
        raise ValueError(f"{name!r} is not a valid header name")
    if name.lower() in RESERVED_HEADERS:
        raise ValueError(f"The client sets the header {name!r} itself")
    return name


def check_header_value(value: str, label: str = "credentials") -> str:
    """Return *value* if it can be the value of a header (RFC 9110 §5.5).

    The messages of errors do not quote *value*, which may be secret.

    Raises:
        TypeError: It is not a string.
        ValueError: It is not valid in a header.
    """
    # callers may have no type checker
    if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"The {label} must be a string, not {type(value).__name__}")
    if not (value.isascii() and value.isprintable() and value.strip() == value and value):
        raise ValueError(f"The {label} must not be empty or contain characters invalid in a header")
    return value


def has_secrets(headers: Headers) -> bool:
    """Return whether *headers* may contain something that only the agent may see."""
    return not PUBLIC_HEADERS.issuperset(headers)


def current_trace() -> Headers:
    """Return the W3C Trace Context headers of OpenTelemetry's current span, if there is one.

    A program that has spans has imported OpenTelemetry, so this package need not.
    """
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return NO_HEADERS
    context = opentelemetry.get_current_span().get_span_context()
    return trace_headers(context) if context.is_valid else NO_HEADERS


def trace_headers(context: Any) -> dict[str, str]:
    """Return the headers that continue the span of *context*, a `SpanContext` of OpenTelemetry."""
    ids = f"{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"
    state = context.trace_state.to_header()
    return {"traceparent": f"00-{ids}", **({"tracestate": state} if state else {})}
