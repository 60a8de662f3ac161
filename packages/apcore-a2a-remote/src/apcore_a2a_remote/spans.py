"""Spans of OpenTelemetry for calls of remote skills.

A call gets a span if another span is active: a program that has spans has imported OpenTelemetry,
so this package need not.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from apcore_a2a_client.headers import trace_headers

MAX_ATTRIBUTE = 256
"""Maximum length of an attribute, in characters."""


@contextmanager
def remote_span(agent_name: str, skill_id: str) -> Generator[dict[str, str]]:
    """Record the block as a span if another is active; yield headers that pass on the new span.

    The new span does not become the current one, since the block may be part of a generator.
    """
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None or not _is_valid(opentelemetry.get_current_span()):
        yield {}
        return
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent_name[:MAX_ATTRIBUTE],
        "a2a.skill.id": skill_id[:MAX_ATTRIBUTE],
    }
    span = opentelemetry.get_tracer("apcore_a2a_remote").start_span(
        f"invoke_agent {agent_name[:MAX_ATTRIBUTE]}",
        kind=opentelemetry.SpanKind.CLIENT,
        attributes=attributes,
    )
    try:
        yield trace_headers(span.get_span_context())
    except GeneratorExit:  # the caller has stopped reading the stream
        raise
    except BaseException as error:  # the type of any exception is recorded
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(opentelemetry.Status(opentelemetry.StatusCode.ERROR))
        raise
    finally:
        span.end()


def _is_valid(span: Any) -> bool:
    is_valid: bool = span.get_span_context().is_valid
    return is_valid
