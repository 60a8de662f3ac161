"""Benchmark of stores: the same agent over each store, and each store alone.

All figures are from one run of interleaved rounds. Between runs, compare the ratios, not the
figures. Each figure is the median of the rounds, except `best`; each ratio is the median of the
rounds' ratios.
"""

import asyncio
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isnan, nan

from tools.benchmarks import inprocess, messages
from tools.benchmarks.figures import percentile
from tools.benchmarks.load import Load, run_load
from tools.benchmarks.measured_stores import MEMORY, POSTGRESQL, SQLITE, Place, places
from tools.benchmarks.messages import Requests
from tools.benchmarks.report import Table, check_table
from tools.benchmarks.rounds import client_loop_factory
from tools.benchmarks.scenarios import BUSY
from tools.benchmarks.servers import Server, ServerFailed, Stack
from tools.benchmarks.targets import Check

MIN_RATE = 500.0
"""Lowest tasks per second over a durable store, with two cores shared by all processes."""
MIN_RATE_RATIO = {POSTGRESQL: 0.6, SQLITE: 0.5}
"""Lowest tasks per second over a durable store, in multiples of the memory store's."""
MAX_ADDED_CPU = {POSTGRESQL: 2.0, SQLITE: 3.0}
"""Most CPU that a durable store may add to a send, in multiples of a bare echo's."""
ECHO = "bare echo"
CHUNKS = 100  # of a stream
SEND, STREAM, ALONE = "message/send", f"chunk in a stream of {CHUNKS}", "create and change, no HTTP"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request to the agents, over one connection and over many.

    Attributes:
        name: The name in the tables.
        requests: The requests to send.
        busy: The number of connections under load.
        units: The number of tasks or chunks in an answer.
    """

    name: str
    requests: Callable[[], Requests]
    busy: int = BUSY
    units: int = 1


KINDS = [
    Kind(SEND, messages.send_requests),
    Kind(
        STREAM, lambda: messages.stream_requests("bench.chunks", count=CHUNKS, pause=0), 8, CHUNKS
    ),
]


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures of one load on one store. Times are in seconds; NaN means not measured.

    Attributes:
        rate: Tasks or chunks per second.
        p50: Median latency of an answer.
        p95: 95th percentile of the latency.
        cpu: CPU of the agent's process per task or chunk.
        database: CPU of the database's processes per task or chunk.
        writes: Writes to the store per task or chunk.
        reads: Reads from the store per task or chunk.
    """

    rate: float
    p50: float
    p95: float
    cpu: float
    database: float = nan
    writes: float = nan
    reads: float = nan


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a sample."""

    what: str
    store: str
    connections: int


Samples = Mapping[Key, Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The stores to measure, the number of rounds, and the seconds of each load."""

    stores: Sequence[str]
    stack: Stack
    rounds: int
    seconds: float


def measure(plan: Plan, say: Callable[[str], None]) -> list[Table]:
    """Measure the stores; return the tables.

    Raises:
        ServerFailed: A server did not start, or gave wrong answers.
    """
    samples: dict[Key, list[Sample]] = {}
    load_average = "load average before: {:.2f}, {:.2f}, {:.2f}".format(*os.getloadavg())
    with places(plan.stores, say) as locations:
        for key, sample in _measure_served(plan, locations, say):
            samples.setdefault(key, []).append(sample)
        for key, sample in _measure_alone(plan, locations, say):
            samples.setdefault(key, []).append(sample)
    title = f"Stores, {plan.stack.name} ({load_average}; {plan.rounds} rounds)"
    return [table(title, samples), check_table(checks(samples, plan.stack))]


def _measure_served(
    plan: Plan, locations: Mapping[str, Place], say: Callable[[str], None]
) -> Iterator[tuple[Key, Sample]]:
    """Measure agents over all stores, one at a time."""
    with ExitStack() as running:
        runner = running.enter_context(asyncio.Runner(loop_factory=client_loop_factory()))
        agents = {
            name: _Agent(
                running.enter_context(Server("ours", plan.stack, store=place.address)), place
            )
            for name, place in locations.items()
        }
        bare = running.enter_context(Server("bare", plan.stack))
        agents[ECHO] = _Agent(bare, Place(""), kinds=(SEND,), expect=b'"jsonrpc"')
        for agent in agents.values():
            agent.server.wait_until_up()
            for kind in agent.measured_kinds():
                # warm up, so that imports do not count
                agent.sample(runner, kind, kind.busy, plan.seconds)
        for number in range(plan.rounds):
            say(f"agents: round {number + 1} of {plan.rounds}")
            for kind in KINDS:
                for connections in (1, kind.busy):
                    for name, agent in agents.items():
                        if kind not in agent.measured_kinds():
                            continue
                        sample = agent.sample(runner, kind, connections, plan.seconds)
                        yield Key(kind.name, name, connections), sample


def _measure_alone(
    plan: Plan, locations: Mapping[str, Place], say: Callable[[str], None]
) -> Iterator[tuple[Key, Sample]]:
    """Measure the stores without agents, each in a fresh process."""
    for number in range(plan.rounds):
        say(f"stores alone: round {number + 1} of {plan.rounds}")
        for callers in (1, BUSY):
            for name, place in locations.items():
                sample = inprocess.measure_store(
                    plan.stack.loop, place.address, callers, plan.seconds
                )
                yield Key(ALONE, name, callers), Sample(**sample)


@dataclass(frozen=True, slots=True)
class _Agent:
    """A server over a store.

    Attributes:
        server: The server.
        place: The store.
        kinds: The names of the kinds of requests that are measured; all kinds if empty.
        expect: Bytes that each answer contains.
    """

    server: Server
    place: Place
    kinds: Sequence[str] = ()
    expect: bytes = b'"completed"'

    def measured_kinds(self) -> list[Kind]:
        """Return the kinds of requests that are measured."""
        return [kind for kind in KINDS if not self.kinds or kind.name in self.kinds]

    def sample(
        self, runner: asyncio.Runner, kind: Kind, connections: int, seconds: float
    ) -> Sample:
        """Run a load on the server; return its sample.

        Raises:
            ServerFailed: The server gave wrong answers.
        """
        requests = kind.requests()
        load = Load(self.server.port, requests, self.expect, connections, seconds)
        before, database_before = self.server.state(), self.place.cpu()
        tally = runner.run(run_load(load))
        if tally.failures:
            raise ServerFailed(tally.failures[0])
        after, database = self.server.state(), self.place.cpu() - database_before
        count = len(tally.latencies) * kind.units
        return Sample(
            rate=count / tally.elapsed,
            p50=percentile(tally.latencies, 0.5),
            p95=percentile(tally.latencies, 0.95),
            cpu=(after.cpu - before.cpu) / count,
            database=database / count,
            writes=(after.writes - before.writes) / count,
            reads=(after.reads - before.reads) / count,
        )


def table(title: str, samples: Samples) -> Table:
    """Return the table with a line for each store under each load."""
    header = ["what", "store", "conns", "/s", "best", "x memory", "p50 ms", "p95 ms"]
    header += ["CPU us", "x memory", "database us", "writes", "reads"]
    return Table(title, header, [_row(key, samples) for key in samples])


def _row(key: Key, samples: Samples) -> list[str]:
    store_samples = samples[key]
    base = samples.get(Key(key.what, MEMORY, key.connections), ())
    return [
        key.what,
        key.store,
        str(key.connections),
        _format(_median(store_samples, "rate"), ",.0f"),
        _format(max(sample.rate for sample in store_samples), ",.0f"),
        _format(_ratio(store_samples, base, "rate"), ".2f"),
        _format(_median(store_samples, "p50") * 1e3, ".2f"),
        _format(_median(store_samples, "p95") * 1e3, ".2f"),
        _format(_median(store_samples, "cpu") * 1e6, ".0f"),
        _format(_ratio(store_samples, base, "cpu"), ".2f"),
        _format(_median(store_samples, "database") * 1e6, ".0f"),
        _format(_median(store_samples, "writes"), ".2f"),
        _format(_median(store_samples, "reads"), ".2f"),
    ]


def _values(samples: Sequence[Sample], name: str) -> list[float]:
    return [getattr(sample, name) for sample in samples]


def _median(samples: Sequence[Sample], name: str) -> float:
    return statistics.median(_values(samples, name))


def _ratio(samples: Sequence[Sample], base: Sequence[Sample], name: str) -> float:
    """Return the median of the rounds' ratios: a busy machine affects both values of a round."""
    if not base:
        return nan
    pairs = zip(_values(samples, name), _values(base, name), strict=True)
    return statistics.median(value / base_value for value, base_value in pairs)


def _format(value: float, spec: str) -> str:
    return "" if isnan(value) else format(value, spec)


def checks(samples: Samples, stack: Stack) -> list[Check]:
    """Return checks of the throughput and CPU of the durable stores."""
    memory, echo = (samples.get(Key(SEND, name, BUSY), ()) for name in (MEMORY, ECHO))
    store_checks: list[Check] = []
    for name in (SQLITE, POSTGRESQL):
        store_samples, what = samples.get(Key(SEND, name, BUSY), ()), f"{SEND} over {name}"
        rate = _median(store_samples, "rate") if store_samples else None
        store_checks.append(Check(what, stack.name, rate, MIN_RATE, "/s", at_least=True))
        ratio = _ratio(store_samples, memory, "rate") if store_samples and memory else None
        limit = MIN_RATE_RATIO[name]
        store_checks.append(
            Check(f"{what} vs. memory", stack.name, ratio, limit, "x", at_least=True)
        )
        added = None
        if store_samples and memory and echo:
            added = _ratio(store_samples, echo, "cpu") - _ratio(memory, echo, "cpu")
        what = f"{what}: CPU beyond the memory store's, vs. a bare echo"
        store_checks.append(Check(what, stack.name, added, MAX_ADDED_CPU[name], "x"))
    return store_checks
