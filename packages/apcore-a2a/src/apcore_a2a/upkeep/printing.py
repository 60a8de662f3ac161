"""What the commands for stores print."""

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from apcore_a2a_core import clean
from apcore_a2a_server.store.reports import Fault, Report

if TYPE_CHECKING:
    from rich.text import Text


def told(report: Report) -> str:
    """The report for people, with what is wrong at its end."""
    lines = [f"tables         version {report.version}, {report.size:,} bytes"]
    if report.tasks is not None:
        states = ", ".join(f"{count:,} {state}" for state, count in report.tasks.items())
        total = sum(report.tasks.values())
        lines.append(f"tasks          {total:,}{f': {states}' if states else ''}")
        lines.append(f"events         {report.events:,}")
        lines.append(f"dead letters   {report.dead_letters:,}")
    if report.oldest is not None and report.newest is not None:
        lines.append(f"state changes  {_moment(report.oldest)} to {_moment(report.newest)} UTC")
    for fault in report.faults:
        lines += _fault(fault)
    count = sum(fault.count for fault in report.faults)
    lines += ["", f"{count:,} fault{'' if count == 1 else 's'}"] if count else ["All is well"]
    return "\n".join(lines)


def _fault(fault: Fault) -> Iterator[str]:
    yield f"\n{fault.rule[0].upper()}{fault.rule[1:]}:"
    for task_id, detail in fault.examples:
        yield "  " + ": ".join(clean(text) for text in (task_id, detail) if text)
    more = fault.count - len(fault.examples)
    if more:
        yield f"  … and {more:,} more"


def say(text: str) -> None:
    """Print *text*, whatever standard output can write, and whoever reads it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:  # whoever read this has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


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
