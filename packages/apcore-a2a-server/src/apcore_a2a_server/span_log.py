"""The spans of a run: what a task has spent its time on.

A run notes its spans here as it goes, whether or not OpenTelemetry is on, and its last change
writes them into the store. Nothing reads them but the trace of the task.
"""

from collections.abc import Sequence
from time import monotonic, time
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec.json import decode, encode

SpanKind: TypeAlias = Literal["queue", "check", "module", "call", "remote", "wait", "webhook"]
SpanStatus: TypeAlias = Literal["ok", "error", "running"]

MAX_SPANS = 200
"""Spans of a run that are kept, and of a task that are shown."""
MAX_SPANS_SIZE = 64 * 1024
"""Characters that the spans of a task take in the store."""
MAX_NAME = 128
"""Characters of a span's name."""
PAUSES = frozenset(
    {
        "ApprovalPendingError",
        "GeneratorExit",
        "InputRequiredError",
        "InputRequiredModuleError",
    }
)
"""Exceptions of pauses, and of readers that leave a stream: they are no failures."""


SpanRow: TypeAlias = list[Any]
"""A span: number, number of its parent or -1, kind, name, start, end or 0, and whether it failed.

Times are by the monotonic clock. It is a list, and written as it is, because every run makes three.
"""
NUMBER, NAME, START, END, HAS_FAILED = 0, 3, 4, 5, 6


class SpanLog:
    """The spans of one run.

    Example:
        ```python
        from apcore_a2a_server.span_log import SpanLog, stored_spans

        log = SpanLog()
        log.end_check()
        module = log.begin("text.stats")
        log.end(module)
        chunk, = stored_spans(log.dump())
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
        """Note that the access and the inputs of the call are checked; later calls do nothing."""
        if not self._checked_at:
            self._checked_at = monotonic()
            self._add(-1, "check", "check", self._started_at, self._checked_at, failed)

    def begin(self, name: str, kind: SpanKind = "call", chain: Sequence[str] = ()) -> SpanRow:
        """Begin the span of a call of a module; the first one is the run's skill.

        Args:
            name: The id of the module.
            kind: The kind of the call.
            chain: The modules through which the call comes, itself included.
        """
        if self._root is None:
            root_kind = "module" if kind == "call" else kind
            self._root = self._add(-1, root_kind, name, monotonic(), 0, False)
            return self._root
        return self._add(self._caller(chain), kind, name, monotonic(), 0, False)

    def started(self, span: SpanRow) -> None:
        """Note that the module starts now: it may have waited for a thread or a process."""
        now = monotonic()
        if span is self._root:
            self._add(-1, "queue", "queue", self._checked_at or span[START], now, False)
        span[START] = now

    def end(self, span: SpanRow, error: BaseException | None = None) -> None:
        """End the span of a call of a module."""
        span[END] = monotonic()
        if error is not None:
            span[HAS_FAILED] = type(error).__name__ not in PAUSES

    def dump(self, *, is_over: bool = True) -> str:
        """Return the spans as text; if the run is over, those that go on have failed."""
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

    def _caller(self, chain: Sequence[str]) -> int:
        """Return the number of the span that a call comes from: the last open one of its caller."""
        if len(chain) > 1:
            for row in reversed(self._rows):
                if row[NAME] == chain[-2] and not row[END]:
                    return int(row[NUMBER])
        return -1 if self._root is None else int(self._root[NUMBER])


def wait_text(name: str, since: float) -> str:
    """Return, as text, the span of the wait of a task for a person, which ends now.

    Args:
        name: What the task has waited for.
        since: When the wait began, in seconds since 1970.
    """
    now = time()
    row = [0, -1, "wait", name, min(since, now), now, False]
    return encode((0, 0.0, now, [row])).decode() + "\n"


class StoredSpan(NamedTuple):
    """A span as it was stored.

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
    """The spans of one run of a task.

    Attributes:
        dropped: The number of spans that were too many.
        spans: The spans, in the order in which they were added.
    """

    dropped: int
    spans: Sequence[StoredSpan]


def stored_spans(text: str) -> list[SpanChunk]:
    """Return the spans in a text of the store; a last line that was cut off counts as dropped."""
    *lines, rest = text.split("\n")
    chunks = [_chunk(*decode(line)) for line in lines]
    return [*chunks, SpanChunk(1, ())] if rest else chunks


def _chunk(dropped: int, offset: float, now: float, rows: Sequence[Any]) -> SpanChunk:
    spans: list[StoredSpan] = []
    for number, parent, kind, name, start, end, has_failed in rows:
        seconds = round((end or now) - start, 6) if end or now else None
        status: SpanStatus = "error" if has_failed or (now and not end) else "ok"
        known_status = "running" if seconds is None else status
        times = start + offset, seconds, known_status
        spans.append(StoredSpan(number, parent, kind, str(name)[:MAX_NAME], *times))
    return SpanChunk(dropped, spans)
