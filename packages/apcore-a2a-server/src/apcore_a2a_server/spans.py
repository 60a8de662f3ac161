"""Spans of OpenTelemetry: of admissions, runs, calls of modules and attempts of webhooks.

Only `--otel` imports this module, which needs the extra `otel`. The program that serves the agent
brings the SDK and an exporter. Spans have ids and the types of errors, but no inputs, no outputs
and no texts of errors.
"""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.span import TraceState

from .trace_context import Trace

MAX_ATTRIBUTE = 256
"""Characters of an attribute."""
NO_FAILURES = frozenset(
    {
        "ApprovalPendingError",
        "GeneratorExit",
        "InputRequiredError",
        "InputRequiredModuleError",
    }
)
"""Exceptions of pauses, and of readers that leave a stream."""


class Spans:
    """The spans of this process, by the tracer of the provider that the program has set."""

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
        """Make a span current while the block runs.

        Args:
            name: The name of the span, one of few.
            kind: Its kind.
            parent: Its parent; None for the current span.
            attributes: Its attributes.
        """
        context = None
        if parent is not None and parent.span_id:
            context = set_span_in_context(trace.NonRecordingSpan(_context_of(parent)))
        with self._tracer.start_as_current_span(
            name,
            context,
            kind,
            {name: value[:MAX_ATTRIBUTE] for name, value in (attributes or {}).items()},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:  # the type of any exception is recorded
                self.fail(error)
                raise

    def module(self, module_id: str) -> AbstractContextManager[Span]:
        """Make the span of a call of a module current."""
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": module_id}
        return self.span(f"execute_tool {module_id[:MAX_ATTRIBUTE]}", attributes=attributes)

    def fail(self, error: BaseException) -> None:
        """Record in the current span that *error* has ended it, without the text of the error."""
        error_type = type(error).__name__
        if error_type not in NO_FAILURES:
            self.fail_with(error_type)

    def fail_with(self, error_type: str) -> None:
        """Record in the current span that it has failed."""
        span = trace.get_current_span()
        span.set_attribute("error.type", error_type)
        span.set_status(Status(StatusCode.ERROR))

    def here(self, default: Trace) -> Trace:
        """Return the place of the current span; a child of *default* if there is none."""
        context = trace.get_current_span().get_span_context()
        return _place_of(context) if context.is_valid else default.child()


def _context_of(place: Trace) -> SpanContext:
    return SpanContext(
        int(place.trace_id, 16),
        int(place.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(place.flags, 16)),
        trace_state=TraceState.from_header([place.state]),
    )


def _place_of(context: SpanContext) -> Trace:
    return Trace(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{context.trace_flags & 0xFF:02x}",
        context.trace_state.to_header(),
    )
