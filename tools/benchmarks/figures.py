"""The figures of a measurement, and the results of a run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile, or NaN without values.

    Example:
        >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
        2.0
    """
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one load on one server. Times are in seconds; NaN means not measured."""

    answers: int
    rate: float
    """Answers per second."""
    cpu: float
    """CPU of the server process (user and system) per answer."""
    p50: float
    """Median time from a request to the end of its answer; `p99` is the 99th percentile."""
    p99: float
    first_p50: float = math.nan
    """Median time from a request to the first event with the scenario's `timed_bytes`."""
    first_p99: float = math.nan
    delivery_p50: float = math.nan
    """Median time from the module's yield to the event's arrival."""
    delivery_p99: float = math.nan

    def best(self, other: "Figures") -> "Figures":
        """Combine two rounds: take the better value of each figure, and add the answers."""
        return Figures(
            answers=self.answers + other.answers,
            rate=max(self.rate, other.rate),
            cpu=_least(self.cpu, other.cpu),
            p50=_least(self.p50, other.p50),
            p99=_least(self.p99, other.p99),
            first_p50=_least(self.first_p50, other.first_p50),
            first_p99=_least(self.first_p99, other.first_p99),
            delivery_p50=_least(self.delivery_p50, other.delivery_p50),
            delivery_p99=_least(self.delivery_p99, other.delivery_p99),
        )


def _least(*times: float) -> float:
    """Return the least of the times that were measured, or NaN."""
    return min((time for time in times if not math.isnan(time)), default=math.nan)


class Key(NamedTuple):
    """The key of a measurement."""

    stack: str
    server: str
    scenario: str
    connections: int


class FactKey(NamedTuple):
    """The key of a single number; *stack* and *server* are empty if the number has none."""

    stack: str
    server: str
    name: str


@dataclass(slots=True)
class Results:
    """All results of a run."""

    figures: dict[Key, Figures] = field(default_factory=dict)
    facts: dict[FactKey, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """A line for each load with wrong answers or a failed server."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Names of servers and figures that could not be measured, and the reasons."""

    def add(self, key: Key, figures: Figures) -> None:
        """Add figures; combine them with earlier ones of the same key."""
        earlier = self.figures.get(key)
        self.figures[key] = figures if earlier is None else earlier.best(figures)

    def ratio(self, key: Key, baselines: Iterable[Key]) -> float | None:
        """Return CPU per answer in multiples of the cheapest baseline's; None if not measured."""
        figures = self.figures.get(key)
        costs = [self.figures[baseline].cpu for baseline in baselines if baseline in self.figures]
        return figures.cpu / min(costs) if figures and costs and min(costs) else None

    def stacks(self) -> list[str]:
        """Return the stacks measured, in order."""
        return list(dict.fromkeys(key.stack for key in self.figures))
