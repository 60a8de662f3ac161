"""Benchmark of remote agents: a skill called through a gateway, compared with calling it directly.

Both are called in turns in one run, so that other load affects both; compare the ratios. The agent,
the gateway and the load generator share the processors.
"""

import asyncio
import statistics
from collections.abc import Callable
from pathlib import Path
from resource import getpagesize

import httpx

from tools.benchmarks.figures import percentile
from tools.benchmarks.load import Load, run_load
from tools.benchmarks.messages import Requests, send_v1
from tools.benchmarks.report import Table
from tools.benchmarks.servers import ServerFailed
from tools.benchmarks.startup import serving, started

MAX_RATIO = 2.5
"""Highest ratio of the latency of a call through the gateway to that of a direct one."""
PARALLEL = 100
"""Calls that are open at once."""
OPEN_SECONDS = 20
"""Duration of the calls during which memory is measured: they must all be open at once."""
SKILL, LONG_SKILL = "text.stats", "jobs.countdown"
NAME = "tools"


def measure(say: Callable[[str], None], *, quick: bool) -> list[Table]:
    """Measure direct calls and calls through a gateway; return the tables.

    Raises:
        ServerFailed: A server did not start, or gave wrong answers.
    """
    rounds, seconds = (3, 0.3) if quick else (15, 1.0)
    quiet = ("--no-access-log",)
    with (
        serving(*quiet) as (agent, _),
        started(*quiet, "--metrics", "--remote", f"{NAME}=http://127.0.0.1:{agent}") as gateway,
    ):
        return asyncio.run(_tables(agent, gateway.port, gateway.process_id, rounds, seconds, say))


async def _tables(
    agent: int,
    gateway: int,
    process_id: int,
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> list[Table]:
    rows = [
        await _row(agent, gateway, connections, rounds, seconds, say)
        for connections in (1, PARALLEL)
    ]
    say("memory of open calls")
    header = ["calls at once", "at most", "direct p50 ms", "by the gateway p50 ms", "x direct"]
    return [
        Table("A call of a remote skill", header, rows),
        await _memory_table(gateway, process_id),
    ]


async def _row(
    agent: int,
    gateway: int,
    connections: int,
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> list[str]:
    direct: list[float] = []
    hops: list[float] = []
    ways = (agent, SKILL, direct), (gateway, f"remote.{NAME}.{SKILL}", hops)
    for number in range(rounds + 1):
        say(f"{connections} at once, round {number} of {rounds}")
        for port, skill, latencies in ways:
            p50 = await _p50(port, send_v1(skill, text="hello"), connections, seconds)
            if number:  # the first round warms up
                latencies.append(p50)
    ratio = statistics.median(hop / one for hop, one in zip(hops, direct, strict=True))
    goal = f"{MAX_RATIO} x" if connections == 1 else ""
    times = [f"{statistics.median(each) * 1e3:.2f}" for each in (direct, hops)]
    return [str(connections), goal, *times, f"{ratio:.2f}"]


async def _p50(port: int, requests: Requests, connections: int, seconds: float) -> float:
    limit = PARALLEL if connections == PARALLEL else 1_000_000  # a burst, or one after another
    load = Load(port, requests, b"COMPLETED", connections, seconds=seconds, limit=limit)
    tally = await run_load(load)
    if tally.failures:
        raise ServerFailed(tally.failures[0])
    return percentile(tally.latencies, 0.5)


async def _memory_table(gateway: int, process_id: int) -> Table:
    """Measure the memory of the gateway while calls are open, after as many have been before."""
    skill = f"remote.{NAME}.{LONG_SKILL}"
    await _open_calls(gateway, process_id, skill, seconds=1, wanted=False)
    before = _resident_bytes(process_id)
    during = await _open_calls(gateway, process_id, skill, seconds=OPEN_SECONDS, wanted=True)
    kib = (during - before) / PARALLEL / 1024
    header = ["open calls", "KiB of the gateway for each"]
    return Table("Memory of open calls", header, [[str(PARALLEL), f"{kib:.0f}"]])


async def _open_calls(port: int, process_id: int, skill: str, *, seconds: int, wanted: bool) -> int:
    """Open calls of a number of seconds; return the memory of the gateway when all are open."""
    requests = send_v1(skill, seconds=seconds, step=seconds)
    load = Load(port, requests, b"COMPLETED", connections=PARALLEL, limit=PARALLEL)
    calls = asyncio.create_task(run_load(load))
    resident = 0
    async with httpx.AsyncClient(trust_env=False) as http:
        while wanted and not calls.done():
            figures = (await http.get(f"http://127.0.0.1:{port}/metrics")).json()
            if figures["open_remote_calls"] == PARALLEL:
                resident = _resident_bytes(process_id)
                break
            await asyncio.sleep(0.05)
    if failures := (await calls).failures:
        raise ServerFailed(failures[0])
    if wanted and not resident:
        raise ServerFailed(f"{PARALLEL} calls were never open at once")
    return resident


def _resident_bytes(process_id: int) -> int:
    pages = Path(f"/proc/{process_id}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * getpagesize()
