"""A program that runs one server and reads commands from standard input, one per line.

It prints ``{"port": ...}`` when the server is up, and the server's state after each command. The
command ``collect`` runs a garbage collection, ``profile`` starts a profiler. The server stops when
standard input ends, so that it never outlives the benchmark.
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

from tools.benchmarks.apps import APPS, OUR_SERVERS, our_server, ours
from tools.benchmarks.measured_stores import StoreCalls, open_counting_store

_POLL = 0.01  # seconds


def resident_bytes() -> int:
    """Return this process's resident memory; without /proc, its peak."""
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of event loops; *name* is ``asyncio`` or ``uvloop``."""
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


def _state(calls: StoreCalls) -> dict[str, object]:
    tasks = Counter(getattr(t.get_coro(), "__qualname__", "?") for t in asyncio.all_tasks())
    figures = {"cpu": time.process_time(), "resident": resident_bytes(), "tasks": tasks}
    return {**figures, "writes": calls.writes, "reads": calls.reads}


class _Commands:
    """The commands on standard input, and the answers to them.

    Args:
        answers: The stream that the answers are written to.
        calls: The counted calls of the task store.
    """

    def __init__(self, answers: TextIO, calls: StoreCalls) -> None:
        self._answers = answers
        self._calls = calls
        self._profiler = cProfile.Profile()

    async def answer_all(self, server: uvicorn.Server, port: int) -> None:
        """Report the port when *server* is up, then answer commands until the input ends."""
        while not server.started:  # noqa: ASYNC110 - uvicorn sets no event
            await asyncio.sleep(_POLL)
        self._report({"port": port})
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
        )
        while command := await commands.readline():
            self._execute(command.strip())
            self._report(_state(self._calls))
        server.should_exit = server.force_exit = True

    def _report(self, answer: dict[str, object]) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)

    def _execute(self, command: bytes) -> None:
        if command == b"collect":
            gc.collect()
        elif command == b"profile":
            self._profiler.enable()

    def report_hot_spots(self) -> None:
        """Print the functions that took the most time, if the profiler was started."""
        self._profiler.disable()
        if self._profiler.getstats():
            stats = pstats.Stats(self._profiler, stream=self._answers)
            stats.sort_stats("tottime").print_stats(25)


def _listener() -> socket.socket:
    # asyncio turns off Nagle's algorithm only on sockets created with IPPROTO_TCP
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    return listener


async def _server(options: argparse.Namespace, calls: StoreCalls) -> uvicorn.Server:
    """Return the server; for this project's app with httptools, the one that `serve` runs."""
    store = open_counting_store(options.store, calls) if options.store else None
    if options.server in OUR_SERVERS and options.http == "httptools":
        return our_server(options.server, store)
    app = await (ours(store) if store else APPS[options.server]())
    config = uvicorn.Config(
        app, http=options.http, ws="none", log_level="warning", access_log=False
    )
    return uvicorn.Server(config)


async def _serve(options: argparse.Namespace, answers: TextIO) -> None:
    calls = StoreCalls()
    server, listener = await _server(options, calls), _listener()
    commands = _Commands(answers, calls)
    answering = asyncio.create_task(commands.answer_all(server, listener.getsockname()[1]))
    try:
        await server.serve(sockets=[listener])
    finally:
        answering.cancel()
        commands.report_hot_spots()


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
