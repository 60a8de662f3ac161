"""Servers under load: shut down while busy, and serving very slow readers."""

import asyncio
import json
import random
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import quantiles
from typing import Any, ClassVar, cast

import h11
import httpx
import pytest
from apcore_a2a_core import InputRequiredError
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.middleware import RateLimiter
from apcore_a2a_server.store import TaskRecord

from tests.facade.processes import (
    COMMAND,
    PATIENCE,
    Process,
    agent_client,
    extensions,
    process,
    serve_command,
)

from .checking_client import ROUTES, Agent, Answer, Json, state_of
from .conftest import eventually
from .inloop import DIALECTS, always, serving, wait_until
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs, Module
from .test_serve import SERVER_SHUTDOWN, BackgroundRequest, last_state

MODULES = {
    "count.py": """
import asyncio
from pydantic import BaseModel

class Nothing(BaseModel):
    text: str = ""

class Count:
    description = "Streams ten chunks over 0.3 s, longer than a hasty shutdown"
    input_schema = Nothing
    output_schema = Nothing

    async def stream(self, inputs, context):
        for number in range(10):
            await asyncio.sleep(0.03)
            yield {"text": str(number)}

    async def execute(self, inputs, context):
        return {"text": "not streamed"}
""",
    "hang.py": """
import time
from pydantic import BaseModel

class Nothing(BaseModel):
    text: str = ""

class Hang:
    description = "Hangs in its thread"
    input_schema = Nothing
    output_schema = Nothing

    def execute(self, inputs, context):
        time.sleep(600)
""",
    "flood.py": """
import asyncio
from pydantic import BaseModel

class Chunks(BaseModel):
    text: str = ""

class Flood:
    description = "Streams a lot, and does not end"
    input_schema = Chunks
    output_schema = Chunks

    async def stream(self, inputs, context):
        for number in range(5):
            yield {"text": "x" * 100_000}
        await asyncio.Event().wait()

    async def execute(self, inputs, context):
        return {"text": "not streamed"}
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = extensions(tmp_path_factory.mktemp("load"), "echo.py", "nap.py")
    for name, text in MODULES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def request_of(url: str, dialect: str, operation: str, params: Json) -> httpx.Request:
    """Return the HTTP request that calls an operation."""
    agent = Agent(cast(Any, None), dialect)
    if not agent.restful:
        body = {"jsonrpc": "2.0", "id": 1, "method": agent.method(operation), "params": params}
        return httpx.Request("POST", url, json=body, headers=agent.headers)
    verb, path = ROUTES[operation]
    data = {name: item for name, item in params.items() if f"{{{name}}}" not in path}
    return httpx.Request(verb, url + path.format(**params), json=data if verb == "POST" else None)


def as_bytes(http: h11.Connection, request: httpx.Request) -> bytes:
    """Return a request as the bytes that are sent."""
    target, headers = request.url.raw_path, request.headers.raw
    head = h11.Request(method=request.method, target=target, headers=headers)
    events = (head, h11.Data(request.content), h11.EndOfMessage())
    return b"".join(http.send(event) or b"" for event in events)


class RawConnection:
    """A connection that distinguishes complete, partial and missing responses."""

    def __init__(self, url: str) -> None:
        self._url = httpx.URL(url)
        self._socket: socket.socket | None = None
        self._http = h11.Connection(h11.CLIENT)
        self.response_count = 0

    async def ask(self, request: httpx.Request) -> httpx.Response | None:
        """Return the whole response; None if the connection is refused or closed before it."""
        try:
            await self._send(request)
            response = await self._receive()
        except ConnectionError:  # before the first byte of the response
            response = None
        if response is None or self._http.our_state is not h11.DONE:
            self.close()
        else:
            self._http.start_next_cycle()
        self.response_count += response is not None
        return response

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._http = None, h11.Connection(h11.CLIENT)

    async def _send(self, request: httpx.Request) -> None:
        loop = asyncio.get_running_loop()
        if self._socket is None:
            self._socket = socket.socket()
            self._socket.setblocking(False)
            await loop.sock_connect(self._socket, (self._url.host, self._url.port))
        await loop.sock_sendall(self._socket, as_bytes(self._http, request))

    async def _receive(self) -> httpx.Response | None:
        head, body, has_begun = None, bytearray(), False
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                assert event is h11.NEED_DATA
                data = await self._read(has_begun)
                if not data:
                    return None
                has_begun = True
                self._http.receive_data(data)
        assert head is not None
        assert self._http.trailing_data[0] == b""
        return httpx.Response(
            head.status_code, headers=head.headers.raw_items(), content=bytes(body)
        )

    async def _read(self, has_begun: bool) -> bytes:
        """Read more bytes; return b"" at the end, which is an error within a response."""
        assert self._socket is not None
        try:
            data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        except ConnectionResetError:
            data = b""
        assert data or not has_begun, "the connection was closed in the middle of an answer"
        return data


# Shutdown of a busy server

SERVE_AND_REPORT = """
import asyncio, json, sys
from apcore_a2a_server import InMemoryTaskStore, serve
from apcore_a2a_core.states import NAMES
store = InMemoryTaskStore()
serve(sys.argv[1], task_store=store, **json.loads(sys.argv[2]))
ends = {}
for record in asyncio.run(store.list(limit=100_000)).records:
    status = record.task.status
    parts = status.message.parts if status.message else []
    ends[record.task.id] = [NAMES[status.state], *(part.text for part in parts)]
with open(sys.argv[3], "w") as file:
    json.dump(ends, file)
"""

CLIENTS, ROUNDS = 32, 20
KINDS = {"held": 10.0, "free": 10.0, "hasty": 0.02}
"""The `shutdown_timeout` in seconds of each kind of round."""
ENDED = ("completed", "failed", "canceled", "rejected")
COMPLETE = ["completed"]
CUT_OFF = ["failed", SERVER_SHUTDOWN]


@dataclass
class Load:
    """The shared state of the clients of one server."""

    url: str
    kind: str
    random: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: list[str] = field(default_factory=list)
    signalled: bool = False
    clients_ended: bool = False

    @property
    def may_disconnect(self) -> bool:
        """Whether the server may close a connection on which it has already responded."""
        return self.signalled and (self.clients_ended or self.kind != "held")

    def count_end(self, operation: str, end: list[str]) -> None:
        """Count the end of an operation's task, and check that it is allowed."""
        assert end == COMPLETE or (self.kind == "hasty" and end == CUT_OFF and self.signalled), end
        self.counts[f"{operation} {end[0]}"] += 1


def end_of(event: Json) -> list[str]:
    """Return the state of a task or status event, and the texts of its message."""
    body = event if "status" in event else next(iter(event.values()))
    parts = body["status"].get("message", {"parts": []})["parts"]
    return [state_of(body), *(part["text"] for part in parts)]


class Client:
    """A client that sends one request after another on a persistent connection."""

    def __init__(self, load: Load, dialect: str) -> None:
        self._load = load
        self._agent = Agent(cast(Any, None), dialect)
        self._connection = RawConnection(load.url)

    async def work(self) -> None:
        """Send requests until the server refuses them, then try a new connection."""
        while await self._load.random.choice((self.send, self.start, self.stream))():
            continue
        self.close()
        response = await self._connection.ask(self._request("send", self._params("echo")))
        assert self._load.signalled
        assert response is None or self._is_refused(response)

    async def send(self) -> bool:
        """Send a blocking message and check the end of its task."""
        skill = self._load.random.choice(("echo", "nap"))
        answer = await self.ask("send", self._params(skill))
        if answer is not None:
            self._acknowledge(answer.task)
            self._load.count_end("send", end_of(answer.task))
        return answer is not None

    async def start(self) -> bool:
        """Send a non-blocking message and poll its task until it has ended."""
        answer = await self.start_nap(0.05)
        while answer is not None and answer.state not in ENDED:
            answer = await self.ask("get", {"id": answer.task["id"]})
        if answer is not None:
            self._load.count_end("start", end_of(answer.task))
        return answer is not None

    async def stream(self) -> bool:
        """Send a message, read its stream to the end and check it."""
        answer = await self.ask("stream", self._params("count"))
        if answer is None:
            return False
        ids = [
            int(number) for number in re.findall("^id: (.*)$", answer.response.text, re.MULTILINE)
        ]
        assert answer.response.text.endswith("\n\n")
        assert ids == [*range(1, len(answer.events) + 1)]
        self._acknowledge(answer.events[0].get("task") or answer.events[0])
        end = end_of(answer.events[-1])
        assert len(ids) == 13 or end == CUT_OFF
        self._load.count_end("stream", end)
        return True

    async def start_nap(self, seconds: float) -> Answer | None:
        """Start a task that runs for *seconds* without waiting for it."""
        options = {"returnImmediately": True} if self._agent.modern else {"blocking": False}
        params = {**self._params("nap", seconds), "configuration": options}
        answer = await self.ask("send", params)
        if answer is not None:
            self._acknowledge(answer.task)
        return answer

    async def ask(self, operation: str, params: Json) -> Answer | None:
        """Return the response; None if the server refuses the request during shutdown."""
        response = await self._connection.ask(self._request(operation, params))
        if response is None:
            assert self._load.signalled
            assert self._load.may_disconnect or not self._connection.response_count
            self._load.counts["closed"] += 1
            return None
        if self._is_refused(response):
            assert self._load.signalled
            assert operation != "get"
            self._load.counts["refused"] += 1
            return None
        answer = Answer(response, self._agent.restful)
        assert response.status_code == 200, response.text
        answer.check()
        return answer

    def close(self) -> None:
        self._connection.close()

    def _acknowledge(self, task: Json) -> None:
        self._load.acknowledged.append(task["id"])

    def _is_refused(self, response: httpx.Response) -> bool:
        if response.status_code != 503:
            return False
        assert response.json()["error"]["code"] == (503 if self._agent.restful else -32029)
        assert response.headers["retry-after"].isdigit()
        assert response.headers["connection"] == "close"
        return True

    def _params(self, skill: str, seconds: float = 0.05) -> Json:
        data = {"seconds": seconds} if skill == "nap" else {"text": "hello"}
        return self._agent.params(skill, self._agent.part(data=data))

    def _request(self, operation: str, params: Json) -> httpx.Request:
        return request_of(self._load.url, self._agent.dialect, operation, params)


async def run_clients(load: Load, agent: Process) -> None:
    """Run all clients, and shut *agent* down while they run."""
    async with asyncio.timeout(PATIENCE):
        with ExitStack() as stack:
            dialects = [DIALECTS[number % len(DIALECTS)] for number in range(CLIENTS + 1)]
            holder, *clients = [
                stack.enter_context(closing(Client(load, dialect))) for dialect in dialects
            ]
            held = await holder.start_nap(600) if load.kind == "held" else None
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.work())
                await asyncio.sleep(load.random.uniform(0.05, 0.6))
                load.signalled = True
                agent.signal(signal.SIGTERM)
            load.clients_ended = True
            if held is not None:
                canceled = await holder.ask("cancel", {"id": held.task["id"]})
                assert canceled is not None
                load.counts[canceled.state] += 1


def run_round(number: int, folder: Path, home: Path) -> Counter[str]:
    """Run one round and return the counts of what its clients have seen."""
    kind = [*KINDS][number % len(KINDS)]
    options = json.dumps({"host": "127.0.0.1", "port": 0, "shutdown_timeout": KINDS[kind]})
    report = home / f"{number}.json"
    command = [sys.executable, "-c", SERVE_AND_REPORT, str(folder), options, str(report)]
    with process(command, home) as agent:
        agent.wait_for_card(agent.url)
        load = Load(agent.url, kind, random.Random(number))
        try:
            asyncio.run(run_clients(load, agent))
            assert agent.end() == 0
            assert not re.search("WARNING|ERROR|Traceback", agent.log)
            check_ends(load, json.loads(report.read_text(encoding="utf-8")))
        except Exception as error:  # re-raised with a note
            error.add_note(f"in round {number} ({kind}): {load.counts} {agent.log}")
            raise
    return load.counts


def check_ends(load: Load, ends: dict[str, list[str]]) -> None:
    """Compare the final contents of the store with what clients have seen."""
    assert {*load.acknowledged} <= {*ends}
    counts = Counter(tuple(end) for end in ends.values())
    assert counts.pop(("canceled", "Canceled by client"), 0) == load.counts["canceled"]
    assert {*counts} <= {tuple(COMPLETE), *([tuple(CUT_OFF)] if load.kind == "hasty" else [])}


@pytest.mark.process
@pytest.mark.soak
def test_the_shutdown_of_a_busy_server_loses_no_acknowledged_task(
    folder: Path, tmp_path: Path
) -> None:
    """Run twenty rounds; `Client` checks the responses, `check_ends` the store.

    Blocking requests get a complete response: a task that has ended, or a stream with its final
    event. Late requests are refused with 503, or their connection is closed without a byte.
    Before the signal, no request is refused and no persistent connection is closed.

    Whether a polling client sees the end of a task depends on the other tasks: when none is
    running, the server closes idle connections. So in *held* rounds, one task runs until all
    others are known to have ended, and is then canceled. In *free* rounds, polls may be cut off;
    in *hasty* rounds, tasks have hardly any time to finish. In all rounds, the store has the end
    of every acknowledged task.
    """
    with ThreadPoolExecutor(2) as pool:
        rounds = pool.map(lambda number: run_round(number, folder, tmp_path), range(ROUNDS))
        counts = sum(rounds, Counter[str]())
    assert {*counts} >= {"send completed", "start completed", "stream completed", "stream failed"}
    assert {*counts} >= {"refused", "closed", "canceled"}


def serve_commands(folder: Path, seconds: float) -> dict[str, list[str]]:
    """Return the commands that serve *folder* with this `shutdown_timeout`."""
    options = ["--extensions-dir", str(folder), "--host", "127.0.0.1", "--port", "0"]
    return {
        "serve()": serve_command(folder, shutdown_timeout=seconds),
        "the command": [*COMMAND, "serve", *options, "--shutdown-timeout", str(seconds)],
    }


@contextmanager
def hanging(process: Process) -> Iterator[BackgroundRequest]:
    """Open the stream of a module that hangs in its thread."""
    with agent_client(process) as agent, agent_client(process) as other:
        stream_request = BackgroundRequest(lambda: agent.stream("hang", agent.part(data={})))
        eventually(lambda: other.ask("list").result["tasks"])
        yield stream_request


@pytest.mark.process
@pytest.mark.parametrize("started_by", ["serve()", "the command"])
def test_a_module_that_hangs_in_its_thread_does_not_block_the_shutdown(
    started_by: str, folder: Path, tmp_path: Path
) -> None:
    with (
        process(serve_commands(folder, 1)[started_by], tmp_path) as agent,
        hanging(agent) as stream,
    ):
        assert agent.end(signal.SIGTERM) == 0
        assert last_state(stream.answer) == ("failed", SERVER_SHUTDOWN)


@pytest.mark.process
@pytest.mark.parametrize("started_by", ["serve()", "the command"])
def test_a_second_signal_ends_a_server_with_a_hanging_module_at_once(
    started_by: str, folder: Path, tmp_path: Path
) -> None:
    with (
        process(serve_commands(folder, 600)[started_by], tmp_path) as agent,
        hanging(agent) as stream,
    ):
        agent.signal(signal.SIGTERM)
        agent.wait_for("(Ctrl.C again)")
        time.sleep(0.2)  # right after the first, a second signal counts as its repetition

        assert agent.end(signal.SIGTERM) == 0
        assert last_state(stream.answer) == ("failed", SERVER_SHUTDOWN)


class BlockingPreflight(Module):
    """A module that asks for more input and whose preflight blocks until the test releases it."""

    input_schema: ClassVar[Any] = {"type": "object"}

    def __init__(self) -> None:
        self.checking, self.released = threading.Event(), threading.Event()

    def preflight(self, inputs: Inputs, context: Any) -> list[str]:
        self.checking.set()
        self.released.wait(PATIENCE)
        return []

    async def execute(self, inputs: Inputs, context: Any) -> Inputs:
        if "more" not in inputs:
            raise InputRequiredError("What more?")
        await asyncio.sleep(0.1)
        return inputs


@pytest.mark.anyio
async def test_an_answer_during_shutdown_is_refused_or_may_finish() -> None:
    module = BlockingPreflight()
    module.released.set()
    async with serving({"work": module}, shutdown_timeout=PATIENCE) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        assert state_of(task) == "input-required"
        module.checking.clear()
        module.released.clear()
        more = peer.part(data={"more": 1})
        answering = asyncio.create_task(peer.send("work", more, taskId=task["id"]))
        await asyncio.to_thread(module.checking.wait)
        draining = asyncio.create_task(peer.agent.drain())
        ended, _ = await asyncio.wait({draining}, timeout=0.1)
        module.released.set()
        answer = await answering
        assert answer.code == -32029 or (answer.state == "completed" and not ended)
        await draining


@pytest.mark.anyio
async def test_a_call_that_waits_for_its_rate_limit_is_refused_if_a_shutdown_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def count_use(limiter: RateLimiter, *key: str) -> int:
        asked.set()
        await answered.wait()  # a storage that replicas share
        return 0

    monkeypatch.setattr(RateLimiter, "count_use", count_use)
    async with serving({"work": always({})}, skill_rate_limit="9/minute") as peer:
        sending = asyncio.create_task(peer.send())
        await asked.wait()
        await peer.agent.drain()
        answered.set()
        answer = await sending
        assert answer.code == -32029
        assert "shutting down" in str(answer.body)


class StalledStore(InMemoryTaskStore):
    """A store that saves nothing until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def save(self, record: TaskRecord) -> None:
        await self.released.wait()
        await super().save(record)


@pytest.mark.anyio
async def test_a_store_that_stalls_does_not_block_the_shutdown() -> None:
    modules, store = {"work": always({})}, StalledStore()
    async with serving(modules, task_store=store, shutdown_timeout=0.1) as peer:
        sends = [asyncio.create_task(peer.send()) for _ in range(8)]
        await wait_until(lambda: len(peer.agent.engine.runs) == len(sends))
        draining = asyncio.create_task(peer.agent.drain())
        await draining  # although no task is stored yet
        store.released.set()
        await asyncio.gather(*sends)


# Slow readers

READERS, SENDS, PAIRS = 200, 100, range(8, 24)
"""The number of slow readers, of sends per measurement, and of pairs of measurements."""


class SlowReader:
    """A client that reads a stream byte by byte."""

    def __init__(self) -> None:
        self.received = bytearray()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # As over a network; on loopback the kernel would buffer megabytes.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        self._socket.setblocking(False)

    async def open(self, url: httpx.URL, request: bytes) -> None:
        """Open the stream and wait for its first byte."""
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, (url.host, url.port))
        await loop.sock_sendall(self._socket, request)
        self.received += await loop.sock_recv(self._socket, 1)

    def read(self) -> None:
        self.received += self._socket.recv(1)

    def close(self) -> None:
        self._socket.close()


async def read_slowly(readers: list[SlowReader]) -> None:
    """Read one byte per second with each reader."""
    while True:
        for reader in readers:
            await asyncio.sleep(1 / len(readers))
            reader.read()


async def p95(url: str) -> float:
    """Return the 95th percentile in seconds of the durations of consecutive sends to *url*."""
    agent = Agent(cast(Any, None), "1.0")
    params = agent.params("echo", agent.part(data={"text": "hello"}))
    request, durations = request_of(url, "1.0", "send", params), list[float]()
    with closing(RawConnection(url)) as connection:
        for _ in range(SENDS):
            started_at = time.perf_counter()
            response = await connection.ask(request)
            durations.append(time.perf_counter() - started_at)
            assert response is not None
            assert response.status_code == 200
    return quantiles(durations, n=20)[-1]


@asynccontextmanager
async def slow_readers(url: str) -> AsyncIterator[None]:
    """Keep as many slow readers connected as the server allows streams."""
    agent = Agent(cast(Any, None), "1.0")
    request = request_of(url, "1.0", "stream", agent.params("flood", agent.part(data={})))
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(SlowReader())) for _ in range(READERS)]
        raw = as_bytes(h11.Connection(h11.CLIENT), request)
        await asyncio.gather(*(reader.open(httpx.URL(url), raw) for reader in readers))
        reading = asyncio.ensure_future(read_slowly(readers))
        await wait_until(lambda: len(readers[-1].received) > 1)
        yield
        one_more = await stack.enter_context(closing(RawConnection(url))).ask(request)
        assert one_more is not None
        assert one_more.status_code == 429, "the readers are disconnected"
        assert not reading.done()
        reading.cancel()
        status_line = b"HTTP/1.1 200 OK"
        assert all(
            status_line.startswith(reader.received[: len(status_line)]) for reader in readers
        )


async def compare(busy: str, quiet: str) -> tuple[float, float]:
    """Measure a server with slow readers and one without in turns; return the best p95 of each."""
    busy_p95 = quiet_p95 = inf
    async with asyncio.timeout(2 * PATIENCE), slow_readers(busy):
        for pair in range(1, PAIRS.stop):
            busy_p95 = min(busy_p95, await p95(busy))
            quiet_p95 = min(quiet_p95, await p95(quiet))
            if pair >= PAIRS.start and busy_p95 <= 1.2 * quiet_p95:
                break
    return busy_p95, quiet_p95


@pytest.mark.process
@pytest.mark.clock
def test_very_slow_readers_do_not_slow_down_other_clients(folder: Path, tmp_path: Path) -> None:
    """Measurements are noisy: each figure is the best of at least eight, taken in turns."""
    limits = {"max_streams_per_client": READERS, "client_share": None}
    options: Any = {"max_streams": READERS, "limits": limits}
    with (
        process(serve_command(folder, **options), tmp_path) as busy,
        process(serve_command(folder, **options), tmp_path) as quiet,
    ):
        for agent in (busy, quiet):
            agent.wait_for_card(agent.url)
        busy_p95, quiet_p95 = asyncio.run(compare(busy.url, quiet.url))
    assert busy_p95 <= 1.2 * quiet_p95
