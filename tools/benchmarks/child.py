"""One server in a process of its own, controlled by its standard input.

It prints ``{"port": ...}`` when it is up, and its state for each line that it reads. The line
``collect`` runs a garbage collection first, ``profile`` starts a profiler. The server stops when
its standard input ends, so that it never outlives the benchmark.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import os
import pstats
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import uvicorn

from tools.benchmarks.apps import APPS, ours
from tools.benchmarks.stored import StoreCalls, open_counting_store


def resident_bytes() -> int:
    """Return this process's resident memory; without /proc, its peak."""
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the event loop ``asyncio`` or ``uvloop``."""
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


def _state(calls: StoreCalls) -> dict[str, object]:
    tasks = Counter(getattr(t.get_coro(), "__qualname__", "?") for t in asyncio.all_tasks())
    figures = {"cpu": time.process_time(), "resident": resident_bytes(), "tasks": tasks}
    return {**figures, "writes": calls.writes, "reads": calls.reads}


class _Server(uvicorn.Server):
    """A server that reports its port, and then its state on request."""

    def __init__(self, config: uvicorn.Config, answers: TextIO, calls: StoreCalls) -> None:
        super().__init__(config)
        self._answers = answers
        self._calls = calls
        self._profiler = cProfile.Profile()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            self.report({"port": sockets[0].getsockname()[1]})

    def report(self, answer: dict[str, object]) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)

    async def answer_commands(self) -> None:
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
        )
        while command := await commands.readline():
            self._prepare(command.strip())
            self.report(_state(self._calls))
        self.should_exit = self.force_exit = True

    def _prepare(self, command: bytes) -> None:
        if command == b"collect":
            gc.collect()
        elif command == b"profile":
            self._profiler.enable()

    def report_hot_spots(self) -> None:
        """Print the functions that took most of the time, if the profiler was started."""
        self._profiler.disable()
        if self._profiler.getstats():
            stats = pstats.Stats(self._profiler, stream=self._answers)
            stats.sort_stats("tottime").print_stats(25)


def _listener() -> socket.socket:
    # asyncio turns off Nagle's algorithm only if the protocol is given.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    return listener


async def _serve(options: argparse.Namespace, answers: TextIO) -> None:
    calls = StoreCalls()
    app = await (
        ours(open_counting_store(options.store, calls)) if options.store else APPS[options.server]()
    )
    config = uvicorn.Config(
        app, http=options.http, ws="none", log_level="warning", access_log=False
    )
    server = _Server(config, answers, calls)
    listener = _listener()
    commands = asyncio.create_task(server.answer_commands())
    try:
        await server.serve(sockets=[listener])
    finally:
        commands.cancel()
        server.report_hot_spots()


def _take_stdout() -> TextIO:
    """Reserve standard output for answers; send the modules' output to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", choices=APPS)
    parser.add_argument("--http", choices=["h11", "httptools"], required=True)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], required=True)
    parser.add_argument(
        "--store", metavar="ADDRESS", help="address of the task store of this project's server"
    )
    options = parser.parse_args()
    answers = _take_stdout()
    with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
        runner.run(_serve(options, answers))


if __name__ == "__main__":
    main()
