"""Benchmark of workers: the CPU time of a send to two workers, compared with a single process.

All processes of the agent share one core; the database and the load generator run on the other
cores. If all of them shared every core, the cost of context switches would depend on the machine.
"""

import asyncio
import os
import statistics
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tools.benchmarks import modules
from tools.benchmarks.load import Load, run_load
from tools.benchmarks.measured_stores import POSTGRESQL, places, tree_cpu
from tools.benchmarks.messages import send_requests
from tools.benchmarks.report import Table
from tools.benchmarks.servers import ServerFailed
from tools.benchmarks.startup import RunningCommand, running_command


class Row(NamedTuple):
    """A measurement of sends to some processes over some connections."""

    processes: int
    connections: int
    goal: str = ""
    """Highest CPU time of a send, in multiples of that in `BASE`."""


BASE = Row(1, 32)
ROWS = (BASE, Row(2, 32), Row(2, 64, "1.1"))
"""Only the last row has a goal: its processes have as many connections each as that of `BASE`. The
number matters because concurrent sends share round trips and commits."""


def measure(say: Callable[[str], None], *, quick: bool) -> Table:
    """Measure sends to one and to two processes that share a PostgreSQL; return the table.

    Raises:
        ServerFailed: There is no PostgreSQL or no second core, or the agent gave wrong answers.
    """
    core, *other_cores = sorted(os.sched_getaffinity(0))
    if not other_cores:
        raise ServerFailed("this needs two cores")
    seconds, rounds = (0.5, 3) if quick else (4.0, 9)
    costs: dict[Row, list[float]] = {row: [] for row in ROWS}
    rates: dict[Row, list[float]] = {row: [] for row in ROWS}
    with ExitStack() as stack:
        stack.enter_context(_on_cores(other_cores))
        locations = stack.enter_context(places([POSTGRESQL], say))
        if POSTGRESQL not in locations:
            raise ServerFailed("PostgreSQL is missing")
        options = (modules.__file__, "--no-access-log", "--store", locations[POSTGRESQL].address)
        with _on_cores([core]):
            agents = {
                number: stack.enter_context(running_command(*options, "--workers", str(number)))
                for number in sorted({row.processes for row in ROWS})
            }
        for round_number in range(rounds + 1):
            say(f"round {round_number} of {rounds}")
            for row in ROWS:
                cost, rate = asyncio.run(
                    _measure_sends(agents[row.processes], row.connections, seconds)
                )
                if round_number:  # the first one warms up
                    costs[row].append(cost)
                    rates[row].append(rate)
    table_rows = [
        [
            str(row.processes),
            str(row.connections),
            row.goal,
            f"{statistics.median(costs[row]) * 1e6:.0f}",
            f"{statistics.median(map(float.__truediv__, costs[row], costs[BASE])):.2f}",
            f"{statistics.median(rates[row]):,.0f}",
        ]
        for row in ROWS
    ]
    header = ["processes", "connections", "at most", "CPU us", "x one process", "sends/s"]
    return Table("A send over PostgreSQL, with all processes on one core", header, table_rows)


async def _measure_sends(
    agent: RunningCommand, connections: int, seconds: float
) -> tuple[float, float]:
    """Return the CPU seconds of a send, in all processes of the agent together, and the sends/s."""
    before = tree_cpu(agent.process_id)
    requests = send_requests("modules.noop")
    tally = await run_load(Load(agent.port, requests, b"completed", connections, seconds))
    if tally.failures:
        raise ServerFailed(tally.failures[0])
    sends = len(tally.latencies)
    return (tree_cpu(agent.process_id) - before) / sends, sends / tally.elapsed


@contextmanager
def _on_cores(cores: Collection[int]) -> Iterator[None]:
    """Run this process, and the processes that it starts meanwhile, on *cores*."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
