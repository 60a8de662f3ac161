"""Benchmark of remote agents: a skill called through a gateway, compared with calling it directly.

Direct calls and calls through the gateway alternate in one run, so that other load affects both;
compare the ratios. The agent, the gateway and the load generator share the processors.
"""

import asyncio
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize
from typing import NamedTuple

import httpx

from tools.benchmarks.figures import percentile
from tools.benchmarks.load import Load, run_load
from tools.benchmarks.messages import send_v1_requests
from tools.benchmarks.report import Table
from tools.benchmarks.servers import ServerFailed
from tools.benchmarks.startup import EXTENSIONS, RunningCommand, running_command

MAX_RATIO = 2.5
"""Highest ratio of the latency of a call through the gateway to that of a direct one."""
PARALLEL = 100
"""Calls that are open at once."""
OPEN_SECONDS = 15
"""Duration of the calls during which memory is measured: all must be open at once."""
SKILL, LONG_SKILL = "text.stats", "jobs.countdown"
REMOTE_NAME = "tools"
DONE = b"COMPLETED"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def measure(say: Callable[[str], None], *, quick: bool) -> list[Table]:
    """Measure direct calls and calls through a gateway; return the tables.

    Raises:
        ServerFailed: A server did not start, or gave wrong answers.
    """
    quiet = ("--no-access-log",)
    with running_command("--extensions-dir", str(EXTENSIONS), *quiet) as agent:
        remote = f"{REMOTE_NAME}=http://127.0.0.1:{agent.port}"
        with running_command(*quiet, "--metrics", "--remote", remote) as gateway:
            bench = _Bench(agent, gateway, 3 if quick else 15, 0.3 if quick else 1.0, say)
            return asyncio.run(bench.tables())


@dataclass(frozen=True)
class _Bench:
    """A benchmark of an agent and a gateway to it."""

    agent: RunningCommand
    gateway: RunningCommand
    rounds: int
    seconds: float
    say: Callable[[str], None]

    async def tables(self) -> list[Table]:
        """Return the tables.

        Memory is measured before the parallel calls: memory that these free would be reused.
        """
        single_call = await self._row(1)
        self.say("memory of open calls")
        memory = await self._memory()
        header = ["calls at once", "latency at most"]
        header += ["direct p50 ms", "via gateway p50 ms", "x direct"]
        header += ["direct CPU ms", "via gateway CPU ms", "x direct"]
        rows = [single_call, await self._row(PARALLEL)]
        return [Table("A call of a remote skill", header, rows), memory]

    async def _row(self, connections: int) -> list[str]:
        """Measure direct calls and calls through the gateway alternately.

        CPU is always that of the agent and the gateway together.
        """
        direct_costs: list[_Cost] = []
        gateway_costs: list[_Cost] = []
        for number in range(self.rounds + 1):
            self.say(f"{connections} at once, round {number} of {self.rounds}")
            direct = await self._cost(self.agent.port, SKILL, connections)
            remote_skill = f"remote.{REMOTE_NAME}.{SKILL}"
            via_gateway = await self._cost(self.gateway.port, remote_skill, connections)
            if number:  # the first round warms up
                direct_costs.append(direct)
                gateway_costs.append(via_gateway)
        cells = [str(connections), f"{MAX_RATIO} x" if connections == 1 else ""]
        for figure in ("p50", "cpu"):
            direct_values = [getattr(cost, figure) for cost in direct_costs]
            gateway_values = [getattr(cost, figure) for cost in gateway_costs]
            pairs = zip(gateway_values, direct_values, strict=True)
            ratio = statistics.median(via_gateway / direct for via_gateway, direct in pairs)
            medians = map(statistics.median, (direct_values, gateway_values))
            cells += [f"{seconds * 1e3:.2f}" for seconds in medians]
            cells.append(f"{ratio:.2f}")
        return cells

    async def _cost(self, port: int, skill: str, connections: int) -> "_Cost":
        before = self._cpu_seconds()
        # parallel connections send one call each; one connection calls until `seconds` have passed
        limit = PARALLEL if connections == PARALLEL else 1_000_000
        requests = send_v1_requests(skill, text="hello")
        tally = await run_load(
            Load(port, requests, DONE, connections, seconds=self.seconds, limit=limit)
        )
        if tally.failures:
            raise ServerFailed(tally.failures[0])
        # the kernel counts ticks, and a short round may take less than one
        seconds = max(self._cpu_seconds() - before, 1 / TICKS_PER_SECOND)
        return _Cost(percentile(tally.latencies, 0.5), seconds / len(tally.latencies))

    def _cpu_seconds(self) -> float:
        ids = self.agent.process_id, self.gateway.process_id
        return sum(_cpu_ticks(process_id) for process_id in ids) / TICKS_PER_SECOND

    async def _memory(self) -> Table:
        """Measure the gateway's memory before the calls, and while all are open."""
        bytes_before = _resident_bytes(self.gateway.process_id)
        skill = f"remote.{REMOTE_NAME}.{LONG_SKILL}"
        requests = send_v1_requests(skill, seconds=OPEN_SECONDS, step=OPEN_SECONDS)
        load = Load(self.gateway.port, requests, DONE, PARALLEL, limit=PARALLEL)
        calls = asyncio.create_task(run_load(load))
        bytes_during = 0
        async with httpx.AsyncClient(trust_env=False) as http:
            while not (calls.done() or bytes_during):
                url = f"http://127.0.0.1:{self.gateway.port}/metrics"
                if (await http.get(url)).json()["open_remote_calls"] == PARALLEL:
                    bytes_during = _resident_bytes(self.gateway.process_id)
                await asyncio.sleep(0.05)
        if failures := (await calls).failures:
            raise ServerFailed(failures[0])
        if not bytes_during:
            raise ServerFailed(f"{PARALLEL} calls were never open at once")
        kib = (bytes_during - bytes_before) / PARALLEL / 1024
        header = ["open calls", "KiB of the gateway per call"]
        return Table("Memory of open calls", header, [[str(PARALLEL), f"{kib:.0f}"]])


class _Cost(NamedTuple):
    """The cost of a call, in seconds.

    Attributes:
        p50: The median of the latencies.
        cpu: The CPU of both processes for one call.
    """

    p50: float
    cpu: float


def _cpu_ticks(process_id: int) -> int:
    """Return the CPU time of a process, user and system, in clock ticks."""
    stat = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def _resident_bytes(process_id: int) -> int:
    pages = Path(f"/proc/{process_id}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * getpagesize()
