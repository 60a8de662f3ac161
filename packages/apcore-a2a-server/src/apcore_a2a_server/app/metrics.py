"""Metrics for operators: `GET /metrics` (FR-OPS-002)."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, TypeAlias

from apcore_a2a_core.states import NAMES, TERMINAL, WORKING
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from apcore_a2a_server.store import TaskRecord

from .figures import BUCKETS, LONGER, RESULTS, STATUSES, Figures

Gauges: TypeAlias = dict[str, Callable[[], float]]

PREFIX = "apcore_a2a_"


class Metrics(Collector):
    """Counters of tasks, requests and notifications, and the page that shows them.

    Label values are task states, HTTP statuses and delivery results: clients cannot add others.

    Args:
        figures: The figures of all workers.
        webhooks: Whether to count deliveries of notifications.
    """

    def __init__(self, figures: Figures, *, webhooks: bool = False) -> None:
        self._figures = figures
        self._results = RESULTS if webhooks else ()
        self._gauges: Gauges = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add_gauges(self, gauges: Gauges) -> None:
        """Add functions that read the current figures, by metric name without the prefix."""
        self._gauges |= gauges

    def publish(self) -> None:
        """Write the current values of the gauges, for requests that reach other workers."""
        for name, read in self._gauges.items():
            self._figures.set(name, read())

    def on_delivery(self, result: str, number: int) -> None:
        """Count attempts to deliver notifications: delivered, retried or failed."""
        self._figures.add(f"webhooks {result}", number)

    def on_state(self, before: TaskRecord | None, after: TaskRecord) -> None:
        """Count a task that entered a state, and observe the duration of its last run once it ends.

        An orphaned task that is started again enters the state working a second time.
        """
        status = after.task.status
        self._figures.add(f"tasks {NAMES[status.state]}")
        if before is not None and before.task.status.state == WORKING and status.state in TERMINAL:
            # negative if the task was started by another replica whose clock is ahead
            seconds = max(after.status_at - before.status_at, 0)
            self._figures.add(f"runs {bisect_left(BUCKETS, seconds)}")
            self._figures.add("runs seconds", seconds)

    def on_response(self, status: int) -> None:
        """Count the response to a request."""
        self._figures.add(f"requests {status}")

    async def show(self, request: Request) -> Response:
        """Respond with JSON, or with the Prometheus text format if the request accepts it."""
        self.publish()
        accept = request.headers.get("accept", "")
        if "openmetrics-text" in accept or "text/plain" in accept:
            encode, media_type = choose_encoder(accept)
            return Response(encode(self._registry), headers={"content-type": media_type})
        tasks, webhooks = self._tasks(), self._figures.totals("webhooks", self._results)
        return JSONResponse(
            {
                **{name: _number(self._figures.total(name)) for name in self._gauges},
                **{f"{NAMES[state]}_tasks": _number(tasks[NAMES[state]]) for state in TERMINAL},
                **{f"webhooks_{result}": _number(number) for result, number in webhooks.items()},
                "total_requests": _number(sum(self._requests().values())),
            }
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the figures for Prometheus."""
        yield self._counter("tasks", "Tasks that entered a state", "state", self._tasks())
        yield self._counter("requests", "HTTP requests", "status", self._requests())
        yield self._durations()
        if self._results:
            results = self._figures.totals("webhooks", self._results)
            help = "Attempts to deliver notifications by result"
            yield self._counter("webhooks", help, "result", results)
        for name in self._gauges:
            text = name.replace("_", " ").capitalize()
            yield GaugeMetricFamily(PREFIX + name, text, self._figures.total(name))

    def _tasks(self) -> dict[str, float]:
        """Return the number of tasks by state: of final states, and of others if there are any."""
        final = {NAMES[state] for state in TERMINAL}
        totals = self._figures.totals("tasks", NAMES.values())
        return {name: number for name, number in totals.items() if number or name in final}

    def _requests(self) -> dict[str, float]:
        totals = self._figures.totals("requests", STATUSES)
        return {status: number for status, number in totals.items() if number}

    def _counter(self, name: str, help: str, label: str, values: dict[str, float]) -> Metric:
        family = CounterMetricFamily(PREFIX + name, help, labels=[label])
        for value, number in values.items():
            family.add_metric([value], number, created=self._figures.created)
        return family

    def _durations(self) -> Metric:
        counts = self._figures.totals("runs", range(LONGER + 1)).values()
        bounds = [*(str(float(bound)) for bound in BUCKETS), "+Inf"]
        buckets: Any = [*zip(bounds, accumulate(counts), strict=True)]
        seconds = self._figures.total("runs seconds")
        return HistogramMetricFamily(f"{PREFIX}run_seconds", "Duration of runs", buckets, seconds)


def _number(value: float) -> float:
    """Return a whole number as an integer, for JSON."""
    return int(value) if value == int(value) else value
