"""Instructions per request, counted by valgrind: load on the machine does not change the counts.

This module calls the application without a network, under `valgrind --tool=callgrind`.
The counts in `instructions.json` are a gate: a scenario fails if its count has grown by over 3 %.
Each set of counts is for one version of Python, one version of apcore, and one kind of processor.
"""

import asyncio
import gc
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any

from tools.benchmarks.servers import ROOT, ServerFailed, output_of

RECORD = Path(__file__).with_suffix(".json")
TOLERANCE = 0.03
"""Fraction by which the count of a scenario may exceed the recorded count."""
REQUESTS = 100
"""Number of requests that are counted for each scenario; a fifth of that for the long stream."""
CHUNKS = 50
"""Number of chunks by which the long stream exceeds the short one."""
LONG_STREAM = "long stream"
_LIMIT = 900.0  # seconds; valgrind makes the program some fifty times slower
_POLL = 0.02  # seconds


@dataclass(frozen=True, slots=True)
class Row:
    """The count of one scenario.

    Attributes:
        scenario: Its name.
        count: Instructions per request, or per chunk.
        recorded: The recorded count; None if there is none for this environment.
    """

    scenario: str
    count: int
    recorded: int | None

    @property
    def change(self) -> float | None:
        """The relative change from the recorded count; negative if the count is lower now."""
        return None if self.recorded is None else self.count / self.recorded - 1

    @property
    def is_over_tolerance(self) -> bool:
        """Whether the count exceeds the recorded count by more than the tolerance."""
        return self.recorded is not None and self.count > self.recorded * (1 + TOLERANCE)


def environment() -> str:
    """Return the name of the environment that the counts depend on."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"Python {python}, apcore {version('apcore')}, {platform.machine()}"


def measure(say: Callable[[str], None]) -> list[Row]:
    """Count the instructions of each scenario, and compare them with the record.

    Raises:
        ServerFailed: valgrind is not installed, or the program failed.
    """
    if shutil.which("valgrind") is None:
        raise ServerFailed("valgrind is not installed. On Debian and Ubuntu: apt install valgrind")
    say(f"counting instructions of up to {REQUESTS} requests per scenario takes about two minutes")
    with tempfile.TemporaryDirectory() as folder:
        counts = _count(Path(folder))
    recorded = _records().get(environment(), {})
    return [Row(name, count, recorded.get(name)) for name, count in counts.items()]


def record(rows: list[Row]) -> None:
    """Record the counts of this environment."""
    records = _records() | {environment(): {row.scenario: row.count for row in rows}}
    RECORD.write_text(json.dumps(records, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def text(rows: list[Row]) -> str:
    """Return a table of the counts."""
    lines = [environment(), f"{'instructions':28}{'now':>12}{'recorded':>12}{'change':>10}"]
    for row in rows:
        recorded = "" if row.recorded is None else f"{row.recorded:,}"
        change = "" if row.change is None else f"{row.change:+.1%}"
        remark = f"  more than {TOLERANCE:.0%}" if row.is_over_tolerance else ""
        lines.append(f"{row.scenario:28}{row.count:12,}{recorded:>12}{change:>10}{remark}")
    return "\n".join(lines)


def _records() -> dict[str, dict[str, int]]:
    records: dict[str, dict[str, int]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return records


def _count(folder: Path) -> dict[str, int]:
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    command += [
        f"--callgrind-out-file={folder}/out",
        sys.executable,
        "-m",
        "tools.benchmarks.instructions",
    ]
    # without random hashes, sets and dictionaries cost the same in each run
    variables = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    output = output_of(command, _LIMIT, variables)
    request_counts: dict[str, int] = json.loads(output.splitlines()[-1])
    totals = {path.suffix: _total(path) for path in folder.iterdir()}
    # callgrind numbers its dumps from 1, in the order of the scenarios
    counts = {
        name: totals[f".{dump}"] // count
        for dump, (name, count) in enumerate(request_counts.items(), 1)
    }
    counts["chunk"] = (counts.pop(LONG_STREAM) - counts["stream"]) // CHUNKS
    return counts


def _total(path: Path) -> int:
    total = re.search(r"^(?:summary|totals): (\d+)", path.read_text("utf-8", "replace"), re.M)
    if total is None:
        raise ServerFailed(f"callgrind's file {path.name} has no total")
    return int(total[1])


def _control(*options: str) -> None:
    """Give callgrind a command, and poll: callgrind acts only while this process is not blocked."""
    command = ["callgrind_control", *options, str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as control:
        while control.poll() is None:
            time.sleep(_POLL)
    if control.returncode:
        raise ServerFailed("callgrind_control failed")


async def _requests(app: Any) -> dict[str, Iterator[bytes]]:
    """Return the requests of each scenario."""
    from tools.benchmarks import messages
    from tools.benchmarks.apps import CARD_PATH
    from tools.benchmarks.http1 import get_request

    task = await _response_body(app, *asgi_request(next(messages.send_requests())))
    return {
        "send, 0.3": messages.send_requests(),
        "send, 1.0": messages.send_v1_requests(),
        "get": messages.get_task_requests([json.loads(task)["result"]["id"]]),
        "card": repeat(get_request(CARD_PATH)),
        "stream": messages.stream_requests("bench.chunks", count=1.0, pause=0.0),
        LONG_STREAM: messages.stream_requests("bench.chunks", count=1.0 + CHUNKS, pause=0.0),
    }


def asgi_request(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the ASGI scope and the body of an HTTP request."""
    head, _, body = data.partition(b"\r\n\r\n")
    (method, path, _), *lines = (line.split(b" ") for line in head.split(b"\r\n"))
    headers = [(name.rstrip(b":").lower(), b" ".join(value)) for name, *value in lines]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method.decode(),
        "path": path.decode(),
        "raw_path": path,
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    return scope, body


async def _response_body(app: Any, scope: dict[str, Any], body: bytes) -> bytes:
    """Pass a request to an ASGI application, and return the body of its response."""
    received, sent = [{"type": "http.request", "body": body, "more_body": False}], list[bytes]()

    async def receive() -> Any:
        return received.pop() if received else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise ServerFailed(f"{scope['path']} was answered with {message['status']}")
        sent.append(message.get("body", b""))

    await app(scope, receive, send)
    return b"".join(sent)


async def _run() -> dict[str, int]:
    from tools.benchmarks import apps

    app, request_counts = await apps.ours(), dict[str, int]()
    async with app.router.lifespan_context(app):
        scenarios = await _requests(app)
        for requests in scenarios.values():
            for _ in range(20):  # until caches are full and the interpreter has specialized
                await _response_body(app, *asgi_request(next(requests)))
        _control("--instr=on")
        for name, requests in scenarios.items():
            request_counts[name] = REQUESTS if name != LONG_STREAM else REQUESTS // 5
            prepared = [asgi_request(next(requests)) for _ in range(request_counts[name])]
            gc.collect()
            _control("--zero")
            for scope, body in prepared:
                await _response_body(app, scope, body)
            _control("--dump")
    return request_counts


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run())))
