"""Measurements without a network: calls of apcore, a store, building an application, open streams.

Each ``measure_*`` function runs this module in a new process, which prints the result as JSON.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from typing import Any

from tools.benchmarks import messages
from tools.benchmarks.child import loop_factory, resident_bytes
from tools.benchmarks.figures import Figures, percentile
from tools.benchmarks.servers import ServerFailed, output_of

_LIMIT = 120.0  # seconds


def measure_direct(loop: str, calls: int) -> Figures:
    """Measure ``Executor.call_async`` with the no-op module.

    Raises:
        ServerFailed: apcore cannot be called.
    """
    return Figures(**_run_new_process(["direct", "--loop", loop, "--count", str(calls)]))


def measure_store(loop: str, address: str, callers: int, seconds: float) -> dict[str, float]:
    """Measure creating and completing tasks in the store at *address*.

    Raises:
        ServerFailed: The store could not be used.
    """
    options = ["--address", address, "--count", str(callers), "--seconds", str(seconds)]
    return _run_new_process(["store", "--loop", loop, *options])


def measure_card(modules: int) -> float:
    """Return the seconds to create an application of *modules* modules and get its Agent Card.

    Raises:
        ServerFailed: The application could not be built.
    """
    return float(_run_new_process(["card", "--count", str(modules)])["seconds"])


def measure_create() -> float:
    """Return the seconds of a process's first ``create_app``, without imports.

    Raises:
        ServerFailed: The application could not be built.
    """
    return float(_run_new_process(["create", "--count", "1"])["seconds"])


def measure_streams(count: int) -> float:
    """Return the bytes of resident memory for each of *count* open streams, without sockets.

    The memory of the streams' running tasks is included.

    Raises:
        ServerFailed: A stream could not be opened.
    """
    return float(_run_new_process(["streams", "--count", str(count)])["bytes"])


def measure_events(count: int, seconds: float) -> float:
    """Return the CPU seconds of one event, with *count* open streams, without sockets.

    Each stream has an event every second, for *seconds* seconds.

    Raises:
        ServerFailed: A stream could not be opened.
    """
    options = ["--count", str(count), "--seconds", str(seconds), "--loop", "uvloop"]
    return float(_run_new_process(["events", *options])["cpu"])


def _run_new_process(arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.benchmarks.inprocess", *arguments]
    result: dict[str, Any] = json.loads(output_of(command, _LIMIT).splitlines()[-1])
    return result


async def _measure_calls(calls: int) -> dict[str, float]:
    from apcore import Executor

    from tools.benchmarks.modules import registry

    executor = Executor(registry())
    for _ in range(50):
        await executor.call_async("bench.noop", {"text": "hello"})
    latencies: list[float] = []
    started, cpu = time.monotonic(), time.process_time()
    for _ in range(calls):
        call_started = time.monotonic()
        await executor.call_async("bench.noop", {"text": "hello"})
        latencies.append(time.monotonic() - call_started)
    return {
        "answers": calls,
        "rate": calls / (time.monotonic() - started),
        "cpu": (time.process_time() - cpu) / calls,
        "p50": percentile(latencies, 0.5),
        "p99": percentile(latencies, 0.99),
    }


async def _measure_store(address: str, callers: int, seconds: float) -> dict[str, float]:
    """Run *callers* loops, each of which creates and completes one task after another."""
    from apcore_a2a_server.store import open_store

    store = open_store(address)
    await store.start()
    latencies: list[float] = []
    await asyncio.gather(*(_create_and_complete(store) for _ in range(callers)))
    started, cpu = time.monotonic(), time.process_time()

    async def call() -> None:
        while (call_started := time.monotonic()) < started + seconds:
            await _create_and_complete(store)
            latencies.append(time.monotonic() - call_started)

    await asyncio.gather(*(call() for _ in range(callers)))
    elapsed, cpu = time.monotonic() - started, time.process_time() - cpu
    await store.close()
    return {
        "rate": len(latencies) / elapsed,
        "cpu": cpu / len(latencies),
        "p50": percentile(latencies, 0.5),
        "p95": percentile(latencies, 0.95),
    }


async def _create_and_complete(store: Any) -> None:
    """Write what a server writes for a message: a running task, its artifact and its end."""
    from apcore_a2a_core.states import COMPLETED
    from apcore_a2a_server.engine.messages import new_id
    from apcore_a2a_server.store.testing.samples import (
        begun,
        chunk_change,
        new_record,
        state_change,
    )
    from msgspec.structs import replace

    task_id = new_id()
    record, lease = await begun(store, new_record(task_id, context_id=task_id))
    artifact = chunk_change(record, "hello")
    end = state_change(artifact.record, COMPLETED)
    events = [*artifact.events, *end.events]
    await store.change(replace(end, base=record.version, events=events, lease=lease))


async def _measure_card(modules: int) -> dict[str, float]:
    from apcore_a2a_server import create_app

    from tools.benchmarks.modules import registry

    await _first_card(create_app(registry()))
    modules_registry = registry(extra=modules - 3)
    started = time.monotonic()
    card = await _first_card(create_app(modules_registry))
    seconds = time.monotonic() - started
    skills = json.loads(card)["skills"]
    if len(skills) != modules:
        raise SystemExit(f"{len(skills)} skills instead of {modules}")
    return {"seconds": seconds}


async def _measure_create(_: int) -> dict[str, float]:
    from apcore_a2a_server import create_app

    from tools.benchmarks.modules import registry

    modules = registry()
    started = time.monotonic()
    create_app(modules)
    return {"seconds": time.monotonic() - started}


async def _measure_streams(count: int) -> dict[str, float]:
    """Open a hundred streams, then measure the memory that *count* more add."""
    warm_up = 100
    app = _app_for_streams(count + warm_up)
    async with app.router.lifespan_context(app):
        streams = _Streams(app, pause=3600.0)
        await streams.open(warm_up)
        gc.collect()
        bytes_before = resident_bytes()
        await streams.open(count)
        gc.collect()
        growth = resident_bytes() - bytes_before
        await streams.close()
    return {"bytes": growth / count}


async def _measure_events(count: int, seconds: float) -> dict[str, float]:
    """Measure events of *count* open streams, with the garbage collector set up as in `serve`."""
    from apcore_a2a_server.app.serve import YOUNG_OBJECTS

    app = _app_for_streams(count)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    async with app.router.lifespan_context(app):
        streams = _Streams(app, pause=1.0)
        await streams.open(count)
        await asyncio.sleep(1.0)
        events, cpu = streams.events, time.process_time()
        await asyncio.sleep(seconds)
        events, cpu = streams.events - events, time.process_time() - cpu
        await streams.close()
    return {"cpu": cpu / events}


def _app_for_streams(count: int) -> Any:
    """Build an application that lets a single client open *count* streams."""
    from apcore_a2a_server import Limits, create_app

    from tools.benchmarks.modules import registry

    limits = Limits(max_streams_per_client=count, client_share=1.0)
    return create_app(
        registry(), limits=limits, max_streams=count, max_runs=count, shutdown_timeout=0.0
    )


class _Streams:
    """Streams of an application, without sockets.

    Args:
        app: The application.
        pause: Seconds between the events of a stream.

    Attributes:
        events: The number of events so far.
    """

    def __init__(self, app: Any, pause: float) -> None:
        self.events = 0
        self._app = app
        self._requests = messages.stream_requests("bench.chunks", count=1000.0, pause=pause)
        self._disconnect = asyncio.Event()
        self._streams: list[asyncio.Task[None]] = []

    async def open(self, count: int) -> None:
        """Open streams one after the other; wait for the first event of each."""
        for _ in range(count):
            self._streams.append(await self._open(next(self._requests)))

    async def close(self) -> None:
        """Cancel all streams."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.wait(self._streams)

    async def _open(self, request: bytes) -> "asyncio.Task[None]":
        from tools.benchmarks.instructions import asgi_request

        scope, body = asgi_request(request)
        received = [{"type": "http.request", "body": body, "more_body": False}]
        # a Future and a shared `_disconnect`, because an asyncio.Event adds 0.7 KB to each stream
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def receive() -> Any:
            return received.pop() if received else await self._disconnect.wait()

        async def send(message: Any) -> None:
            if b'"at"' in message.get("body", b""):
                self.events += 1
                if not first.done():
                    first.set_result(None)

        stream = asyncio.create_task(self._app(scope, receive, send))
        await asyncio.wait([stream, first], return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            raise ServerFailed("a stream ended before its first event")
        return stream


async def _first_card(app: Any) -> bytes:
    """Start the application as a server would, and return the JSON of its card."""
    import httpx

    from tools.benchmarks.apps import CARD_PATH

    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        return (await client.get(CARD_PATH)).raise_for_status().content


def main() -> None:
    """Run one measurement and print its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "measurement", choices=["direct", "card", "store", "create", "streams", "events"]
    )
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--address", default="memory")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    measures = {
        "direct": lambda: _measure_calls(options.count),
        "card": lambda: _measure_card(options.count),
        "create": lambda: _measure_create(options.count),
        "streams": lambda: _measure_streams(options.count),
        "events": lambda: _measure_events(options.count, options.seconds),
        "store": lambda: _measure_store(options.address, options.count, options.seconds),
    }
    with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
        print(json.dumps(runner.run(measures[options.measurement]())))


if __name__ == "__main__":
    main()
