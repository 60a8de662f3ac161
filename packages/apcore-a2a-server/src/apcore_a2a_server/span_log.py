"""The spans of a run: what a task has spent its time on.

A run notes its spans here as it goes, whether or not OpenTelemetry is on, and its last change
writes them into the store. Nothing reads them but the trace of the task.
"""

import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, json

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


class OpenSpan(Struct, eq=False):
    """A span of a run, with times by the monotonic clock.

    Attributes:
        kind: Its kind.
        name: Its name.
        start: When it began.
        parent: The span that it is part of.
        end: When it ended; 0 while it lasts.
        failed: Whether it has failed.
    """

    kind: SpanKind
    name: str
    start: float
    parent: "OpenSpan | None" = None
    end: float = 0
    failed: bool = False


current_span: ContextVar[OpenSpan | None] = ContextVar("apcore_a2a_span", default=None)
"""The span of the module that the current call comes from."""


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

    __slots__ = ("_checked_at", "_dropped", "_offset", "_queued", "_spans", "_started_at")

    def __init__(self) -> None:
        self._started_at = time.monotonic()
        self._offset = time.time() - self._started_at
        self._checked_at = 0.0
        self._queued = False
        self._spans: list[OpenSpan] = []
        self._dropped = 0

    def end_check(self, *, failed: bool = False) -> None:
        """Note that the access and the inputs of the call are checked; later calls do nothing."""
        if not self._checked_at:
            self._checked_at = time.monotonic()
            start, end = self._started_at, self._checked_at
            self._add(OpenSpan("check", "check", start, end=end, failed=failed))

    def begin(self, name: str, kind: SpanKind = "call") -> OpenSpan:
        """Begin the span of a call of a module; one without a parent is that of the run's skill."""
        parent = current_span.get()
        if parent is None and kind == "call":
            kind = "module"
        span = OpenSpan(kind, name, time.monotonic(), parent)
        self._add(span)
        current_span.set(span)
        return span

    def started(self, span: OpenSpan) -> None:
        """Note that the module starts now: it may have waited for a thread or a process."""
        now = time.monotonic()
        if span.parent is None and not self._queued:
            self._queued = True
            self._add(OpenSpan("queue", "queue", self._checked_at or span.start, end=now))
        span.start = now

    def end(self, span: OpenSpan, error: BaseException | None = None) -> None:
        """End the span of a call of a module; the call that it comes from goes on."""
        span.end = time.monotonic()
        span.failed = error is not None and type(error).__name__ not in PAUSES
        current_span.set(span.parent)

    def dump(self) -> str:
        """Return the spans as text; those that have not ended end now, and have failed."""
        self.end_check(failed=True)
        return self._text(time.monotonic())

    def running(self) -> str:
        """Return the spans as text while the run goes on."""
        return self._text(0)

    def _add(self, span: OpenSpan) -> None:
        if len(self._spans) < MAX_SPANS:
            self._spans.append(span)
        else:
            self._dropped += 1

    def _text(self, now: float) -> str:
        spans, offset = [*self._spans], self._offset
        numbers = {id(span): number for number, span in enumerate(spans)}
        rows = [
            (
                -1 if span.parent is None else numbers.get(id(span.parent), -1),
                span.kind,
                span.name[:MAX_NAME],
                round(span.start + offset, 6),
                round(end - span.start, 6) if (end := span.end or now) else None,
                "error" if span.failed or (now and not span.end) else "ok" if end else "running",
            )
            for span in spans
        ]
        return _line(self._dropped, rows)


def wait_text(name: str, since: float) -> str:
    """Return, as text, the span of the wait of a task for a person, which ends now.

    Args:
        name: What the task has waited for.
        since: When the wait began, in seconds since 1970.
    """
    return _line(0, [(-1, "wait", name, since, round(max(time.time() - since, 0), 6), "ok")])


def _line(dropped: int, rows: Sequence[tuple[Any, ...]]) -> str:
    return f"{json.encode((dropped, rows)).decode()}\n"


class StoredSpan(NamedTuple):
    """A span as the store has it.

    Attributes:
        parent: The position of its parent in the same chunk; -1 for none.
        kind: Its kind.
        name: Its name.
        start: When it began, in seconds since 1970.
        seconds: How long it took; None while it lasts.
        status: Its status.
    """

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
        spans: The spans, in the order in which they began or were added.
    """

    dropped: int
    spans: Sequence[StoredSpan]


def stored_spans(text: str) -> list[SpanChunk]:
    """Return the spans in a text of the store; a last line that was cut off counts as dropped."""
    *lines, rest = text.split("\n")
    chunks = [json.decode(line, type=SpanChunk) for line in lines]
    return [*chunks, SpanChunk(1, ())] if rest else chunks
