"""What webhooks cost the tasks that they are told of: the time of a send, with and without.

All of it in one run, in interleaved rounds, of which the ratios count.
"""

import asyncio
import socket
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tools.benchmarks.figures import percentile
from tools.benchmarks.load import Load, run_load
from tools.benchmarks.messages import Requests, send, send_with_webhook
from tools.benchmarks.report import Table
from tools.benchmarks.servers import ServerFailed
from tools.benchmarks.startup import serving

SKILL = "text.stats"
LIMIT = 1.05
"""How much more a send may take for a receiver that is slow."""
SLOW = 5.0
"""Seconds that the slow receiver takes for each answer."""
OPTIONS = ("--push-notifications", "--dev", "--push-max-pending", "1000000", "--no-access-log")
PLAIN, BESIDE, OWN, FAST = "no webhook", "others' slow one", "a slow one", "a fast one"
GOALS = {BESIDE: f"{LIMIT} x without", OWN: f"{LIMIT} x a fast one"}


def measure(*, quick: bool) -> Table:
    """The table of a run.

    Raises:
        ServerFailed: The server did not come up, or gave wrong answers.
    """
    rounds, seconds = (3, 0.3) if quick else (9, 1.0)
    with serving(*OPTIONS) as (port, _):
        found = asyncio.run(_rounds(port, rounds, seconds))
    rows = [
        [
            what,
            GOALS.get(what, ""),
            f"{statistics.median(p50s) * 1e3:.3f}",
            f"{_ratio(p50s, found[PLAIN]):.3f}",
            f"{_ratio(p50s, found[FAST]):.3f}",
        ]
        for what, p50s in found.items()
    ]
    header = ["what", "at most", "p50 ms", "x without", "x a fast one"]
    return Table("A send whose task tells", header, rows)


def _ratio(p50s: list[float], base: list[float]) -> float:
    """The median of the rounds' ratios: what disturbs the machine disturbs both in a round."""
    return statistics.median(one / other for one, other in zip(p50s, base, strict=True))


async def _rounds(port: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    async with _receiver(SLOW) as slow, _receiver(0) as fast:
        loads: dict[str, Callable[[], Requests]] = {
            PLAIN: lambda: send(SKILL, text="hello"),
            BESIDE: lambda: send(SKILL, text="hello"),
            OWN: lambda: send_with_webhook(slow, SKILL),
            FAST: lambda: send_with_webhook(fast, SKILL),
        }
        found: dict[str, list[float]] = {what: [] for what in loads}
        for requests in loads.values():
            await _p50(port, requests(), seconds)
        for _ in range(rounds):
            for what, requests in loads.items():
                if what == BESIDE:  # so that slow ones are under way
                    await _p50(port, send_with_webhook(slow, SKILL), 60, limit=100)
                found[what].append(await _p50(port, requests(), seconds))
        return found


async def _p50(port: int, requests: Requests, seconds: float, *, limit: int = 1_000_000) -> float:
    tally = await run_load(Load(port, requests, b"completed", seconds=seconds, limit=limit))
    if tally.failures:
        raise ServerFailed(tally.failures[0])
    return percentile(tally.latencies, 0.5)


@asynccontextmanager
async def _receiver(seconds: float) -> AsyncIterator[str]:
    """A receiver that takes so long for each answer: its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                await asyncio.sleep(seconds)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        except (OSError, EOFError, asyncio.CancelledError):
            writer.close()

    with _loopback() as sock:
        server = await asyncio.start_server(answer, sock=sock)
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/hook"
        finally:
            server.close()


def _loopback() -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    return found
