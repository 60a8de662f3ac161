"""The commands `store migrate`, `store check` and `store prune`."""

import asyncio
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict

from apcore_a2a_core import clean
from apcore_a2a_server.app.options import Settings
from apcore_a2a_server.store import Retention, maintenance

WELL, FAULTY = 0, 1
DEFAULTS = Settings()


def migrate_store(store: str = "") -> int:
    """Bring the schema of *store* up to date; return the exit code."""
    with progress("migrating"):
        before, after = asyncio.run(maintenance.migrate(_named(store)))
    if before == after:
        say(f"The tables are up to date (version {after})")
    elif before:
        say(f"The tables had version {before}, and have version {after} now")
    else:
        say(f"The tables have been made (version {after})")
    return WELL


def check_store(store: str = "", *, as_json: bool = False) -> int:
    """Check *store* and print the report, for people or as JSON; return the exit code."""
    with progress("checking"):
        report = asyncio.run(maintenance.check(_named(store)))
    say(json.dumps(asdict(report), indent=2) if as_json else _text(report))
    return FAULTY if report.faults else WELL


def prune_store(
    store: str = "", task_ttl: float = DEFAULTS.task_ttl, max_tasks: int = DEFAULTS.max_tasks
) -> int:
    """Delete old tasks of *store*; return the exit code.

    Args:
        store: The store's address.
        task_ttl: How long ended tasks are kept, in seconds.
        max_tasks: How many ended tasks are kept.

    Raises:
        OptionError: A limit is out of the bounds that `serve` has.
    """
    Settings(task_ttl=task_ttl, max_tasks=max_tasks)  # checks the bounds
    retention = Retention(log_ttl=task_ttl, max_logs=max_tasks)
    with progress("pruning"):
        count = asyncio.run(maintenance.prune(_named(store), retention))
    tasks = "1 task" if count == 1 else f"{count} tasks"
    say(f"{tasks} dropped (task_ttl {task_ttl:g} s, max_tasks {max_tasks})")
    return WELL


def _named(store: str) -> str:
    if not store:
        raise ValueError("Which store? Name it with --store URL or APCORE_A2A_STORE")
    return store


def _text(report: maintenance.Report) -> str:
    """Return the report for people, with its faults at the end."""
    lines = [f"tables         version {report.version}"]
    if report.faults:
        count = len(report.faults)
        faults = (f"  {clean(fault)}" for fault in report.faults)
        return "\n".join([*lines, "", f"{count} fault{'' if count == 1 else 's'}:", *faults])
    states = ", ".join(f"{count:,} {state}" for state, count in report.tasks.items())
    total = sum(report.tasks.values())
    lines.append(f"tasks          {total:,}{f': {states}' if states else ''}")
    lines.append(f"dead letters   {report.dead_letters:,}")
    return "\n".join([*lines, "All is well"])


def say(text: str) -> None:
    """Print *text* in whatever encoding standard output has, to a reader who may be gone."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def progress(step: str) -> Generator[None]:
    """Show *step* and how long it has taken, on a terminal only."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console  # slow to import, as is what shows the time

    from .terminal import elapsing

    with elapsing(Console(stderr=True, highlight=False)) as describe:
        describe(step)
        yield
