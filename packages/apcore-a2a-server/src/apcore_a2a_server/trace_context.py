"""The trace that a request belongs to, the headers that continue it, and the spans of a run.

https://www.w3.org/TR/trace-context/ defines the headers `traceparent` and `tracestate`.

A run records in a `SpanLog` how it spends its time, whether or not OpenTelemetry is on. The log is
stored when the run writes its task for the last time; only the trace page of the task reads it.
"""

import re
from collections.abc import Mapping, Sequence
from random import getrandbits
from time import monotonic, time
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.json import decode, encode

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.A)
MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x7e]{0,255}[\x21-\x7e]", re.A)
"""A member of `tracestate`; a second `=` is refused separately."""
MAX_STATE = 512
"""Maximum number of bytes of `tracestate` kept; the specification asks for at least 512."""
MAX_MEMBERS = 32
"""Maximum number of members of `tracestate`; a header with more members is invalid."""
KNOWN_FLAGS = 0x03
"""The flags of Trace Context 2, sampled and random; others must not be passed on."""
UNUSABLE_IDS = frozenset({"0" * 32, "f" * 32})
"""Trace ids that are not accepted: `00…0` is invalid, and apcore refuses `ff…f`."""
SAMPLED = "01"
"""The flags of a trace that begins here."""


class Trace(Struct, frozen=True):
    """A position in a trace: the span that will be the parent of the next spans.

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
        """Return the headers for a request that is sent within the span."""
        headers = {"traceparent": f"00-{self.trace_id}-{self.span_id}-{self.flags}"}
        return headers | {"tracestate": self.state} if self.state else headers

    def metadata(self) -> dict[str, str]:
        """Return the members of a task's `metadata["apcore"]` that name the trace."""
        members = {"traceId": self.trace_id}
        return members if self.flags == SAMPLED else members | {"traceFlags": self.flags}

    @classmethod
    def of_task(cls, metadata: Mapping[str, Any]) -> "Trace | None":
        """Return the trace that a task's metadata names; None if the metadata names none."""
        members: Mapping[str, Any] = metadata.get("apcore", {})
        if "traceId" not in members:  # an earlier release created the task
            return None
        return cls(members["traceId"], flags=members.get("traceFlags", SAMPLED))

    def __str__(self) -> str:
        return " ".join(self.headers().values())

    @classmethod
    def read(cls, text: str) -> "Trace | None":
        """Parse what `str` returns for a trace with a span; None if the text is not valid."""
        traceparent, _, state = text.partition(" ")
        return received_trace({"traceparent": traceparent, "tracestate": state})


def new_trace() -> Trace:
    """Return the beginning of a new trace."""
    return Trace(f"{getrandbits(128) or 1:032x}")


def new_span_id() -> str:
    """Return an id for a span."""
    return f"{getrandbits(64) or 1:016x}"


def received_trace(headers: Mapping[str, str]) -> Trace | None:
    """Return the trace and span that headers name; None if the trace is missing or unusable.

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
    """Return the members of `tracestate` that fit in `MAX_STATE` bytes; "" if it is invalid.

    Members that do not fit are removed as the specification says (§3.3.1.5): first those of more
    than 128 characters, then those at the end.

    >>> bounded_state("a=1, b=2 ,")
    'a=1,b=2'
    """
    if not tracestate:
        return ""
    stripped = (member.strip(" \t") for member in tracestate.split(","))
    members = [member for member in stripped if member]
    keys = {member.partition("=")[0] for member in members}
    is_valid = all(MEMBER.fullmatch(member) and member.count("=") == 1 for member in members)
    if not is_valid or len(members) > MAX_MEMBERS or len(keys) < len(members):
        return ""
    if _size(members) > MAX_STATE:
        members = [member for member in members if len(member) <= 128]
    while _size(members) > MAX_STATE:
        members.pop()
    return ",".join(members)


def _size(members: list[str]) -> int:
    return sum(len(member) + 1 for member in members) - 1


# Spans of a run


SpanKind: TypeAlias = Literal["queue", "check", "module", "call", "remote", "wait", "webhook"]
SpanStatus: TypeAlias = Literal["ok", "error", "running"]

MAX_SPANS = 200
"""Maximum number of spans that a run keeps, and that the trace page of a task shows."""
MAX_SPANS_SIZE = 64 * 1024
"""Maximum size of a task's spans in the store, in characters."""
MAX_NAME = 128
"""Maximum length of a span's name, in characters."""
NOT_FAILURES = frozenset(
    {
        "ApprovalPendingError",
        "GeneratorExit",
        "InputRequiredError",
        "InputRequiredModuleError",
    }
)
"""Names of exceptions that are not failures: a task pauses, or a client leaves a stream."""


SpanRow: TypeAlias = list[Any]
"""A span: number, number of its parent or -1, kind, name, start, end or 0, and whether it failed.

Times are by the monotonic clock; only the times of a wait are in seconds since 1970. Rows are lists
for speed: lists are serialized without conversion.
"""
NUMBER, NAME, START, END, HAS_FAILED = 0, 3, 4, 5, 6


class SpanLog:
    """The spans of one run.

    Example:
        ```python
        from apcore_a2a_server.trace_context import SpanLog, parse_spans

        log = SpanLog()
        log.end_check()
        module = log.begin("text.stats")
        log.end(module)
        chunk, = parse_spans(log.dump())
        print([(span.kind, span.name, span.status) for span in chunk.spans])
        #> [('check', 'check', 'ok'), ('module', 'text.stats', 'ok')]
        ```
    """

    __slots__ = ("_checked_at", "_count", "_root", "_rows", "_started_at")

    def __init__(self) -> None:
        self._started_at = monotonic()
        self._checked_at = 0.0
        self._rows: list[SpanRow] = []
        self._count = 0
        self._root: SpanRow | None = None

    def end_check(self, *, failed: bool = False) -> None:
        """Record that the checks of the skill call are over; do nothing the second time."""
        if not self._checked_at:
            self._checked_at = monotonic()
            self._add(-1, "check", "check", self._started_at, self._checked_at, failed)

    def begin(self, name: str, kind: SpanKind = "call", chain: Sequence[str] = ()) -> SpanRow:
        """Begin the span of a module call; the first one is the call of the run's skill.

        Args:
            name: The id of the module.
            kind: The kind of the span; for the run's skill, "module" is used instead of "call".
            chain: The ids of the calling modules, outermost first, then the called module's id.
        """
        if self._root is None:
            root_kind = "module" if kind == "call" else kind
            self._root = self._add(-1, root_kind, name, monotonic(), 0, False)
            return self._root
        return self._add(self._parent_number(chain), kind, name, monotonic(), 0, False)

    def start_module(self, span: SpanRow) -> None:
        """Record that the module starts now: it may have waited for a thread or a process."""
        now = monotonic()
        if span is self._root:
            self._add(-1, "queue", "queue", self._checked_at or span[START], now, False)
        span[START] = now

    def end(self, span: SpanRow, error: BaseException | None = None) -> None:
        """End the span of a module call."""
        span[END] = monotonic()
        if error is not None:
            span[HAS_FAILED] = type(error).__name__ not in NOT_FAILURES

    def dump(self, *, is_over: bool = True) -> str:
        """Return the spans as text; if the run is over, spans that are still open have failed."""
        if is_over:
            self.end_check(failed=True)
        now = monotonic()
        head = self._count - len(self._rows), time() - now, now if is_over else 0
        return encode((*head, self._rows)).decode() + "\n"

    def _add(
        self, parent: int, kind: str, name: str, start: float, end: float, failed: bool
    ) -> SpanRow:
        row = [self._count, parent, kind, name, start, end, failed]
        self._count += 1
        if len(self._rows) < MAX_SPANS:
            self._rows.append(row)
        return row

    def _parent_number(self, chain: Sequence[str]) -> int:
        """Return the number of a call's parent: the last open span of its caller, or the root."""
        if len(chain) > 1:
            for row in reversed(self._rows):
                if row[NAME] == chain[-2] and not row[END]:
                    return int(row[NUMBER])
        return -1 if self._root is None else int(self._root[NUMBER])


def dump_wait(name: str, since: float) -> str:
    """Return the span of a wait for an answer, as text; the wait ends now.

    Args:
        name: The name of the span, which says what the task waited for.
        since: When the wait began, in seconds since 1970.
    """
    now = time()
    row = [0, -1, "wait", name, min(since, now), now, False]
    # no offset: the times are in seconds since 1970 already
    return encode((0, 0.0, now, [row])).decode() + "\n"


class StoredSpan(NamedTuple):
    """A span that `parse_spans` has parsed.

    Attributes:
        number: Its number among the spans of its run.
        parent: The number of its parent; -1 for none.
        kind: Its kind.
        name: Its name.
        start: When it began, in seconds since 1970.
        seconds: How long it took; None while it lasts.
        status: Its status.
    """

    number: int
    parent: int
    kind: SpanKind
    name: str
    start: float
    seconds: float | None
    status: SpanStatus


class SpanChunk(NamedTuple):
    """The spans of one run of a task, or of one wait for an answer.

    Attributes:
        dropped: The number of spans that are missing; 1 if the stored line was cut off.
        spans: The spans, in the order in which they were added.
    """

    dropped: int
    spans: Sequence[StoredSpan]


def parse_spans(text: str) -> list[SpanChunk]:
    """Parse stored spans, one chunk per line; a cut-off last line counts as one dropped span."""
    *lines, rest = text.split("\n")
    chunks = [_read_chunk(*decode(line)) for line in lines]
    return [*chunks, SpanChunk(1, ())] if rest else chunks


def _read_chunk(dropped: int, offset: float, ended_at: float, rows: Sequence[Any]) -> SpanChunk:
    spans: list[StoredSpan] = []
    for number, parent, kind, name, start, end, has_failed in rows:
        seconds = round((end or ended_at) - start, 6) if end or ended_at else None
        ended_status: SpanStatus = "error" if has_failed or (ended_at and not end) else "ok"
        status = "running" if seconds is None else ended_status
        short_name, began = str(name)[:MAX_NAME], start + offset
        spans.append(StoredSpan(number, parent, kind, short_name, began, seconds, status))
    return SpanChunk(dropped, spans)
