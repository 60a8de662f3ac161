"""Metrics for operators: `GET /metrics` (FR-OPS-002)."""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, TypeAlias

from apcore_a2a_core.states import NAMES, TERMINAL
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

from .figures import RESULTS, STATUSES, Figures
from .skill_figures import PROMETHEUS_BOUNDS, SkillTotals

Gauges: TypeAlias = dict[str, Callable[[], float]]

PREFIX = "apcore_a2a_"


class Metrics(Collector):
    """Counters of tasks, requests and notifications, and the page that shows them.

    Label values are skills, task states, HTTP statuses and delivery results: clients cannot add
    others.

    Args:
        figures: The figures of all workers.
        shows_webhooks: Whether to show the deliveries of notifications.
    """

    def __init__(self, figures: Figures, *, shows_webhooks: bool = False) -> None:
        self._figures = figures
        self._results = RESULTS if shows_webhooks else ()
        self._gauges: Gauges = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add_gauges(self, gauges: Gauges) -> None:
        """Add functions that read the current figures, by metric name without the prefix."""
        self._gauges |= gauges

    def publish(self) -> None:
        """Share the current values of the gauges with the other workers."""
        for name, read in self._gauges.items():
            self._figures.set(name, read())

    def on_delivery(self, result: str, number: int) -> None:
        """Count notifications that were delivered, retried or failed."""
        self._figures.add(f"webhooks {result}", number)

    def on_response(self, status: int) -> None:
        """Count the response to a request."""
        self._figures.add(f"requests {status}")

    async def show(self, request: Request) -> Response:
        """Respond with JSON, or with the Prometheus text format if `Accept` names it."""
        self.publish()
        accept = request.headers.get("accept", "")
        if "openmetrics-text" in accept or "text/plain" in accept:
            encode, media_type = choose_encoder(accept)
            return Response(encode(self._registry), headers={"content-type": media_type})
        webhooks = self._figures.totals("webhooks", self._results)
        skills = self._figures.skills.totals().values()
        ended = {state: sum(totals.states[state] for totals in skills) for state in TERMINAL}
        return JSONResponse(
            {
                **{name: _number(self._figures.total(name)) for name in self._gauges},
                **{f"{NAMES[state]}_tasks": _number(number) for state, number in ended.items()},
                **{f"webhooks_{result}": _number(number) for result, number in webhooks.items()},
                "total_requests": _number(sum(self._requests().values())),
            }
        )

    def collect(self) -> Iterator[Metric]:
        """Yield the figures for Prometheus."""
        skills = self._figures.skills.totals()
        yield self._tasks(skills)
        yield self._counter("requests", "HTTP requests", "status", self._requests())
        yield self._durations(skills)
        if self._results:
            results = self._figures.totals("webhooks", self._results)
            description = "Notifications that were delivered, retried or failed"
            yield self._counter("webhooks", description, "result", results)
        for name in self._gauges:
            text = name.replace("_", " ").capitalize()
            yield GaugeMetricFamily(PREFIX + name, text, self._figures.total(name))

    def _tasks(self, skills: Mapping[str, SkillTotals]) -> Metric:
        """Return how many tasks entered each state, by skill; zeros only for final states."""
        description, labels = "Tasks that entered a state", ["skill", "state"]
        family = CounterMetricFamily(f"{PREFIX}tasks", description, labels=labels)
        for skill, totals in skills.items():
            for state, number in totals.states.items():
                if number or state in TERMINAL:
                    created = self._figures.started_at
                    family.add_metric([skill, NAMES[state]], number, created=created)
        return family

    def _requests(self) -> dict[str, float]:
        totals = self._figures.totals("requests", STATUSES)
        return {status: number for status, number in totals.items() if number}

    def _counter(self, name: str, description: str, label: str, values: dict[str, float]) -> Metric:
        family = CounterMetricFamily(PREFIX + name, description, labels=[label])
        for value, number in values.items():
            family.add_metric([value], number, created=self._figures.started_at)
        return family

    def _durations(self, skills: Mapping[str, SkillTotals]) -> Metric:
        description, labels = "Duration of runs", ["skill"]
        family = HistogramMetricFamily(f"{PREFIX}run_seconds", description, labels=labels)
        bounds = [*(str(float(bound)) for bound in PROMETHEUS_BOUNDS), "+Inf"]
        for skill, totals in skills.items():
            buckets: Any = [*zip(bounds, accumulate(totals.runs), strict=True)]
            family.add_metric([skill], buckets, totals.run_seconds)
        return family


def _number(value: float) -> float:
    """Return a whole number as an integer, for JSON."""
    return int(value) if value == int(value) else value
