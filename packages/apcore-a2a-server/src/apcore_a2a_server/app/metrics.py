"""Figures for operators: `GET /metrics` (FR-OPS-002)."""

import time
from collections.abc import Callable
from typing import TypeAlias

from apcore_a2a_core.states import NAMES, TERMINAL, WORKING
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apcore_a2a_server.store import TaskRecord

Gauges: TypeAlias = dict[str, Callable[[], float]]
Encode: TypeAlias = Callable[[CollectorRegistry], bytes]

RESULTS = ("delivered", "retried", "failed")
"""What comes of a notification to a webhook; of one that is retried, more."""
BUCKETS = (0.005, 0.025, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300)
"""Seconds; the last is the time that a run has by default."""


class Metrics:
    """Counts tasks and requests, and shows the counts.

    Its labels are states of tasks and HTTP statuses: there are few of each, and no client
    can make more.

    Args:
        webhooks: Whether deliveries of notifications are counted.
    """

    def __init__(self, *, webhooks: bool = False) -> None:
        started = time.monotonic()
        self._registry = CollectorRegistry()
        self._tasks = Counter(
            "apcore_a2a_tasks", "Tasks that came into a state", ["state"], registry=self._registry
        )
        self._requests = Counter(
            "apcore_a2a_requests", "HTTP requests", ["status"], registry=self._registry
        )
        self._seconds = Histogram(
            "apcore_a2a_run_seconds", "Runs to their end", buckets=BUCKETS, registry=self._registry
        )
        self._webhooks: Counter | None = None
        self._answered = 0
        self._gauges: Gauges = {}
        self.add_gauges({"uptime_seconds": lambda: round(time.monotonic() - started, 3)})
        for state in TERMINAL:
            self._tasks.labels(NAMES[state])
        if webhooks:
            self._webhooks = Counter(
                "apcore_a2a_webhooks", "Notifications", ["result"], registry=self._registry
            )
            for result in RESULTS:
                self._webhooks.labels(result)

    def add_gauges(self, gauges: Gauges) -> None:
        """Show more figures that can be read at any time, by name without the prefix."""
        for name, read in gauges.items():
            text = name.replace("_", " ").capitalize()
            Gauge(f"apcore_a2a_{name}", text, registry=self._registry).set_function(read)
        self._gauges |= gauges

    def on_delivery(self, result: str, number: int) -> None:
        """Count attempts to deliver notifications: delivered, retried or failed."""
        if self._webhooks is not None:
            self._webhooks.labels(result).inc(number)

    def on_state(self, before: TaskRecord | None, after: TaskRecord) -> None:
        """Count a task that has come into another state, and how long it ran."""
        new = after.task.status
        self._tasks.labels(NAMES[new.state]).inc()
        if before is not None and before.task.status.state == WORKING and new.state in TERMINAL:
            began = before.task.status.timestamp.ToNanoseconds()
            self._seconds.observe((new.timestamp.ToNanoseconds() - began) / 1e9)

    def on_answer(self, status: int) -> None:
        """A request has been answered."""
        self._answered += 1
        self._requests.labels(str(status)).inc()

    async def show(self, request: Request) -> Response:
        """JSON; for a scraper that asks for it, the text that Prometheus reads."""
        accept = request.headers.get("accept", "")
        if "openmetrics-text" in accept or "text/plain" in accept:
            chosen: tuple[Encode, str] = choose_encoder(accept)
            encode, media_type = chosen
            return Response(encode(self._registry), headers={"content-type": media_type})
        found: dict[str, float] = {name: read() for name, read in self._gauges.items()}
        for state in TERMINAL:
            found[f"{NAMES[state]}_tasks"] = self._count("tasks", "state", NAMES[state])
        for result in RESULTS if self._webhooks is not None else ():
            found[f"webhooks_{result}"] = self._count("webhooks", "result", result)
        return JSONResponse({**found, "total_requests": self._answered})

    def _count(self, name: str, label: str, value: str) -> int:
        found = self._registry.get_sample_value(f"apcore_a2a_{name}_total", {label: value})
        return int(found or 0)


class ResponseCounter:
    """ASGI middleware that calls *count* with the status of every response.

    Args:
        app: The application behind.
        count: Is called with each status.
    """

    def __init__(self, app: ASGIApp, count: Callable[[int], None]) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and note the status of its answer."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(message["status"])
            await send(message)

        await self._app(scope, receive, noting if scope["type"] == "http" else send)
