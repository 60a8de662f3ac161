"""The environment and the measurements of a scenario, shared by the tests and `tools/chaos`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import TypeAlias

from .postgresql import Database

SLACK = 6.0
"""Seconds by which slow machines may exceed a limit."""


@dataclass
class Times:
    """The durations of a repeated step, in seconds, and their limit."""

    limit: float | None = None
    seconds: list[float] = field(default_factory=list[float])


@dataclass
class Trial:
    """One run of a scenario.

    Attributes:
        home: an empty folder.
        server: a PostgreSQL server without tables; it runs, unless the scenario needs none.
        random: the source of randomness.
        say: called with lines about the progress.
        times: the measured durations by their labels.
    """

    home: Path
    server: Database
    random: Random = field(default_factory=Random)
    say: Callable[[str], None] = print
    times: dict[str, Times] = field(default_factory=dict[str, Times])

    def record_duration(self, label: str, seconds: float, limit: float | None = None) -> None:
        """Record the duration of a step in seconds.

        Raises:
            AssertionError: The duration exceeds *limit* by `SLACK` or more.
        """
        times = self.times.setdefault(label, Times())
        times.limit = limit
        times.seconds.append(seconds)
        self.say(f"{label}: {seconds:.2f} s" + ("" if limit is None else f" of {limit:.2f} s"))
        assert limit is None or seconds < limit + SLACK, f"{label} took {seconds:.2f} s"

    def record_durations(self, label: str, seconds: Sequence[float], limit: float) -> bool:
        """Record many durations; return whether their 95th percentile is within *limit*."""
        self.times[label] = Times(seconds=[*seconds])
        p50, p95 = (quantiles(seconds, n=100)[share - 1] for share in (50, 95))
        figures = f"p50 {p50 * 1000:.1f}, p95 {p95 * 1000:.1f}, max {max(seconds) * 1000:.1f}"
        self.say(f"{label}, {len(seconds)} times: {figures} of {limit * 1000:.0f} ms")
        return p95 <= limit


Number: TypeAlias = int | float


@dataclass(frozen=True)
class Scenario:
    """A scenario at full size.

    Attributes:
        run: runs the scenario and checks its outcome; takes a trial, and *numbers* by name.
            The first sentence of its docstring is shown on the command line.
        numbers: the arguments at full size; users can choose the one named "rounds".
    """

    run: Callable[..., None]
    numbers: Mapping[str, Number]

    @property
    def about(self) -> str:
        """The first sentence of the scenario's docstring."""
        return (self.run.__doc__ or "").partition(".")[0]
