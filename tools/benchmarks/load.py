"""The load generator: connections that send a request as soon as the previous one is answered."""

import asyncio
import gc
import re
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from tools.benchmarks.http1 import BadResponse, Response, ResponseParser

_GRACE = 20.0  # seconds that a load may take beyond its duration
_MAX_FAILURES = 20
_MIN_REQUESTS = 4  # per connection on average, even if they take longer than `seconds`
EVENT = b"data:"
"""Bytes in every SSE event with data."""
_TIMESTAMP = re.compile(rb'"at": ?([0-9.e+]+)')


@dataclass(frozen=True, slots=True)
class Load:
    """Connections that each send one request at a time; together they send at most `limit`."""

    port: int
    requests: Iterator[bytes]
    expect: bytes
    """Bytes that the body of a correct response contains."""
    connections: int = 1
    seconds: float = 60.0
    limit: int = 1_000_000
    keep: int = 0
    """How many of the last response bodies to keep."""
    timed_bytes: bytes = EVENT
    """Bytes whose first arrival in a stream is timed."""


@dataclass(slots=True)
class Tally:
    """Results of one load. Times are in seconds."""

    latencies: list[float] = field(default_factory=list)
    """From each request to the end of its response."""
    first_latencies: list[float] = field(default_factory=list)
    """From each request to the arrival of `timed_bytes` in its response."""
    deliveries: list[float] = field(default_factory=list)
    """From the time in each event's `at` to the event's arrival."""
    failures: list[str] = field(default_factory=list)
    bodies: deque[bytes] = field(default_factory=deque)
    elapsed: float = 0.0


class _Run:
    """The state that the connections of one load share."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.tally = Tally(bodies=deque(maxlen=load.keep))
        self.done = asyncio.Event()
        self._remaining = load.limit
        self._open_connections = load.connections
        self._until = time.monotonic() + load.seconds

    def next_request(self) -> bytes | None:
        if self._remaining <= 0 or (self._has_sent_enough() and time.monotonic() >= self._until):
            return None
        if len(self.tally.failures) >= _MAX_FAILURES:
            return None
        self._remaining -= 1
        return next(self.load.requests, None)

    def _has_sent_enough(self) -> bool:
        return self.load.limit - self._remaining >= _MIN_REQUESTS * self.load.connections

    def record_response(self, response: Response, seconds: float) -> None:
        if response.status != 200 or self.load.expect not in response.body:
            self.tally.failures.append(f"{response.status} {response.body[:300]!r}")
            return
        self.tally.latencies.append(seconds)
        if self.load.keep:
            self.tally.bodies.append(response.body)

    def record_closing(self) -> None:
        self._open_connections -= 1
        if not self._open_connections:
            self.done.set()


class _Connection(asyncio.Protocol):
    """One connection of a load."""

    _transport: asyncio.Transport

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._parser = ResponseParser()
        self._sent_at: float | None = None  # None: no request is in progress
        self._first_at = 0.0
        self._scanned_to = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self) -> None:
        request = self._run.next_request()
        if request is None:
            self._sent_at = None
            self._transport.close()
            return
        self._scanned_to = 0
        self._first_at = 0.0
        self._sent_at = time.monotonic()
        self._transport.write(request)

    def abort(self) -> None:
        self._sent_at = None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        try:
            response = self._parser.feed(data)
        except BadResponse as error:
            self._run.tally.failures.append(f"not HTTP: {error}")
            self.abort()
            return
        if self._parser.body:
            self._scan_events(now)
        if response is not None and self._sent_at is not None:
            self._run.record_response(response, now - self._sent_at)
            self.send()

    def _scan_events(self, now: float) -> None:
        """Search a stream for `timed_bytes`, and its new part for timestamps."""
        body, tally = self._parser.body, self._run.tally
        if not self._first_at and self._sent_at is not None and self._run.load.timed_bytes in body:
            self._first_at = now
            tally.first_latencies.append(now - self._sent_at)
        for stamp in _TIMESTAMP.finditer(body, self._scanned_to):
            tally.deliveries.append(now - float(stamp[1]))
            self._scanned_to = stamp.end()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sent_at is not None:
            self._run.tally.failures.append(f"connection lost: {exc}")
        self._run.record_closing()


async def run_load(load: Load) -> Tally:
    """Open all connections, then run the load on all of them at once.

    Raises:
        OSError: The server accepts no connections.
    """
    run = _Run(load)
    connections = await asyncio.gather(*(_connect(run) for _ in range(load.connections)))
    gc.collect()
    gc.disable()
    started = time.monotonic()
    try:
        for connection in connections:
            connection.send()
        await asyncio.wait_for(run.done.wait(), load.seconds + _GRACE)
    except TimeoutError:
        run.tally.failures.append(f"not finished after {load.seconds + _GRACE:.0f} s")
        for connection in connections:
            connection.abort()
    finally:
        gc.enable()
    run.tally.elapsed = time.monotonic() - started
    return run.tally


async def _connect(run: _Run) -> _Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: _Connection(run), "127.0.0.1", run.load.port
    )
    return connection
