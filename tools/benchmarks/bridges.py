"""Comparison of the bridges with a2a-adapter, both in one environment that is cached in `.cache`.

Each pair of agents runs the same function, generator or graph.
"""

import math
from collections.abc import Callable
from subprocess import TimeoutExpired

import pytest

from tests.e2e.environments import ROOT, python_environment
from tools.benchmarks import messages, report
from tools.benchmarks.bridge_apps import APPS, SLOWLY
from tools.benchmarks.figures import Figures, Key, Results
from tools.benchmarks.peers import ADAPTER, REQUIREMENTS, STACK, serving_requirements
from tools.benchmarks.report import Table
from tools.benchmarks.rounds import Bench, Plan
from tools.benchmarks.scenarios import BUSY, Scenario
from tools.benchmarks.servers import CHILD, ServerFailed
from tools.benchmarks.targets import Check

SEND = "message/send, a text"
STREAM = "message/stream, ten words 50 ms apart"
STREAMS = 8
"""Number of streams that are open at once."""
AGENTS = {"function": [SEND], "generator": [STREAM], "LangGraph": [SEND, STREAM]}
"""The agents, and the scenarios of each."""
PACKAGES = ("core", "client", "server", "auth", "bridges")
_COMPLETED = b'"completed"'
SCENARIOS = [
    Scenario(SEND, lambda _: messages.text_requests("message/send", "hello"), _COMPLETED, (BUSY,)),
    Scenario(
        STREAM,
        lambda _: messages.text_requests("message/stream", SLOWLY),
        _COMPLETED,
        (STREAMS,),
        timed_bytes=b'"artifact-update"',
    ),
]


def measure(say: Callable[[str], None], *, quick: bool) -> list[Table]:
    """Measure all pairs, and return the tables of figures and of targets.

    Raises:
        ServerFailed: An agent does not start, or gives wrong answers.
    """
    results = Results()
    with Bench(plan(quick=quick), results, say) as bench:
        bench.run_rounds()
    if problems := [*results.failures, *map(": ".join, results.unavailable.items())]:
        raise ServerFailed(problems[0])
    return [table(results), report.check_table(checks(results))]


def plan(*, quick: bool) -> Plan:
    """Install both libraries, and return the plan.

    Raises:
        ServerFailed: The libraries can't be installed.
    """
    sources = [ROOT / "packages" / f"apcore-a2a-{name}" for name in PACKAGES]
    requirements = [*REQUIREMENTS[ADAPTER], "langgraph", *serving_requirements()]
    try:
        python = python_environment("peer-bridges", *requirements, sources=sources)
    except (pytest.skip.Exception, TimeoutExpired) as failure:
        raise ServerFailed(str(failure)) from None
    return Plan(
        stacks=[STACK],
        servers=list(APPS),
        rounds=2 if quick else 5,
        bursts=0,
        seconds=0.3 if quick else 1.0,
        stored=0,
        programs=dict.fromkeys(APPS, (str(python), "-m", CHILD)),
        scenarios=SCENARIOS,
        only_scenarios={name: AGENTS[name.partition(", ")[2]] for name in APPS},
        warm_up=20 if quick else 100,
    )


def table(results: Results) -> Table:
    """Return our agents' CPU and time to the first artifact, compared with a2a-adapter's."""
    header = ["agent", "scenario", "CPU us", "x a2a-adapter", "first artifact ms"]
    header += ["a2a-adapter's ms", "x a2a-adapter"]
    rows = [
        _row(results, agent, scenario)
        for agent, scenarios in AGENTS.items()
        for scenario in scenarios
    ]
    return Table(f"Bridges compared with {REQUIREMENTS[ADAPTER][0]}, {STACK.name}", header, rows)


def checks(results: Results) -> list[Check]:
    """Return checks of the CPU of sends, and of the time to the first artifact of streams."""
    pair_checks: list[Check] = []
    for agent, scenarios in AGENTS.items():
        for scenario in scenarios:
            ours, theirs = _pair(results, agent, scenario)
            if scenario == SEND:
                value, limit = ours.cpu / theirs.cpu, 0.8
            else:
                value, limit = ours.first_p50 / theirs.first_p50, 0.2
            figure = "CPU" if scenario == SEND else "first artifact"
            measured = None if math.isnan(value) else value
            what = f"{agent}, {scenario}: {figure} vs. a2a-adapter"
            pair_checks.append(Check(what, STACK.name, measured, limit, "x"))
    return pair_checks


def _row(results: Results, agent: str, scenario: str) -> list[str]:
    ours, theirs = _pair(results, agent, scenario)
    cells = [agent, scenario, f"{ours.cpu * 1e6:.0f}", f"{ours.cpu / theirs.cpu:.2f} x"]
    if scenario == SEND:
        return [*cells, "", "", ""]
    our_first, their_first = ours.first_p50, theirs.first_p50
    ratio = "" if math.isnan(their_first) else f"{our_first / their_first:.2f}"
    return [*cells, _ms(our_first), _ms(their_first), ratio]


def _ms(seconds: float) -> str:
    return "none" if math.isnan(seconds) else f"{seconds * 1e3:.1f}"


def _pair(results: Results, agent: str, scenario: str) -> tuple[Figures, Figures]:
    connections = BUSY if scenario == SEND else STREAMS
    ours, theirs = (
        results.figures[Key(STACK.name, f"{library}, {agent}", scenario, connections)]
        for library in ("ours", ADAPTER)
    )
    return ours, theirs
