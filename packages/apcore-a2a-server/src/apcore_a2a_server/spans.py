"""OpenTelemetry spans of admitted messages, runs, module calls and webhook attempts.

This module is imported only if the option `otel` is on, and needs the extra `otel`. The program
that serves the agent provides the SDK and an exporter. Spans have ids and the types of errors, but
no inputs, outputs or error messages.
"""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.span import TraceState

from .trace_context import NOT_FAILURES, Trace

MAX_ATTRIBUTE = 256
"""Maximum length of an attribute, in characters."""


class Spans:
    """Source of spans; it uses the tracer provider that the program has set."""

    CLIENT = SpanKind.CLIENT
    SERVER = SpanKind.SERVER

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("apcore_a2a_server")

    @contextmanager
    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: Trace | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Generator[Span]:
        """Start a span, which is current while the block runs.

        Args:
            name: The name of the span, from a small set of names.
            kind: Its kind.
            parent: Its parent; if this is None or a trace without a span, the current span.
            attributes: Its attributes.
        """
        context = None
        if parent is not None and parent.span_id:
            context = set_span_in_context(trace.NonRecordingSpan(_context_of(parent)))
        with self._tracer.start_as_current_span(
            name,
            context,
            kind,
            {key: value[:MAX_ATTRIBUTE] for key, value in (attributes or {}).items()},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:  # a cancellation counts as a failure too
                self.fail(error)
                raise

    def module(self, module_id: str) -> AbstractContextManager[Span]:
        """Return a context manager for the span of a module call."""
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": module_id}
        return self.span(f"execute_tool {module_id[:MAX_ATTRIBUTE]}", attributes=attributes)

    def fail(self, error: BaseException) -> None:
        """Mark the current span as failed, unless the type of *error* is in `NOT_FAILURES`."""
        error_type = type(error).__name__
        if error_type not in NOT_FAILURES:
            self.fail_with(error_type)

    def fail_with(self, error_type: str) -> None:
        """Mark the current span as failed, with the type of the error."""
        span = trace.get_current_span()
        span.set_attribute("error.type", error_type)
        span.set_status(Status(StatusCode.ERROR))

    def current(self, default: Trace) -> Trace:
        """Return the trace context of the current span; a child of *default* if there is none."""
        context = trace.get_current_span().get_span_context()
        return _trace_from(context) if context.is_valid else default.child()


def _context_of(source: Trace) -> SpanContext:
    return SpanContext(
        int(source.trace_id, 16),
        int(source.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(source.flags, 16)),
        trace_state=TraceState.from_header([source.state]),
    )


def _trace_from(context: SpanContext) -> Trace:
    return Trace(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{context.trace_flags & 0xFF:02x}",
        context.trace_state.to_header(),
    )
