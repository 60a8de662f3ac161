"""W3C Trace Context: the trace that a request belongs to, and what continues it.

https://www.w3.org/TR/trace-context/ defines the headers `traceparent` and `tracestate`.
"""

import re
from collections.abc import Mapping
from random import getrandbits
from typing import Any

from msgspec import Struct

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.A)
MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x7e]{0,255}[\x21-\x7e]", re.A)
"""A member of `tracestate`; a comma or a second `=` in its value is refused apart."""
MAX_STATE = 512
"""Bytes of `tracestate` that are kept; the specification asks for at least as many."""
MAX_MEMBERS = 32
"""Members of `tracestate`; with more of them it is invalid."""
KNOWN_FLAGS = 0x03
"""The flags of Trace Context 2, sampled and random; others must not be passed on."""
UNUSABLE_IDS = frozenset({"0" * 32, "f" * 32})
"""Trace ids that start a new trace: the first is invalid, the second is refused by apcore."""
SAMPLED = "01"
"""The flags of a trace that begins here."""


class Trace(Struct, frozen=True):
    """A place in a trace: the span whose children come next.

    Attributes:
        trace_id: The id of the trace, 32 hexadecimal digits.
        span_id: The id of the span, 16 hexadecimal digits; empty at the beginning of a trace.
        flags: The flags, 2 hexadecimal digits.
        state: The value of `tracestate`; may be empty.
    """

    trace_id: str
    span_id: str = ""
    flags: str = SAMPLED
    state: str = ""

    def child(self) -> "Trace":
        """Return a new child of the span."""
        return Trace(self.trace_id, new_span_id(), self.flags, self.state)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request that the span sends."""
        headers = {"traceparent": f"00-{self.trace_id}-{self.span_id}-{self.flags}"}
        return headers | {"tracestate": self.state} if self.state else headers

    def metadata(self) -> dict[str, str]:
        """Return the members of a task's metadata that name its trace."""
        named = {"traceId": self.trace_id}
        return named if self.flags == SAMPLED else named | {"traceFlags": self.flags}

    @classmethod
    def of_task(cls, metadata: Mapping[str, Any]) -> "Trace | None":
        """Return the trace of the task with this metadata; None if it names none."""
        own: Mapping[str, Any] = metadata.get("apcore", {})
        if "traceId" not in own:  # the task is of an earlier version
            return None
        return cls(own["traceId"], flags=own.get("traceFlags", SAMPLED))

    def __str__(self) -> str:
        return " ".join(self.headers().values())

    @classmethod
    def read(cls, text: str) -> "Trace | None":
        """Return the place that `str` has written; None if there is none."""
        traceparent, _, state = text.partition(" ")
        return received_trace({"traceparent": traceparent, "tracestate": state})


def new_trace() -> Trace:
    """Return the beginning of a new trace."""
    return Trace(f"{getrandbits(128) or 1:032x}")


def new_span_id() -> str:
    """Return an id for a span."""
    return f"{getrandbits(64) or 1:016x}"


def received_trace(headers: Mapping[str, str]) -> Trace | None:
    """Return the place in a trace that headers name; None if there is none, or an invalid one.

    Args:
        headers: The headers, by names in lower case.

    >>> received_trace({"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}).trace_id[:4]
    'abab'
    """
    match = TRACEPARENT.fullmatch(headers.get("traceparent", "").strip(" \t"))
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    # later versions may have more after the flags
    is_invalid = version == "ff" or (version == "00" and rest) or span_id == "0" * 16
    if is_invalid or trace_id in UNUSABLE_IDS:
        return None
    known_flags = f"{int(flags, 16) & KNOWN_FLAGS:02x}"
    return Trace(trace_id, span_id, known_flags, bounded_state(headers.get("tracestate", "")))


def bounded_state(tracestate: str) -> str:
    """Return the members of `tracestate` that fit in `MAX_STATE` bytes; "" if one is invalid.

    Members that do not fit are removed as the specification says (§3.3.1.5): first those of more
    than 128 characters, then those at the end.

    >>> bounded_state("a=1, b=2 ,")
    'a=1,b=2'
    """
    if not tracestate:
        return ""
    members = [member for each in tracestate.split(",") if (member := each.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    is_valid = all(MEMBER.fullmatch(each) and each.count("=") == 1 for each in members)
    if not is_valid or len(members) > MAX_MEMBERS or len(keys) < len(members):
        return ""
    if _size(members) > MAX_STATE:
        members = [member for member in members if len(member) <= 128]
    while _size(members) > MAX_STATE:
        members.pop()
    return ",".join(members)


def _size(members: list[str]) -> int:
    return sum(len(member) + 1 for member in members) - 1
