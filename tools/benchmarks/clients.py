"""Benchmark of clients: import time and CPU of a call, compared with httpx alone and a2a-sdk.

All clients are measured in the same run. Between runs, compare the ratios, not the times.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_data_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest
from apcore_a2a_client import A2AClient

from tools.benchmarks.report import Table
from tools.benchmarks.servers import ServerFailed
from tools.benchmarks.startup import serving

Call = Callable[[], Awaitable[object]]

IMPORTS = ("apcore_a2a_client", "a2a.client")
IMPORT_LIMIT = 1.25
"""Longest import time of our client, in multiples of `import httpx`."""
SKILL, INPUT = "text.stats", {"text": "hello"}
IMPORT_SCRIPT = """
import sys, time
if {base!r} == "httpx":
    sys.modules["click"] = None  # otherwise httpx imports its command line, too
begin = time.process_time()
import {base}
middle = time.process_time()
import {module}
print(middle - begin, time.process_time() - begin)
"""


def measure(*, quick: bool) -> list[Table]:
    """Measure the clients; return the tables.

    Raises:
        ServerFailed: The server did not start, or an import failed.
    """
    runs, calls = (5, 100) if quick else (25, 500)
    with serving() as (port, _):
        costs = asyncio.run(_costs(f"http://127.0.0.1:{port}", calls))
    return [_import_table(runs), _cost_table(costs)]


def measure_import(module: str, runs: int, base: str = "httpx") -> tuple[float, float]:
    """Return the CPU seconds to import *base* and *module*, and their ratio to *base* alone.

    The seconds are the minimum of *runs* processes with compiled bytecode, and the ratio is the
    median.
    """
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment = {**inherited, "PYTHONPYCACHEPREFIX": folder}
        for _ in range(runs + 1):  # the first run compiles
            code = IMPORT_SCRIPT.format(module=module, base=base)
            command = [sys.executable, "-c", code]
            result = subprocess.run(command, env=environment, capture_output=True, check=False)
            if result.returncode:
                raise ServerFailed(f"{module} cannot be imported")
            alone, both = map(float, result.stdout.split())
            samples.append((both, both / alone))
    seconds, ratios = zip(*samples[1:], strict=True)
    return min(seconds), statistics.median(ratios)


def _import_table(runs: int) -> Table:
    rows = []
    for module in IMPORTS:
        seconds, ratio = measure_import(module, runs)
        goal = f"at most {IMPORT_LIMIT}" if module == IMPORTS[0] else ""
        rows.append([f"import {module}", goal, f"{seconds * 1e3:.0f}", f"{ratio:.2f}"])
    return Table("Import", ["what", "goal", "CPU ms", "x import httpx"], rows)


def _cost_table(costs: dict[str, dict[str, float]]) -> Table:
    rows = [
        [operation, client, f"{seconds * 1e6:,.0f}", f"{seconds / by_client['httpx']:.2f}"]
        for operation, by_client in costs.items()
        for client, seconds in by_client.items()
    ]
    return Table("CPU of the client's process", ["what", "client", "us", "x httpx"], rows)


async def _costs(url: str, calls: int) -> dict[str, dict[str, float]]:
    """Return the CPU seconds of one call, by operation and by client; the best of three rounds."""
    async with _clients(url) as clients:
        costs: dict[str, dict[str, float]] = {}
        for _ in range(3):
            for operation, by_client in clients.items():
                for client, call in by_client.items():
                    seconds = await _cost(call, calls)
                    best = costs.setdefault(operation, {})
                    best[client] = min(best.get(client, seconds), seconds)
    return costs


async def _cost(call: Call, calls: int) -> float:
    for _ in range(5):
        await call()
    begin = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - begin) / calls


@asynccontextmanager
async def _clients(url: str) -> AsyncIterator[dict[str, dict[str, Call]]]:
    """Yield functions that send a message or get a task, by operation and by client."""
    http = httpx.AsyncClient()
    config = ClientConfig(streaming=False, httpx_client=http)
    sdk = await create_client(url, config)
    async with aclosing(http), A2AClient(url) as ours:
        task = await ours.send_message(INPUT, skill=SKILL)

        async def call_method(method: str, params: Any) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = await http.post(url, json=body, headers={"A2A-Version": "1.0"})
            return json.loads(answer.content)["result"]

        async def plain_send() -> Any:
            message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": INPUT}]}
            return await call_method(
                "SendMessage", {"message": message, "metadata": {"skillId": SKILL}}
            )

        async def sdk_send() -> object:
            message = new_data_message(INPUT, role=Role.ROLE_USER)
            request = SendMessageRequest(message=message)
            request.metadata["skillId"] = SKILL
            return [event async for event in sdk.send_message(request)]

        yield {
            "send": {
                "httpx": plain_send,
                "ours": lambda: ours.send_message(INPUT, skill=SKILL),
                "a2a-sdk": sdk_send,
            },
            "get": {
                "httpx": lambda: call_method("GetTask", {"id": task.id}),
                "ours": lambda: ours.get_task(task.id),
                "a2a-sdk": lambda: sdk.get_task(GetTaskRequest(id=task.id)),
            },
        }
