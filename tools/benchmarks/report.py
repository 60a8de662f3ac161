"""Reports of the results as tables, Markdown and JSON."""

import json
import math
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from tools.benchmarks.figures import Figures, Key, Results
from tools.benchmarks.scenarios import BURSTS, BUSY, DIRECT, GET_FULL, STEADY, echoes
from tools.benchmarks.targets import Check, checks

_PACKAGES = [
    "apcore-a2a-server",
    "apcore",
    "a2a-sdk",
    "starlette",
    "uvicorn",
    "h11",
    "httptools",
    "uvloop",
    "pydantic",
    "protobuf",
]
_LEGEND = (
    "Each figure is the best of several interleaved rounds on loopback, but "
    "reads of a full store are measured once. "
    "CPU is the user and system time of the server process per response under load. "
    "`x bare` is that time as a multiple of the cheapest of the bare server's echoes on the same "
    "stack."
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table for a terminal or for Markdown. The first two columns are text."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Return the table in aligned columns."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        body = ("  ".join(_align(line, widths)).rstrip() for line in lines)
        return "\n".join([self.title, *body])

    def markdown(self) -> str:
        """Return a Markdown table under a heading."""
        marks = ["---" if i < 2 else "---:" for i in range(len(self.header))]
        lines = [f"| {' | '.join(line)} |" for line in (self.header, marks, *self.rows)]
        return "\n".join([f"### {self.title}", "", *lines])


def _align(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for i, (cell, width) in enumerate(zip(line, widths, strict=True)):
        yield cell.ljust(width) if i < 2 else cell.rjust(width)


def _ms(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{seconds * 1e3:.2f}"


def _servers(results: Results) -> list[str]:
    return list(dict.fromkeys(key.server for key in results.figures))


def steady_table(results: Results, stack: str) -> Table:
    """Return latency and rate of one connection, and latency, rate and CPU under load."""
    header = ["scenario", "server", "p50 ms", "p99 ms", "/s", "conns"]
    header += ["p50 ms", "p99 ms", "/s", "CPU us", "x bare"]
    scenarios = [(s.name, max(s.connections)) for s in STEADY] + [(GET_FULL, BUSY)]
    rows = [
        row
        for scenario, connections in scenarios
        for server in _servers(results)
        if (row := _steady_row(results, Key(stack, server, scenario, connections)))
    ]
    return Table(f"{stack}: one connection, then many", header, rows)


def _steady_row(results: Results, key: Key) -> list[str]:
    busy = results.figures.get(key)
    if busy is None:
        return []
    alone = results.figures.get(key._replace(connections=1))
    ratio = results.ratio(key, echoes(key.stack))
    return [
        key.scenario,
        key.server,
        *([_ms(alone.p50), _ms(alone.p99), f"{alone.rate:,.0f}"] if alone else [""] * 3),
        str(key.connections),
        *(_ms(busy.p50), _ms(busy.p99), f"{busy.rate:,.0f}"),
        f"{busy.cpu * 1e6:.0f}",
        f"{ratio:.2f}" if ratio else "",
    ]


def burst_table(results: Results) -> Table:
    """Return the table of bursts, first events, and apcore alone."""
    rows = [
        row
        for stack in results.stacks()
        for server in _servers(results)
        for row in _burst_rows(results, stack, server)
    ]
    return Table("Bursts, streams and apcore alone", ["what", "server", "p50 ms", "p99 ms"], rows)


def _burst_rows(results: Results, stack: str, server: str) -> Iterator[list[str]]:
    def row(what: str, p50: float, p99: float) -> list[str]:
        return [f"{what} ({stack})", server, _ms(p50), _ms(p99)]

    for key, figures in results.figures.items():
        if (key.stack, key.server) != (stack, server):
            continue
        if key.connections == 1 and not math.isnan(figures.first_p50):
            yield row("first SSE event", figures.first_p50, figures.first_p99)
        if key.scenario in {*(s.name for s in BURSTS), DIRECT}:
            yield row(key.scenario, figures.p50, figures.p99)
        if not math.isnan(figures.delivery_p50):
            label = f"event delivery, {key.scenario}"
            yield row(label, figures.delivery_p50, figures.delivery_p99)


def fact_table(results: Results) -> Table:
    """Return the table of single numbers: memory, leftover tasks, start-up."""
    rows = [
        [f"{fact.name} ({fact.stack})" if fact.stack else fact.name, fact.server, f"{value:,.6g}"]
        for fact, value in results.facts.items()
    ]
    return Table("Single figures (times in seconds)", ["what", "server", "value"], rows)


def check_table(checks: Sequence[Check]) -> Table:
    """Return the table of figures and their limits."""
    rows = [
        [
            check.what,
            check.stack,
            "" if check.value is None else f"{check.value:.2f}",
            f"{'>=' if check.at_least else '<='} {check.limit:g} {check.unit}".rstrip(),
            check.verdict,
        ]
        for check in checks
    ]
    return Table("Targets", ["target", "stack", "found", "limit", "verdict"], rows)


def tables(results: Results) -> list[Table]:
    """Return all tables of the report, in order."""
    steady = [steady_table(results, stack) for stack in results.stacks()]
    return [
        *steady,
        burst_table(results),
        fact_table(results),
        check_table(checks(results)),
    ]


def environment(command: str) -> dict[str, str]:
    """Return the date, the machine and the versions of a measurement."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": str(os.cpu_count()),
        "command": command,
        "versions": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _remarks(results: Results) -> list[str]:
    lines = [f"Not measured: {name}: {reason}" for name, reason in results.unavailable.items()]
    return lines + [f"Wrong: {failure}" for failure in results.failures]


def text(results: Results) -> str:
    """Return the whole report for a terminal."""
    return "\n\n".join([*(table.text() for table in tables(results)), *_remarks(results)])


def markdown(results: Results, command: str) -> str:
    """Return the whole report as a section of a Markdown page."""
    facts = [
        f"- {name}: {f'`{value}`' if name == 'command' else value}"
        for name, value in environment(command).items()
    ]
    parts = ["## Measurements", _LEGEND, "\n".join(facts)]
    parts += [table.markdown() for table in tables(results)]
    return "\n\n".join([*parts, *_remarks(results)]) + "\n"


def as_json(results: Results, command: str) -> str:
    """Return all results as JSON; times in seconds, null for figures that were not measured."""
    document = {
        "environment": environment(command),
        "figures": [key._asdict() | _numbers(figures) for key, figures in results.figures.items()],
        "facts": [fact._asdict() | {"value": value} for fact, value in results.facts.items()],
        "checks": [asdict(check) | {"verdict": check.verdict} for check in checks(results)],
        "failures": results.failures,
        "unavailable": results.unavailable,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def tables_as_json(tables: Sequence[Table], command: str) -> str:
    """Return tables as JSON."""
    document = {"environment": environment(command), "tables": [asdict(table) for table in tables]}
    return json.dumps(document, indent=2) + "\n"


def _numbers(figures: Figures) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in asdict(figures).items()}
