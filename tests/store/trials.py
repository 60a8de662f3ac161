"""What a scenario is given, and what it tells: the same for tests and for `tools/chaos`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import TypeAlias

from .postgresql import Database

SLACK = 6.0
"""Seconds that slow machines may take beyond a limit."""


@dataclass
class Times:
    """Seconds that something took, each time, and what it should take at most."""

    limit: float | None = None
    seconds: list[float] = field(default_factory=list[float])


@dataclass
class Trial:
    """One trial of a scenario.

    Attributes:
        home: an empty folder.
        server: a PostgreSQL that runs, with nothing in it.
        random: what is left to chance.
        say: is told how far it is.
        times: what was measured, by what it is.
    """

    home: Path
    server: Database
    random: Random = field(default_factory=Random)
    say: Callable[[str], None] = print
    times: dict[str, Times] = field(default_factory=dict[str, Times])

    def took(self, what: str, seconds: float, limit: float | None = None) -> None:
        """Note that something took so many seconds.

        Raises:
            AssertionError: That is more than *limit*, and more than a slow machine explains.
        """
        times = self.times.setdefault(what, Times())
        times.limit = limit
        times.seconds.append(seconds)
        self.say(f"{what}: {seconds:.2f} s" + ("" if limit is None else f" of {limit:.2f} s"))
        assert limit is None or seconds < limit + SLACK, f"{what} took {seconds:.2f} s"

    def spread(self, what: str, seconds: Sequence[float], limit: float) -> bool:
        """Whether something that happens often took no more than *limit* in 95 of 100 times."""
        self.times[what] = Times(seconds=[*seconds])
        middle, most = (quantiles(seconds, n=100)[share - 1] for share in (50, 95))
        figures = f"p50 {middle * 1000:.1f}, p95 {most * 1000:.1f}, most {max(seconds) * 1000:.1f}"
        self.say(f"{what}, {len(seconds)} times: {figures} of {limit * 1000:.0f} ms")
        return most <= limit


Number: TypeAlias = int | float


@dataclass(frozen=True)
class Scenario:
    """Something that goes wrong, at full size.

    Attributes:
        run: makes it go wrong, and checks what must hold all the same: it takes a trial, and its
            numbers by their names. The first sentence of its documentation is shown to people.
        numbers: these, at full size; those that are called "rounds" may be chosen.
    """

    run: Callable[..., None]
    numbers: Mapping[str, Number]

    @property
    def about(self) -> str:
        """What goes wrong."""
        return (self.run.__doc__ or "").partition(".")[0]
