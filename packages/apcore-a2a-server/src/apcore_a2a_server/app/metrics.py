"""Metrics for operators: `GET /metrics` (FR-OPS-002)."""

import time
from collections.abc import Callable
from typing import TypeAlias

from apcore_a2a_core.states import NAMES, TERMINAL, WORKING
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apcore_a2a_server.store import TaskRecord

Gauges: TypeAlias = dict[str, Callable[[], float]]

RESULTS = ("delivered", "retried", "failed")
"""Results of an attempt to deliver a notification; a retried one has further attempts."""
BUCKETS = (0.005, 0.025, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300)
"""Upper bounds of the histogram in seconds; the last is the default `execution_timeout`."""


class Metrics:
    """Counters of tasks, requests and notifications, and the page that shows them.

    Label values are task states, HTTP statuses and delivery results: clients cannot add others.

    Args:
        webhooks: Whether to count deliveries of notifications.
    """

    def __init__(self, *, webhooks: bool = False) -> None:
        started = time.monotonic()
        self._registry = CollectorRegistry()
        self._tasks = Counter(
            "apcore_a2a_tasks", "Tasks that entered a state", ["state"], registry=self._registry
        )
        self._requests = Counter(
            "apcore_a2a_requests", "HTTP requests", ["status"], registry=self._registry
        )
        self._seconds = Histogram(
            "apcore_a2a_run_seconds", "Duration of runs", buckets=BUCKETS, registry=self._registry
        )
        self._results = RESULTS if webhooks else ()
        self._webhooks = Counter(
            "apcore_a2a_webhooks",
            "Attempts to deliver notifications by result",
            ["result"],
            registry=self._registry if webhooks else None,
        )
        self._response_count = 0
        self._gauges: Gauges = {}
        self.add_gauges({"uptime_seconds": lambda: round(time.monotonic() - started, 3)})
        for state in TERMINAL:
            self._tasks.labels(NAMES[state])
        for result in self._results:
            self._webhooks.labels(result)

    def add_gauges(self, gauges: Gauges) -> None:
        """Add functions that read the current figures, by metric name without the prefix."""
        for name, read in gauges.items():
            text = name.replace("_", " ").capitalize()
            Gauge(f"apcore_a2a_{name}", text, registry=self._registry).set_function(read)
        self._gauges |= gauges

    def on_delivery(self, result: str, number: int) -> None:
        """Count attempts to deliver notifications: delivered, retried or failed."""
        self._webhooks.labels(result).inc(number)

    def on_state(self, before: TaskRecord | None, after: TaskRecord) -> None:
        """Count a task that entered a state, and observe the duration of its last run once it ends.

        An orphaned task that is started again enters the state working a second time.
        """
        status = after.task.status
        self._tasks.labels(NAMES[status.state]).inc()
        if before is not None and before.task.status.state == WORKING and status.state in TERMINAL:
            # negative if the task was started by another replica whose clock is ahead
            self._seconds.observe(max(after.status_at - before.status_at, 0))

    def on_response(self, status: int) -> None:
        """Count the response to a request."""
        self._response_count += 1
        self._requests.labels(str(status)).inc()

    async def show(self, request: Request) -> Response:
        """Respond with JSON, or with the Prometheus text format if the request accepts it."""
        accept = request.headers.get("accept", "")
        if "openmetrics-text" in accept or "text/plain" in accept:
            encode, media_type = choose_encoder(accept)
            return Response(encode(self._registry), headers={"content-type": media_type})
        figures: dict[str, float] = {name: read() for name, read in self._gauges.items()}
        for state in TERMINAL:
            figures[f"{NAMES[state]}_tasks"] = self._count("tasks", "state", NAMES[state])
        for result in self._results:
            figures[f"webhooks_{result}"] = self._count("webhooks", "result", result)
        return JSONResponse({**figures, "total_requests": self._response_count})

    def _count(self, name: str, label: str, value: str) -> int:
        sample = self._registry.get_sample_value(f"apcore_a2a_{name}_total", {label: value})
        return int(sample or 0)
