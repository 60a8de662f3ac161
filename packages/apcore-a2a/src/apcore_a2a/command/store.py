"""`apcore-a2a store`: `migrate`, `check` and `prune` for the task store."""

import asyncio
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from apcore_a2a_server.app.options import Settings

from .options import OptionsCommand, flags, warn_about_secrets

if TYPE_CHECKING:  # slow to import, and not needed for --help
    from apcore_a2a_server.store.maintenance import Report

EPILOG = """
As with `serve`, options can also be set by environment variables (APCORE_A2A_STORE) or in the
config file.

Exit codes: 0 success, 1 `store check` found faults, 2 wrong arguments or unusable store, 130
interrupted.
"""
SUCCESS, FAULTS_FOUND = 0, 1


@click.group(no_args_is_help=False)
def store() -> None:
    """Migrate, check or prune the task store of an agent."""


@store.command(cls=OptionsCommand, params=flags("store"), epilog=EPILOG)
def migrate(store: str | None) -> int:
    """Create or upgrade the tables, as an agent does at startup."""
    from apcore_a2a_server.store import maintenance

    with progress("migrating"):
        before, after = asyncio.run(maintenance.migrate(_require_store(store)))
    if before == after:
        print_line(f"The tables are up to date (version {after})")
    elif before:
        print_line(f"The tables were upgraded from version {before} to version {after}")
    else:
        print_line(f"The tables were created (version {after})")
    return SUCCESS


@store.command(cls=OptionsCommand, params=flags("store"), epilog=EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(store: str | None, as_json: bool) -> int:
    """Check the schema and integrity of the store, read-only."""
    from apcore_a2a_server.store import maintenance

    with progress("checking"):
        report = asyncio.run(maintenance.check(_require_store(store)))
    print_line(json.dumps(asdict(report), indent=2) if as_json else _format_report(report))
    return FAULTS_FOUND if report.faults else SUCCESS


@store.command(cls=OptionsCommand, params=flags("store", "task_ttl", "max_tasks"), epilog=EPILOG)
@click.option(
    "--principal",
    metavar="ID",
    help="Cancel and delete all tasks of this principal instead; empty for anonymous callers.",
)
def prune(store: str | None, principal: str | None, **limits: Any) -> int:
    """Drop old tasks, as an agent does about every minute."""
    from apcore_a2a_server.store import Retention, maintenance

    if principal is not None:
        return _erase(_require_store(store), principal)
    settings = Settings(**{name: value for name, value in limits.items() if value is not None})
    retention = Retention(log_ttl=settings.task_ttl, max_logs=settings.max_tasks)
    with progress("pruning"):
        count = asyncio.run(maintenance.prune(_require_store(store), retention))
    limits_text = f"task_ttl {settings.task_ttl:g} s, max_tasks {settings.max_tasks}"
    print_line(f"{_format_count(count)} dropped ({limits_text})")
    return SUCCESS


def _erase(store: str, principal: str) -> int:
    """Cancel and delete all tasks of a principal."""
    from apcore_a2a_core import clean
    from apcore_a2a_server.engine.erasure import erase

    with progress("deleting"):
        count = asyncio.run(erase(store, principal))
    name = clean(principal) or "anonymous callers"
    print_line(f"{_format_count(count)} of {name} deleted")
    return SUCCESS


def _format_count(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _require_store(store: str | None) -> str:
    if not store:
        raise ValueError("No store is set: use --store URL or APCORE_A2A_STORE")
    warn_about_secrets()
    return store


def _format_report(report: "Report") -> str:
    """Format the report as text: its faults, or else its counts."""
    from apcore_a2a_core import clean

    lines = [f"tables         version {report.version}"]
    if report.faults:
        count = len(report.faults)
        faults = (f"  {clean(fault)}" for fault in report.faults)
        return "\n".join([*lines, "", f"{count} fault{'' if count == 1 else 's'}:", *faults])
    states = ", ".join(f"{count:,} {state}" for state, count in report.tasks.items())
    total = sum(report.tasks.values())
    lines.append(f"tasks          {total:,}{f': {states}' if states else ''}")
    lines.append(f"dead letters   {report.dead_letters:,}")
    return "\n".join([*lines, "No faults found"])


def print_line(text: str) -> None:
    """Print *text* in the encoding of standard output, unless its reader is gone."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:  # as with `| head`; without this, the flush at exit fails too
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def progress(step: str) -> Generator[None]:
    """Show *step* and the elapsed time, on a terminal only."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console

    from .terminal import show_elapsed

    with show_elapsed(Console(stderr=True, highlight=False)) as describe:
        describe(step)
        yield
