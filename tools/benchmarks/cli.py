"""The command line of the benchmark."""

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from tools.benchmarks import (
    bridges,
    clients,
    inprocess,
    instructions,
    peers,
    remote,
    report,
    startup,
    stores,
    streams,
    targets,
    webhooks,
    workers,
)
from tools.benchmarks.apps import LOGGED
from tools.benchmarks.figures import FactKey, Key, Results
from tools.benchmarks.measured_stores import MEMORY, NAMES, places
from tools.benchmarks.report import Table
from tools.benchmarks.rounds import Bench, Plan, profile
from tools.benchmarks.scenarios import DIRECT, GET
from tools.benchmarks.servers import CHILD, STACKS, ServerFailed

IMPORTS = {"apcore_a2a_server.app.app": "apcore", "apcore_a2a_client": "httpx"}
"""Modules whose imports are measured, each with the library to compare the import with."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench",
        description="Measure the server on loopback, and compare it with a bare echo server and "
        "with a2a-sdk alone.",
        epilog="A full run takes about four minutes, --quick less than one. "
        "Exits with 1 if a response was wrong or a server could not be measured.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="run fewer and shorter rounds")
    add("--json", type=Path, metavar="FILE", help="write all results as JSON")
    add("--markdown", type=Path, metavar="FILE", help="write the report as a Markdown section")
    add("--loop", nargs="+", choices=list(STACKS), default=list(STACKS), help="event loops to use")
    servers = ["sdk", "ours"]
    add(
        "--servers",
        nargs="+",
        choices=servers,
        default=servers,
        help="servers to compare with the echo server",
    )
    add("--old-python", metavar="PATH", help="Python with apcore-a2a 0.8, to compare with")
    add(
        "--strict",
        action="store_true",
        help="also exit with 1 if a target is missed; not with options that say 'only'",
    )
    add("--profile", action="store_true", help="only profile the server")
    add("--clients", action="store_true", help="only compare the client with a2a-sdk's")
    add("--webhooks", action="store_true", help="only measure the overhead of webhooks")
    add("--workers", action="store_true", help="only compare two workers with a single process")
    add(
        "--streams", action="store_true", help="only measure 1,000 open streams, and events to each"
    )
    instructions_help = (
        "only count instructions per request with valgrind, and compare them with the record"
    )
    add("--instructions", action="store_true", help=instructions_help)
    peers_help = (
        "only compare with other A2A servers (installed into .cache), and measure start-up and "
        "memory of this project"
    )
    add("--peers", action="store_true", help=peers_help)
    bridges_help = "only compare the bridges with a2a-adapter (installed into .cache)"
    add("--bridges", action="store_true", help=bridges_help)
    add("--remote", action="store_true", help="only measure calls of remote skills by a gateway")
    add("--record", action="store_true", help="with --instructions: record the counts")
    store_help = "only measure these stores; with --profile, profile the server with each"
    add(
        "--store",
        nargs="*",
        choices=NAMES,
        metavar="NAME",
        help=f"{store_help} ({', '.join(NAMES)})",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    command = shlex.join(["./tools/bench", *arguments])
    if options.profile:
        return _profile(options)
    if options.instructions:
        return _count_instructions(should_record=options.record)
    if options.clients:
        return _print_tables(options, command, lambda: clients.measure(quick=options.quick))
    if options.peers:
        results = Results()
        exit_code = _print_tables(
            options, command, lambda: _compare_peers(results, quick=options.quick)
        )
        return 1 if results.failures or results.unavailable else exit_code
    if options.bridges:
        quick = options.quick
        return _print_tables(options, command, lambda: bridges.measure(_progress(), quick=quick))
    if options.remote:
        quick = options.quick
        return _print_tables(options, command, lambda: remote.measure(_progress(), quick=quick))
    if options.webhooks:
        return _print_tables(options, command, lambda: [webhooks.measure(quick=options.quick)])
    if options.workers:
        quick = options.quick
        return _print_tables(options, command, lambda: [workers.measure(_progress(), quick=quick)])
    if options.streams:
        quick = options.quick
        return _print_tables(options, command, lambda: [streams.measure(_progress(), quick=quick)])
    if options.store is not None:
        return _print_tables(
            options, command, lambda: stores.measure(_store_plan(options), _progress())
        )
    results = Results()
    _measure(_plan(options), results, quick=options.quick)
    print(report.text(results))
    _write(options.markdown, lambda: report.markdown(results, command))
    _write(options.json, lambda: report.as_json(results, command))
    missed = any(check.missed for check in targets.checks(results))
    has_failed = results.failures or results.unavailable or (options.strict and missed)
    return 1 if has_failed else 0


def _plan(options: argparse.Namespace) -> Plan:
    servers = ["bare", *options.servers] + (["old"] if options.old_python else [])
    if "ours" in options.servers:
        servers.append(LOGGED)
    return Plan(
        stacks=[STACKS[name] for name in dict.fromkeys(options.loop)],
        servers=servers,
        rounds=2 if options.quick else 3,
        bursts=1 if options.quick else 2,
        seconds=0.12 if options.quick else 0.5,
        stored=2_000 if options.quick else 10_000,
        only_scenarios={LOGGED: [GET]},
        programs={"old": (options.old_python, "-m", CHILD)} if options.old_python else {},
    )


def _store_plan(options: argparse.Namespace) -> stores.Plan:
    return stores.Plan(
        stores=list(dict.fromkeys(options.store)) or NAMES,
        stack=STACKS[options.loop[-1]],
        rounds=3 if options.quick else 9,
        seconds=0.3 if options.quick else 1.0,
    )


def _compare_peers(results: Results, *, quick: bool) -> list[Table]:
    """Measure this server and others, and this project's start-up and memory; return the tables."""
    _measure(peers.plan(results, quick=quick), results, quick=quick)
    checks = report.check_table(peers.checks(results))
    return [peers.table(results), report.fact_table(results), checks]


def _progress() -> Callable[[str], None]:
    """Return a function that prints the progress of the run."""
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started:5.1f} s] {line}", file=sys.stderr, flush=True)

    return say


def _measure(plan: Plan, results: Results, *, quick: bool) -> None:
    say = _progress()
    with Bench(plan, results, say) as bench:
        bench.run_rounds()
        if "ours" in plan.servers:
            for stack in plan.stacks:
                bench.run_full_store("ours", stack)
            _measure_processes(plan, results, say, quick=quick)
        if "sdk" in plan.servers and not quick:
            bench.run_full_store("sdk", plan.stacks[-1])
    say("done")


def _measure_processes(
    plan: Plan, results: Results, say: Callable[[str], None], *, quick: bool
) -> None:
    """Measure apcore alone, and this project without load, each in a new process."""
    say("apcore alone, building a card, starting the command")
    calls, runs = (300, 1) if quick else (1500, 3)
    for stack in plan.stacks:
        with _FailureRecorder(results, say, DIRECT):
            figures = inprocess.measure_direct(stack.loop, calls)
            results.add(Key(stack.name, "apcore", DIRECT, 1), figures)
    measurements: dict[str, Callable[[], float]] = {
        targets.STREAM_BYTES: lambda: inprocess.measure_streams(100 if quick else 1000),
        targets.CREATE: inprocess.measure_create,
        targets.CARD_BUILD: lambda: inprocess.measure_card(100),
        targets.START: lambda: startup.measure_start(runs),
        targets.HELP: lambda: startup.measure_help(runs),
    }
    for name, measure in measurements.items():
        with _FailureRecorder(results, say, name):
            results.facts[FactKey("", "ours", name)] = measure()
    for module, base in IMPORTS.items():
        name = f"import {module}"
        with _FailureRecorder(results, say, name):
            seconds, ratio = clients.measure_import(module, runs, base)
            results.facts[FactKey("", "ours", f"{name}, CPU")] = seconds
            results.facts[FactKey("", "ours", f"{name}, in multiples of {base}")] = ratio


class _FailureRecorder:
    """A context manager that records a failed measurement and continues."""

    def __init__(self, results: Results, say: Callable[[str], None], name: str) -> None:
        self._results, self._say, self._name = results, say, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ServerFailed):
            return False
        self._results.unavailable[self._name] = str(error)
        self._say(f"  {self._name} cannot be measured: {error}")
        return True


def _profile(options: argparse.Namespace) -> int:
    seconds = 2.0 if options.quick else 5.0
    with places(options.store or [MEMORY], _progress()) as locations:
        for name, place in product(dict.fromkeys(options.loop), locations.values()):
            try:
                print(profile(STACKS[name], seconds, place.address))
            except ServerFailed as failure:
                print(f"The server cannot be profiled: {failure}", file=sys.stderr)
                return 1
    return 0


def _count_instructions(*, should_record: bool) -> int:
    try:
        rows = instructions.measure(_progress())
    except ServerFailed as failure:
        print(f"Measurement failed: {failure}", file=sys.stderr)
        return 1
    print(instructions.text(rows))
    if should_record:
        instructions.record(rows)
        return 0
    if any(row.recorded is None for row in rows):
        print("Not all scenarios are recorded for this environment. Add --record to record them.")
    return 1 if any(row.is_over_tolerance for row in rows) else 0


def _print_tables(
    options: argparse.Namespace, command: str, measure: Callable[[], list[Table]]
) -> int:
    try:
        tables = measure()
    except ServerFailed as failure:
        print(f"Measurement failed: {failure}", file=sys.stderr)
        return 1
    print("\n\n".join(table.text() for table in tables))
    _write(options.markdown, lambda: "\n\n".join(table.markdown() for table in tables) + "\n")
    _write(options.json, lambda: report.tables_as_json(tables, command))
    return 0


def _write(path: Path | None, content: Callable[[], str]) -> None:
    if path is not None:
        path.write_text(content(), encoding="utf-8")
