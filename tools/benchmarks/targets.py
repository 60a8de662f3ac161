"""Targets: limits of figures, relative to the bare server or absolute."""

from collections.abc import Iterator
from dataclasses import dataclass

from tools.benchmarks.apps import LOGGED
from tools.benchmarks.figures import FactKey, Figures, Key, Results
from tools.benchmarks.rounds import LEFTOVER, TASK_BYTES
from tools.benchmarks.scenarios import (
    BUSY,
    CARD,
    CARD_100,
    CHUNKS,
    DIRECT,
    GET,
    GET_FULL,
    MANY_CHUNKS,
    SEND,
    SEND_V1,
    SLEEPING,
    SLEEPING_ALONE,
    STREAM,
    STREAMS,
    echoes,
)

START = "start-up"
HELP = "--help"
CREATE = "create_app, without imports"
STREAM_BYTES = "bytes per open stream, without sockets"
CARD_BUILD = "agent card of 100 modules"

FAST = "httptools+uvloop"
"""The cheapest stack; `serve` uses it if it is installed."""
# By stack: highest CPU per request, in multiples of a bare echo's
_MAX_SEND = {"h11+asyncio": 4.0, FAST: 5.5}
_MAX_GET = {"h11+asyncio": 1.5, FAST: 1.4}
_MAX_STREAM = {FAST: 7.0}


@dataclass(frozen=True, slots=True)
class Check:
    """A figure and its limit."""

    what: str
    stack: str
    value: float | None
    """None if not measured."""
    limit: float
    unit: str
    at_least: bool = False

    @property
    def missed(self) -> bool:
        """Whether the figure was measured and misses its limit."""
        if self.value is None:
            return False
        return self.value < self.limit if self.at_least else self.value > self.limit

    @property
    def verdict(self) -> str:
        """Whether the limit is met or missed, and by how much.

        Example:
            >>> Check("send", "", 5.0, 4.0, "x").verdict
            'missed by 25 %'
        """
        if self.value is None:
            return "not measured"
        if not self.limit:
            return f"missed by {self.value:g}" if self.missed else "met"
        share = abs(self.value - self.limit) / self.limit
        return f"{'missed' if self.missed else 'met'} by {share:.0%}".replace("%", " %")


def checks(results: Results) -> list[Check]:
    """Return a check for each figure with a limit, in each stack."""
    stack_checks = [check for stack in results.stacks() for check in _stack_checks(results, stack)]
    return [*stack_checks, *_process_checks(results)]


def _stack_checks(results: Results, stack: str) -> Iterator[Check]:
    yield from _cpu_checks(results, stack)
    yield from _latency_checks(_Reader(results, stack))
    yield from _capacity_checks(_Reader(results, stack))


def _process_checks(results: Results) -> Iterator[Check]:
    for name, max_seconds, unit in ((CARD_BUILD, 0.1, "ms"), (START, 2.0, "s")):
        seconds = results.facts.get(FactKey("", "ours", name))
        scale = 1e3 if unit == "ms" else 1.0
        yield Check(name, "", _scale(seconds, scale), max_seconds * scale, unit)


def _cpu_checks(results: Results, stack: str) -> Iterator[Check]:
    """Yield checks of CPU per request, in multiples of the bare server's echo."""
    limits = {
        SEND: _MAX_SEND[stack],
        SEND_V1: _MAX_SEND[stack],
        GET: _MAX_GET[stack],
    }
    if stack in _MAX_STREAM:
        limits[STREAM] = _MAX_STREAM[stack]
    for scenario, limit in limits.items():
        ratio = results.ratio(Key(stack, "ours", scenario, BUSY), echoes(stack))
        yield Check(f"{scenario}: CPU vs. a bare echo", stack, ratio, limit, "x")
    card = Key(stack, "ours", CARD, BUSY)
    ratio = results.ratio(card, [card._replace(server="bare")])
    yield Check(f"{CARD}: CPU vs. a bare page", stack, ratio, 1.0, "x")
    if stack == FAST:
        chunk = _CpuDifference(Key(stack, "ours", MANY_CHUNKS, 8), Key(stack, "ours", STREAM, BUSY))
        yield chunk.check("each further chunk: CPU vs. a bare echo", results, 1.0, CHUNKS - 1)
        log = _CpuDifference(Key(stack, LOGGED, GET, BUSY), Key(stack, "ours", GET, BUSY))
        yield log.check("the access log, per request: CPU vs. a bare echo", results, 0.25)


@dataclass(frozen=True, slots=True)
class _CpuDifference:
    """The additional CPU per answer of one kind, compared with answers of another kind."""

    larger: Key
    smaller: Key

    def check(self, what: str, results: Results, limit: float, count: int = 1) -> Check:
        """Return a check of the difference divided by *count*, in multiples of a bare echo."""
        baselines = echoes(self.larger.stack)
        larger, smaller = (results.ratio(key, baselines) for key in (self.larger, self.smaller))
        measured = None if larger is None or smaller is None else (larger - smaller) / count
        return Check(what, self.larger.stack, measured, limit, "x")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reader of the figures of one stack."""

    results: Results
    stack: str

    def figures(self, scenario: str, connections: int = 1, server: str = "ours") -> Figures | None:
        return self.results.figures.get(Key(self.stack, server, scenario, connections))

    def fact(self, name: str) -> float | None:
        return self.results.facts.get(FactKey(self.stack, "ours", name))

    def check(
        self, what: str, value: float | None, limit: float, scale: float = 1e3, unit: str = "ms"
    ) -> Check:
        return Check(what, self.stack, _scale(value, scale), limit, unit)


def _latency_checks(reader: _Reader) -> Iterator[Check]:
    stream, echo = reader.figures(STREAM), reader.figures(STREAM, server="bare")
    first = stream.first_p50 / echo.p50 if stream and echo else None
    yield Check("first SSE event: latency vs. a bare echo", reader.stack, first, 6.0, "x")
    yield reader.check("first SSE event, p99", stream.first_p99 if stream else None, 50.0)
    for scenario, connections in ((CARD, BUSY), (CARD_100, 100)):
        card = reader.figures(scenario, connections)
        yield reader.check(
            f"agent card at {connections} connections, p99", card.p99 if card else None, 10.0
        )
    send, direct = reader.figures(SEND), reader.figures(DIRECT, server="apcore")
    overhead = send.p50 - direct.p50 if send and direct else None
    yield reader.check("message/send, p50 above Executor.call_async's", overhead, 5.0)
    get = reader.figures(GET_FULL)
    yield reader.check("tasks/get from a full store, p50", get.p50 if get else None, 1.0)
    many, alone = reader.figures(SLEEPING, 100), reader.figures(SLEEPING_ALONE)
    ratio = many.p99 / alone.p99 if many and alone else None
    yield Check("100 parallel sends of 0.1 s: p99 vs. one send", reader.stack, ratio, 2.0, "x")
    streams = reader.figures(STREAMS, 50)
    yield reader.check(
        "event delivery in 50 streams, p99", streams.delivery_p99 if streams else None, 100.0
    )


def _capacity_checks(reader: _Reader) -> Iterator[Check]:
    send, sdk = reader.figures(SEND, BUSY), reader.figures(SEND, BUSY, "sdk")
    rate = send.rate if send else None
    yield Check("message/send per second", reader.stack, rate, 100.0, "/s", at_least=True)
    ratio = send.rate / sdk.rate if send and sdk else None
    yield Check(
        "message/send: throughput vs. the SDK", reader.stack, ratio, 3.0, "x", at_least=True
    )
    size = reader.fact(TASK_BYTES)
    yield reader.check("memory per stored task", size, 10.0, scale=1 / 1024, unit="KB")
    yield Check(LEFTOVER, reader.stack, reader.fact(LEFTOVER), 0.0, "")


def _scale(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
