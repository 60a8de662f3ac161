"""Benchmark of webhooks: the latency of a send with and without a webhook.

All figures are from one run of interleaved rounds. Between runs, compare the ratios.
"""

import asyncio
import socket
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tools.benchmarks.figures import percentile
from tools.benchmarks.load import Load, run_load
from tools.benchmarks.messages import Requests, send_requests, send_requests_with_webhook
from tools.benchmarks.report import Table
from tools.benchmarks.servers import ServerFailed
from tools.benchmarks.startup import serving

SKILL = "text.stats"
MAX_RATIO = 1.05
"""Highest ratio of the latencies that `GOALS` compares."""
SLOW_SECONDS = 5.0
"""Seconds that the slow receiver takes for each answer."""
OPTIONS = ("--push-notifications", "--dev", "--push-max-pending", "1000000", "--no-access-log")
NO_WEBHOOK, BESIDE_SLOW = "no webhook", "no webhook, during slow deliveries of other tasks"
SLOW_WEBHOOK, FAST_WEBHOOK = "a slow webhook", "a fast webhook"
"""Labels of the measured sends."""
GOALS = {BESIDE_SLOW: f"{MAX_RATIO} x no webhook", SLOW_WEBHOOK: f"{MAX_RATIO} x fast webhook"}


def measure(*, quick: bool) -> Table:
    """Measure sends with and without webhooks; return the table.

    Raises:
        ServerFailed: The server did not start, or gave wrong answers.
    """
    rounds, seconds = (3, 0.3) if quick else (9, 1.0)
    with serving(*OPTIONS) as (port, _):
        latencies = asyncio.run(_run_rounds(port, rounds, seconds))
    rows = [
        [
            what,
            GOALS.get(what, ""),
            f"{statistics.median(p50s) * 1e3:.3f}",
            f"{_ratio(p50s, latencies[NO_WEBHOOK]):.3f}",
            f"{_ratio(p50s, latencies[FAST_WEBHOOK]):.3f}",
        ]
        for what, p50s in latencies.items()
    ]
    header = ["what", "at most", "p50 ms", "x no webhook", "x fast webhook"]
    return Table("A send with a webhook", header, rows)


def _ratio(p50s: list[float], base: list[float]) -> float:
    """Return the median of the rounds' ratios: a busy machine affects both values of a round."""
    return statistics.median(p50 / base_p50 for p50, base_p50 in zip(p50s, base, strict=True))


async def _run_rounds(port: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    async with _receiver(SLOW_SECONDS) as slow, _receiver(0) as fast:
        loads: dict[str, Callable[[], Requests]] = {
            NO_WEBHOOK: lambda: send_requests(SKILL, text="hello"),
            BESIDE_SLOW: lambda: send_requests(SKILL, text="hello"),
            SLOW_WEBHOOK: lambda: send_requests_with_webhook(slow, SKILL),
            FAST_WEBHOOK: lambda: send_requests_with_webhook(fast, SKILL),
        }
        latencies: dict[str, list[float]] = {what: [] for what in loads}
        for requests in loads.values():  # warm up
            await _measure_p50(port, requests(), seconds)
        for _ in range(rounds):
            for what, requests in loads.items():
                if what == BESIDE_SLOW:  # keep slow deliveries under way
                    await _measure_p50(port, send_requests_with_webhook(slow, SKILL), 60, limit=100)
                latencies[what].append(await _measure_p50(port, requests(), seconds))
        return latencies


async def _measure_p50(
    port: int, requests: Requests, seconds: float, *, limit: int = 1_000_000
) -> float:
    tally = await run_load(Load(port, requests, b"completed", seconds=seconds, limit=limit))
    if tally.failures:
        raise ServerFailed(tally.failures[0])
    return percentile(tally.latencies, 0.5)


@asynccontextmanager
async def _receiver(seconds: float) -> AsyncIterator[str]:
    """Run a receiver that answers after *seconds*; yield its URL."""

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
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener
