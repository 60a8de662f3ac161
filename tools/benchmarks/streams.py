"""Benchmark of many open streams: the CPU time per event, and the memory per stream."""

import asyncio
import statistics
from collections.abc import Callable

from tools.benchmarks import inprocess, messages, modules
from tools.benchmarks.load import Load, Tally, run_load
from tools.benchmarks.measured_stores import tree_cpu
from tools.benchmarks.report import Table
from tools.benchmarks.rounds import client_loop_factory
from tools.benchmarks.scenarios import BUSY
from tools.benchmarks.servers import STACKS, Server, ServerFailed
from tools.benchmarks.startup import RunningCommand, running_command

PAUSE = 1.0
"""Seconds between the events of a stream."""
MAX_RATIO = 1.0
"""Highest CPU time of an event without sockets, in multiples of an echo over a socket."""
MAX_BYTES = 20 * 1024
"""Most memory of a stream and its run, in bytes."""

_LIMIT_OPTIONS = ("--max-streams", "--max-streams-per-client", "--max-runs")


def measure(say: Callable[[str], None], *, quick: bool, streams: int = 1000) -> Table:
    """Measure events to open streams, and echoes in the same rounds; return the table.

    Raises:
        ServerFailed: A server did not start, or gave wrong answers.
    """
    events, rounds, echo_seconds = (3, 1, 0.5) if quick else (20, 5, 3.0)
    echo_costs, event_costs, inner_costs = list[float](), list[float](), list[float]()
    limits = (text for option in _LIMIT_OPTIONS for text in (option, str(streams)))
    options = ("--no-access-log", "--client-share", "1", *limits)
    with (
        Server("bare", STACKS["uvloop"]) as bare,
        running_command(modules.__file__, *options) as agent,
        asyncio.Runner(loop_factory=client_loop_factory()) as runner,
    ):
        bare.wait_until_up()
        runner.run(_open_streams(agent, streams, 1))  # warms up
        for number in range(1, rounds + 1):
            say(f"round {number} of {rounds}")
            echo_costs.append(_echo_cost(runner, bare, echo_seconds))
            # the difference between long and short streams is the cost of the additional events
            short_cost = runner.run(_open_streams(agent, streams, 1))
            long_cost = runner.run(_open_streams(agent, streams, 1 + events))
            event_costs.append((long_cost - short_cost) / events / streams)
            inner_costs.append(inprocess.measure_events(streams, events))
    size = inprocess.measure_streams(streams)
    echo, event, inner_event = map(statistics.median, (echo_costs, event_costs, inner_costs))
    rows = [
        ["CPU us of an echo", f"{echo * 1e6:.0f}", ""],
        ["CPU us of an event", f"{event * 1e6:.0f}", ""],
        ["an event, x an echo", f"{event / echo:.2f}", ""],
        ["CPU us of an event without sockets", f"{inner_event * 1e6:.0f}", ""],
        ["an event without sockets, x an echo", f"{inner_event / echo:.2f}", f"{MAX_RATIO:.2f}"],
        ["KB of a stream without sockets", f"{size / 1024:.1f}", f"{MAX_BYTES / 1024:.1f}"],
    ]
    title = f"{streams:,} open streams, each with an event every {PAUSE:g} s"
    return Table(title, ["what", "found", "at most"], rows)


async def _open_streams(agent: RunningCommand, streams: int, events: int) -> float:
    """Open streams of *events* events each; return the CPU seconds that the agent takes for all."""
    before = tree_cpu(agent.process_id)
    requests = messages.stream_requests("modules.chunks", count=float(events), pause=PAUSE)
    seconds = 60 + events * PAUSE
    load = Load(agent.port, requests, b"completed", streams, seconds, limit=streams)
    _check(await run_load(load))
    return tree_cpu(agent.process_id) - before


def _echo_cost(runner: asyncio.Runner, bare: Server, seconds: float) -> float:
    """Return the CPU seconds of one echo."""
    before = bare.state().cpu
    load = Load(bare.port, messages.send_requests(), b'"jsonrpc"', BUSY, seconds)
    tally = _check(runner.run(run_load(load)))
    return (bare.state().cpu - before) / len(tally.latencies)


def _check(tally: Tally) -> Tally:
    if tally.failures:
        raise ServerFailed(tally.failures[0])
    return tally
