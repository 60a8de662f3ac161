"""`GET /apcore/tasks/{id}/trace`: the spans of a task, which show how it spent its time."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from apcore_a2a_core.data import Json
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import NAMES, PAUSED, WORKING

from apcore_a2a_server.bindings.own_routes import OwnRequest, OwnRoute
from apcore_a2a_server.engine.change import wait_name
from apcore_a2a_server.store.webhooks import MAX_WEBHOOKS, WebhookQuery, WebhookStatus
from apcore_a2a_server.trace_context import (
    MAX_SPANS,
    SpanChunk,
    SpanKind,
    SpanStatus,
    Trace,
    parse_spans,
)

from .agent import Agent
from .operate import counts_as_operator, timestamp
from .options import Settings


class ShownSpan(NamedTuple):
    """A span of a trace, as it is shown.

    Attributes:
        id: Its id, which is unique within the trace.
        kind: Its kind.
        name: Its name.
        start: When it began, in seconds since 1970.
        seconds: How long it took; None while it lasts.
        status: Its status.
        parent_id: The id of the span that it is part of; None without a parent.
        attributes: Further facts about it.
    """

    id: str
    kind: SpanKind
    name: str
    start: float
    seconds: float | None
    status: SpanStatus
    parent_id: str | None = None
    attributes: Json = {}  # noqa: RUF012 - it is never changed

    def document(self) -> Json:
        """Return the span as JSON."""
        return {
            "id": self.id,
            "parentId": self.parent_id,
            "name": self.name,
            "kind": self.kind,
            "startedAt": timestamp(self.start, "microseconds"),
            "seconds": self.seconds,
            "status": self.status,
            "attributes": self.attributes,
        }


class TracePage:
    """The trace of a task, for its owner and for operators.

    Args:
        agent: The agent.
        settings: The options.
    """

    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent = agent
        self._settings = settings

    def routes(self) -> list[OwnRoute]:
        """Return the route."""
        return [OwnRoute("GET", "tasks/{id}/trace", self.show)]

    async def show(self, request: OwnRequest) -> dict[str, Any]:
        """Return the trace of a task.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller may not see it.
        """
        handler, store = self._agent.handler, self._agent.setup.tasks.store
        task_id, caller = request.path_params["id"], request.caller
        is_operator = counts_as_operator(self._settings, handler.operator_rules, caller.identity)
        record = await handler.admission.get_operable_task(
            "GetTrace", task_id, caller, is_operator=is_operator
        )
        # parsed separately, since the stored text may end in a line that was cut off
        chunks = parse_spans(await store.spans(task_id))
        chunks += parse_spans(self._dump_running_spans(record))
        query = WebhookQuery(task_id=task_id, limit=MAX_WEBHOOKS)
        attempts = [*attempt_spans(await store.webhook_statuses(query))]
        # in stored order, not by start: the start of a wait is exact only to the millisecond
        spans = [*spans_in(chunks), *self._open_spans(record)]
        shown_spans = [*spans, *attempts][:MAX_SPANS]
        dropped = sum(chunk.dropped for chunk in chunks)
        trace = Trace.of_task(record.task.metadata)
        return {
            "taskId": task_id,
            "traceId": None if trace is None else trace.trace_id,
            "state": NAMES[record.task.status.state],
            "spans": [span.document() for span in shown_spans],
            "dropped": dropped + len(spans) + len(attempts) - len(shown_spans),
        }

    def _dump_running_spans(self, record: TaskRecord) -> str:
        """Dump the spans of the task's run in this process, which are not stored yet."""
        run = self._agent.engine.runs.get(record.task.id)
        is_running = run is not None and record.task.status.state is WORKING
        return run.spans.dump(is_over=False) if run is not None and is_running else ""

    def _open_spans(self, record: TaskRecord) -> list[ShownSpan]:
        """Return the open span of a task that waits, or that runs in another process."""
        status = record.task.status
        if status.state in PAUSED:
            name = wait_name(status.message)
            return [ShownSpan("now", "wait", name, record.status_at, None, "running")]
        if status.state is WORKING and record.task.id not in self._agent.engine.runs:
            return [ShownSpan("now", "module", record.skill, record.status_at, None, "running")]
        return []


def spans_in(chunks: Sequence[SpanChunk]) -> Iterator[ShownSpan]:
    """Yield the spans of all runs and waits of a task."""
    for number, chunk in enumerate(chunks):
        for span in sorted(chunk.spans, key=attrgetter("start")):
            parent_id = None if span.parent < 0 else f"{number}.{span.parent}"
            yield ShownSpan(f"{number}.{span.number}", *span[2:], parent_id)


def attempt_spans(statuses: Sequence[WebhookStatus]) -> Iterator[ShownSpan]:
    """Yield a span for each delivery attempt, webhook by webhook, the newest attempt first."""
    for number, status in enumerate(statuses):
        webhook = status.webhook
        for position, attempt in enumerate(status.attempts):
            is_delivered = attempt.result == "delivered"
            attributes: Json = {
                "webhook": webhook.config.id,
                "result": attempt.result,
                "status": attempt.status or None,
                "reason": attempt.reason or None,
            }
            yield ShownSpan(
                f"w{number}.{position}",
                "webhook",
                webhook.host,
                attempt.at,
                attempt.seconds,
                "ok" if is_delivered else "error",
                None,
                attributes,
            )
