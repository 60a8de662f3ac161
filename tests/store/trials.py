"""What a scenario is given, and what it tells: the same for tests and for `tools/chaos`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
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
