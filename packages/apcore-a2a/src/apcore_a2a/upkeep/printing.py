"""What the commands for stores print."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from apcore_a2a_core import clean
from apcore_a2a_store.reports import Fault, Report

if TYPE_CHECKING:
    from rich.text import Text


def show(report: Report) -> None:
    """The report for people, with what is wrong at its end."""
    states = ", ".join(f"{count:,} {state}" for state, count in report.tasks.items())
    total = sum(report.tasks.values())
    print(f"tables         version {report.version}, {report.size:,} bytes")
    print(f"tasks          {total:,}{f': {states}' if states else ''}")
    print(f"events         {report.events:,}")
    if report.oldest is not None and report.newest is not None:
        print(f"state changes  {_moment(report.oldest)} to {_moment(report.newest)}")
    print(f"dead letters   {report.dead_letters:,}")
    for fault in report.faults:
        _fault(fault)
    count = sum(fault.count for fault in report.faults)
    print(f"\n{count:,} fault{'' if count == 1 else 's'}" if count else "All is well")


def _fault(fault: Fault) -> None:
    print(f"\n{fault.rule[0].upper()}{fault.rule[1:]}:")
    for task_id, detail in fault.examples:
        print("  " + ": ".join(clean(text) for text in (task_id, detail) if text))
    more = fault.count - len(fault.examples)
    if more:
        print(f"  … and {more:,} more")


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


@contextmanager
def progress(step: str) -> Generator[Callable[[str], None]]:
    """Gives a function that tells people what is done after *step*; programs are told nothing."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda step: None
        return
    from rich.console import Console  # slow to import

    line = _Line(step)
    with Console(stderr=True, highlight=False).status(line):
        yield line.tell


class _Line:
    """What is done, and for how long."""

    def __init__(self, step: str) -> None:
        self._start = monotonic()
        self._step = step

    def tell(self, step: str) -> None:
        self._step = step

    def __rich__(self) -> "Text":
        from rich.text import Text

        return Text(f"{self._step}  {monotonic() - self._start:.0f} s")
