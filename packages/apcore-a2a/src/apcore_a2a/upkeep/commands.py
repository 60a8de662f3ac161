"""What `store migrate`, `store check` and `store prune` do."""

import argparse
import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from apcore_a2a_server.store import Retention
from apcore_a2a_server.store.upkeep import check, migrate, prune

from .printing import progress, say, told

OPTIONS = ("store", "task_ttl", "max_tasks")
"""What is asked for as `serve` asks for it."""
WELL, FAULTY = 0, 1
YEAR = 365 * 24 * 3600
"""In seconds."""


def do(arguments: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """Do the command that *arguments* are for, with these options; the exit code.

    Raises:
        ValueError: An option is missing, or makes no sense.
        OSError: The store can't be used.
    """
    if not options.get("store"):
        raise ValueError("Which store? Name it with --store URL or APCORE_A2A_STORE")
    code, text = COMMANDS[arguments.action](arguments, options)
    say(text)
    return code


def _migrate(arguments: argparse.Namespace, options: Mapping[str, Any]) -> tuple[int, str]:
    with progress("migrating"):
        before, after = asyncio.run(migrate(options["store"]))
    if before == after:
        return WELL, f"The tables are up to date (version {after})"
    if before:
        return WELL, f"The tables had version {before}, and have version {after} now"
    return WELL, f"The tables have been made (version {after})"


def _check(arguments: argparse.Namespace, options: Mapping[str, Any]) -> tuple[int, str]:
    with progress("looking") as tell:
        report = asyncio.run(check(options["store"], tell))
    text = json.dumps(asdict(report), indent=2) if arguments.json else told(report)
    return FAULTY if report.faults else WELL, text


def _prune(arguments: argparse.Namespace, options: Mapping[str, Any]) -> tuple[int, str]:
    retention = _retention(**{name: options[name] for name in OPTIONS[1:] if name in options})
    with progress("dropping"):
        count = asyncio.run(prune(options["store"], retention))
    kept = f"task_ttl {retention.log_ttl:g} s, max_tasks {retention.max_logs}"
    return WELL, f"{count} task{'' if count == 1 else 's'} dropped ({kept})"


def _retention(task_ttl: float = 3600, max_tasks: int = 10_000) -> Retention:
    """How much is kept, within the bounds that `serve` has.

    Raises:
        ValueError: It is out of them.
    """
    if not 0 < task_ttl <= YEAR:
        raise ValueError("task_ttl must be greater than 0, and a year at most")
    if max_tasks < 1:
        raise ValueError("max_tasks must be a whole number, 1 or more")
    return Retention(log_ttl=task_ttl, max_logs=max_tasks)


COMMANDS = {"migrate": _migrate, "check": _check, "prune": _prune}
