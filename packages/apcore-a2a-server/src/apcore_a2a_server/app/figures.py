"""Figures (counters and gauges) of an agent, in memory that its worker processes share.

Each worker writes a row of its own. The row outlives the worker: the process that replaces the
worker continues its counters.
"""

import mmap
import time
from collections.abc import Iterable, Sequence

from .skill_figures import SkillFigures

RESULTS = ("delivered", "retried", "failed")
"""Results of notifications; a notification may fail without an attempt."""
STATUSES = range(100, 600)  # of HTTP

COUNTERS = (
    *(f"webhooks {result}" for result in RESULTS),
    *(f"requests {status}" for status in STATUSES),
)
SUMMED_GAUGES = (
    "active_tasks",
    "open_streams",
    "busy_threads",
    "stuck_threads",
    "memory_bodies_bytes",
    "memory_running_bytes",
    "memory_stored_bytes",
    "grpc_open_calls",
    "grpc_unread_calls",
)
COMMON_GAUGES = (
    "companions",
    "companions_not_ready",
    "lease_age_seconds",
    "webhooks_pending",
    "webhooks_pending_age_seconds",
    "uptime_seconds",
)
"""Gauges that are not added up, such as those of a shared store: the highest value is shown."""
STORE_PROBLEM = "store_problem"
"""The problem that a worker's last check of the store found, as a number; 0 for none."""
ALIVE_AT = "alive_at"
"""When the worker's event loop last ran, by `time.monotonic`; 0 while the worker does not serve."""
WORKER_STATE = (*SUMMED_GAUGES, *COMMON_GAUGES, STORE_PROBLEM, ALIVE_AT)
"""Figures that are reset when the worker ends."""
POSITIONS = {name: position for position, name in enumerate((*COUNTERS, *WORKER_STATE))}
"""Positions of the figures in the row of a worker, by name."""
FLAG_COUNT = 1
"""Number of flags before the rows; `is_draining` is the only flag."""
CELL_SIZE = 8  # bytes of a float


class Figures:
    """Numbers by name, one row for each worker.

    Create them before the workers are forked.

    Args:
        workers: The number of workers.
        extra_gauges: Names of further gauges, which are added up.

    Attributes:
        workers: The number of workers.
        worker: The index of this process among the workers.
        started_monotonic: When the agent started, by `time.monotonic`.
        started_at: When the agent started, in seconds since 1970.
        skills: The figures by skill.

    Example:
        ```python
        from apcore_a2a_server.app.figures import Figures

        figures = Figures(workers=2)
        figures.add("requests 200")
        figures.worker = 1
        figures.add("requests 200")
        print(figures.total("requests 200"))
        #> 2.0
        ```
    """

    def __init__(self, workers: int = 1, extra_gauges: Sequence[str] = ()) -> None:
        self.workers = workers
        self.worker = 0
        self.started_monotonic = time.monotonic()
        self.started_at = time.time()
        self.skills = SkillFigures(workers)
        self._state = (*WORKER_STATE, *extra_gauges)
        names = (*COUNTERS, *self._state)
        self._positions = (
            {name: position for position, name in enumerate(names)} if extra_gauges else POSITIONS
        )
        size = (FLAG_COUNT + workers * len(self._positions)) * CELL_SIZE
        self._cells = memoryview(mmap.mmap(-1, size)).cast("d")

    @property
    def is_draining(self) -> bool:
        """Whether all workers are shutting down."""
        return bool(self._cells[0])

    def set_draining(self) -> None:
        """Record that all workers are shutting down."""
        self._cells[0] = 1

    def add(self, name: str, number: float = 1) -> None:
        """Add to a counter of this worker."""
        self._cells[self._cell(name, self.worker)] += number

    def set(self, name: str, value: float) -> None:
        """Set a figure of this worker."""
        self._cells[self._cell(name, self.worker)] = value

    def clear(self, worker: int) -> None:
        """Forget the state of a worker that has ended; its counters stay."""
        for name in self._state:
            self._cells[self._cell(name, worker)] = 0
        self.skills.clear(worker)

    def by_worker(self, name: str) -> Sequence[float]:
        """Return a figure of each worker."""
        return [self._cells[self._cell(name, worker)] for worker in range(self.workers)]

    def count_alive(self) -> int:
        """Return the number of workers that serve."""
        return sum(bool(moment) for moment in self.by_worker(ALIVE_AT))

    def total(self, name: str) -> float:
        """Return the sum of a figure over all workers; for `COMMON_GAUGES`, the highest value."""
        values = self.by_worker(name)
        return max(values) if name in COMMON_GAUGES else sum(values)

    def totals(self, kind: str, labels: Iterable[object]) -> dict[str, float]:
        """Return the totals of the counters named "*kind* *label*", by label."""
        return {str(label): self.total(f"{kind} {label}") for label in labels}

    def _cell(self, name: str, worker: int) -> int:
        return FLAG_COUNT + worker * len(self._positions) + self._positions[name]
