"""Comparison with other A2A servers; all but a2a-sdk have environments of their own in `.cache`.

All run an agent that does nothing. fasta2a answers before the task ends, the other servers after.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from subprocess import TimeoutExpired
from textwrap import shorten

import pytest

from tests.e2e.environments import node_modules, python_environment, tool
from tools.benchmarks.figures import Key, Results
from tools.benchmarks.report import Table
from tools.benchmarks.rounds import Plan
from tools.benchmarks.scenarios import BUSY, SEND, STEADY
from tools.benchmarks.servers import CHILD, STACKS
from tools.benchmarks.targets import Check

JS, FASTA2A, ADAPTER = "@a2a-js/sdk", "fasta2a", "a2a-adapter"
LOCAL = {"bare": "an echo", "ours": "apcore's pipeline", "sdk": "a2a-sdk alone"}
"""Servers in this environment, and the software that each runs."""
REQUIREMENTS = {
    JS: ["@a2a-js/sdk@1.3.0", "express@5.3.0"],
    FASTA2A: ["fasta2a==2.1.1"],
    ADAPTER: ["a2a-adapter==0.2.14"],
}
SERVERS = LOCAL | {name: ", ".join(required) for name, required in REQUIREMENTS.items()}
"""The servers, and the software that each runs."""
SERVERS[FASTA2A] += ", does not wait"
SERVING_PACKAGES = ["starlette", "uvicorn", "httptools", "uvloop"]
"""Packages that serve each Python agent."""
STACK = STACKS["uvloop"]
(SEND_SCENARIO,) = (scenario for scenario in STEADY if scenario.name == SEND)
BUSY_SEND = replace(SEND_SCENARIO, connections=(BUSY,), expect_by_server={FASTA2A: b'"state":"'})
MAX_REASON_LENGTH = 100  # characters
WARM_UP = 1000  # requests; V8 compiles only what has run often

Program = Sequence[str]


def plan(results: Results, *, quick: bool) -> Plan:
    """Install the peers and return the plan; note in *results* those that can't be installed."""
    programs: dict[str, Program] = {}
    for name in REQUIREMENTS:
        try:
            programs[name] = program(name)
        except (pytest.skip.Exception, TimeoutExpired) as failure:
            results.unavailable[name] = str(failure)
    return Plan(
        stacks=[STACK],
        servers=[*LOCAL, *programs],
        rounds=2 if quick else 5,
        bursts=0,
        seconds=0.3 if quick else 1.0,
        stored=2_000 if quick else 10_000,
        programs=programs,
        scenarios=[BUSY_SEND],
        warm_up=100 if quick else WARM_UP,
    )


def program(name: str) -> Program:
    """Install the peer if it is missing; return the program that serves it."""
    if name == JS:
        folder = node_modules(*REQUIREMENTS[name])
        return tool("node"), str(Path(__file__).with_name("peer.mjs")), str(folder)
    python = python_environment(f"peer-{name}", *REQUIREMENTS[name], *serving_requirements())
    return str(python), "-m", CHILD


def serving_requirements() -> list[str]:
    """Return `SERVING_PACKAGES` as requirements, in the versions of this environment."""
    return [f"{package}=={version(package)}" for package in SERVING_PACKAGES]


def table(results: Results) -> Table:
    """Return the table of all servers, including those that have no figures."""
    header = ["server", "what", "sends/s", "x bare", "CPU us", "x bare"]
    rows = [_row(name, results) for name in SERVERS]
    return Table(f"message/send at {BUSY} connections, {STACK.name}", header, rows)


def checks(results: Results) -> list[Check]:
    """Return checks of this server's throughput, compared with that of the SDKs."""
    keys = [Key(STACK.name, name, SEND, BUSY) for name in ("ours", JS, "sdk")]
    ours, js, sdk = (results.figures.get(key) for key in keys)
    return [
        Check(
            f"{SEND}: throughput vs. {name}",
            STACK.name,
            ours.rate / peer.rate if ours and peer else None,
            limit,
            "x",
            at_least=True,
        )
        for name, peer, limit in ((JS, js, 1.4), (LOCAL["sdk"], sdk, 8.0))
    ]


def _row(name: str, results: Results) -> list[str]:
    figures = {
        server: results.figures.get(Key(STACK.name, server, SEND, BUSY)) for server in SERVERS
    }
    peer, bare = figures[name], figures["bare"]
    failures = [line for line in results.failures if line.startswith(f"{name} on ")]
    if peer is None or bare is None or failures:
        reason = results.unavailable.get(name) or next(iter(failures), "no figures")
        return [name, f"not measured: {shorten(reason, MAX_REASON_LENGTH)}", "", "", "", ""]
    return [
        name,
        SERVERS[name],
        f"{peer.rate:,.0f}",
        f"{peer.rate / bare.rate:.2f}",
        f"{peer.cpu * 1e6:.0f}",
        f"{peer.cpu / bare.cpu:.2f}",
    ]
