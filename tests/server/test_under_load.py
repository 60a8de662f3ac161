"""Servers under load: ended in the middle of it, and read by clients that hardly read."""

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
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.modules import InputRequiredError
from apcore_a2a_server.store import TaskRecord

from tests.facade.processes import COMMAND, PATIENCE, Process, asking, extensions, process, served

from .asking import ROUTES, Agent, Answer, Json, state_of
from .conftest import eventually
from .inloop import WAYS, always, serving, true
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs, Module
from .test_serve import SERVER_SHUTDOWN, Watched, last_state

MODULES = {
    "count.py": """
import asyncio
from pydantic import BaseModel

class Nothing(BaseModel):
    text: str = ""

class Count:
    description = "Streams ten chunks over a tenth of a second"
    input_schema = Nothing
    output_schema = Nothing

    async def stream(self, inputs, context):
        for number in range(10):
            await asyncio.sleep(0.01)
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
    description = "Streams much, and does not end"
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
    found = extensions(tmp_path_factory.mktemp("load"), "echo.py", "nap.py")
    for name, text in MODULES.items():
        (found / name).write_text(text, encoding="utf-8")
    return found


def request_of(url: str, way: str, operation: str, params: Json) -> httpx.Request:
    """The HTTP request that asks for an operation."""
    agent = Agent(cast(Any, None), way)
    if not agent.restful:
        body = {"jsonrpc": "2.0", "id": 1, "method": agent.method(operation), "params": params}
        return httpx.Request("POST", url, json=body, headers=agent.headers)
    verb, path = ROUTES[operation]
    rest = {name: item for name, item in params.items() if f"{{{name}}}" not in path}
    return httpx.Request(verb, url + path.format(**params), json=rest if verb == "POST" else None)


def as_bytes(http: h11.Connection, request: httpx.Request) -> bytes:
    """A request as it goes over a connection."""
    target, headers = request.url.raw_path, request.headers.raw
    head = h11.Request(method=request.method, target=target, headers=headers)
    events = (head, h11.Data(request.content), h11.EndOfMessage())
    return b"".join(http.send(event) or b"" for event in events)


class Line:
    """A connection on which a whole answer, half of one and none at all are three things."""

    def __init__(self, url: str) -> None:
        self._url = httpx.URL(url)
        self._socket: socket.socket | None = None
        self._http = h11.Connection(h11.CLIENT)
        self.answers = 0

    async def ask(self, request: httpx.Request) -> httpx.Response | None:
        """The whole answer; None when the connection is refused, or closed without any of it."""
        try:
            await self._send(request)
            response = await self._receive()
        except ConnectionError:  # before the answer's first byte
            response = None
        if response is None or self._http.our_state is not h11.DONE:
            self.close()
        else:
            self._http.start_next_cycle()
        self.answers += response is not None
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
        head, body, begun = None, bytearray(), False
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                assert event is h11.NEED_DATA
                data = await self._read(begun)
                if not data:
                    return None
                begun = True
                self._http.receive_data(data)
        assert head is not None
        assert self._http.trailing_data[0] == b""
        return httpx.Response(
            head.status_code, headers=head.headers.raw_items(), content=bytes(body)
        )

    async def _read(self, begun: bool) -> bytes:
        """What comes next; b"" for the end, which within an answer is a fault."""
        assert self._socket is not None
        try:
            data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        except ConnectionResetError:
            data = b""
        assert data or not begun, "the connection was closed in the middle of an answer"
        return data


# The end of a server that is busy

SERVE_AND_TELL = """
import asyncio, json, sys
from apcore_a2a_server import InMemoryTaskStore, serve
from apcore_a2a_core.states import NAMES
store = InMemoryTaskStore()
serve(sys.argv[1], task_store=store, **json.loads(sys.argv[2]))
ends = {}
for record in asyncio.run(store.list(limit=100_000)).records:
    status = record.task.status
    ends[record.task.id] = [NAMES[status.state], *(part.text for part in status.message.parts)]
with open(sys.argv[3], "w") as file:
    json.dump(ends, file)
"""

CLIENTS, ROUNDS = 32, 20
KINDS = {"held": 10.0, "free": 10.0, "hasty": 0.02}
"""The `shutdown_timeout` of each kind of round."""
ENDED = ("completed", "failed", "canceled", "rejected")
FINE = ["completed"]
CUT = ["failed", SERVER_SHUTDOWN]


@dataclass
class Load:
    """What the clients of one server share."""

    url: str
    kind: str
    random: random.Random
    seen: Counter[str] = field(default_factory=Counter)
    acknowledged: list[str] = field(default_factory=list)
    signalled: bool = False
    released: bool = False

    @property
    def may_hang_up(self) -> bool:
        """Whether the server may close a connection that it has answered on before."""
        return self.signalled and (self.released or self.kind != "held")

    def note(self, what: str, end: list[str]) -> None:
        """Note how something has ended, and that it may end so."""
        assert end == FINE or (self.kind == "hasty" and end == CUT and self.signalled), end
        self.seen[f"{what} {end[0]}"] += 1


def end_of(event: Json) -> list[str]:
    """The state of a task or of an event of its status, and what it says."""
    body = event if "status" in event else next(iter(event.values()))
    parts = body["status"].get("message", {"parts": []})["parts"]
    return [state_of(body), *(part["text"] for part in parts)]


class Client:
    """A client that asks for one thing after the other, on a connection that it keeps."""

    def __init__(self, load: Load, way: str) -> None:
        self._load = load
        self._agent = Agent(cast(Any, None), way)
        self._line = Line(load.url)

    async def work(self) -> None:
        """Work until the server accepts no more, and look whether it does on a new connection."""
        while await self._load.random.choice((self.send, self.start, self.stream))():
            continue
        self.close()
        response = await self._line.ask(self._request("send", self._params("echo")))
        assert self._load.signalled
        assert response is None or self._is_refused(response)

    async def send(self) -> bool:
        """A message that is waited for."""
        skill = self._load.random.choice(("echo", "nap"))
        answer = await self.ask("send", self._params(skill))
        if answer is not None:
            self._acknowledge(answer.task)
            self._load.note("send", end_of(answer.task))
        return answer is not None

    async def start(self) -> bool:
        """A message that is not waited for; its task is looked at until it has ended."""
        answer = await self.hold(0.05)
        while answer is not None and answer.state not in ENDED:
            answer = await self.ask("get", {"id": answer.task["id"]})
        if answer is not None:
            self._load.note("start", end_of(answer.task))
        return answer is not None

    async def stream(self) -> bool:
        """A message whose stream is read to its end."""
        answer = await self.ask("stream", self._params("count"))
        if answer is None:
            return False
        ids = [int(found) for found in re.findall("^id: (.*)$", answer.response.text, re.MULTILINE)]
        assert answer.response.text.endswith("\n\n")
        assert ids == [*range(1, len(answer.events) + 1)]
        self._acknowledge(answer.events[0].get("task") or answer.events[0])
        end = end_of(answer.events[-1])
        assert len(ids) == 13 or end == CUT
        self._load.note("stream", end)
        return True

    async def hold(self, seconds: float) -> Answer | None:
        """Have a task run for *seconds*, and do not wait for it."""
        wish = {"returnImmediately": True} if self._agent.modern else {"blocking": False}
        params = {**self._params("nap", seconds), "configuration": wish}
        answer = await self.ask("send", params)
        if answer is not None:
            self._acknowledge(answer.task)
        return answer

    async def ask(self, operation: str, params: Json) -> Answer | None:
        """The answer to what the server has accepted; None when it has not, for it ends."""
        response = await self._line.ask(self._request(operation, params))
        if response is None:
            assert self._load.signalled
            assert self._load.may_hang_up or not self._line.answers
            self._load.seen["closed"] += 1
            return None
        if self._is_refused(response):
            assert self._load.signalled
            assert operation != "get"
            self._load.seen["refused"] += 1
            return None
        answer = Answer(response, self._agent.restful)
        assert response.status_code == 200, response.text
        answer.check()
        return answer

    def close(self) -> None:
        self._line.close()

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
        return request_of(self._load.url, self._agent.way, operation, params)


async def drive(load: Load, agent: Process) -> None:
    """Have all clients work, and end *agent* meanwhile."""
    async with asyncio.timeout(PATIENCE):
        with ExitStack() as stack:
            ways = [WAYS[number % len(WAYS)] for number in range(CLIENTS + 1)]
            holder, *clients = [stack.enter_context(closing(Client(load, way))) for way in ways]
            held = await holder.hold(600) if load.kind == "held" else None
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.work())
                await asyncio.sleep(load.random.uniform(0.05, 0.6))
                load.signalled = True
                agent.signal(signal.SIGTERM)
            load.released = True
            if held is not None:
                canceled = await holder.ask("cancel", {"id": held.task["id"]})
                assert canceled is not None
                load.seen[canceled.state] += 1


def end_under_load(number: int, folder: Path, home: Path) -> Counter[str]:
    """One round: what its clients have seen."""
    kind = [*KINDS][number % len(KINDS)]
    options = json.dumps({"host": "127.0.0.1", "port": 0, "shutdown_timeout": KINDS[kind]})
    told = home / f"{number}.json"
    command = [sys.executable, "-c", SERVE_AND_TELL, str(folder), options, str(told)]
    with process(command, home) as agent:
        agent.answers_at(agent.url)
        load = Load(agent.url, kind, random.Random(number))
        try:
            asyncio.run(drive(load, agent))
            assert agent.end() == 0
            assert not re.search("WARNING|ERROR|Traceback", agent.log)
            check_ends(load, json.loads(told.read_text(encoding="utf-8")))
        except Exception as error:  # whatever it is, it goes on with a note
            error.add_note(f"in round {number} ({kind}): {load.seen} {agent.log}")
            raise
    return load.seen


def check_ends(load: Load, ends: dict[str, list[str]]) -> None:
    """Hold what the store has at the end against what clients were told."""
    assert {*load.acknowledged} <= {*ends}
    found = Counter(tuple(end) for end in ends.values())
    assert found.pop(("canceled", "Canceled by client"), 0) == load.seen["canceled"]
    assert {*found} <= {tuple(FINE), *([tuple(CUT)] if load.kind == "hasty" else [])}


@pytest.mark.process
@pytest.mark.soak
def test_a_busy_server_that_is_ended_keeps_its_word_to_every_client(
    folder: Path, tmp_path: Path
) -> None:
    """Twenty rounds; what holds for each client is in `Client`, for the store in `check_ends`.

    What is waited for gets a whole answer: a task that has ended, a stream with its last event.
    What comes too late is refused with 503, or its connection is closed without a byte. Before
    the signal nothing is refused, and no connection that is kept is closed.

    Whether somebody who polls sees the end of a task depends on what else runs: when nothing
    does any more, the server closes the connections that nobody waits on. So in rounds that are
    *held*, a task goes on until all others have been seen to end, and then is canceled. In the
    *free* ones a poll may be cut off, and in the *hasty* ones tasks have hardly any time to end
    in. In all of them the store has the end of every task that a client was told of.
    """
    with ThreadPoolExecutor(2) as pool:
        rounds = pool.map(lambda number: end_under_load(number, folder, tmp_path), range(ROUNDS))
        seen = sum(rounds, Counter[str]())
    assert {*seen} >= {"send completed", "start completed", "stream completed", "stream failed"}
    assert {*seen} >= {"refused", "closed", "canceled"}


def ways_to_serve(folder: Path, seconds: float) -> dict[str, list[str]]:
    """The commands that serve *folder*, with this `shutdown_timeout`."""
    options = ["--extensions-dir", str(folder), "--host", "127.0.0.1", "--port", "0"]
    return {
        "serve()": served(folder, shutdown_timeout=seconds),
        "the command": [*COMMAND, "serve", *options, "--shutdown-timeout", str(seconds)],
    }


@contextmanager
def hanging(process: Process) -> Iterator[Watched]:
    """The stream of a module that hangs in its thread."""
    with asking(process) as agent, asking(process) as other:
        hangs = Watched(lambda: agent.stream("hang", agent.part(data={})))
        eventually(lambda: other.ask("list").result["tasks"])
        yield hangs


@pytest.mark.process
@pytest.mark.parametrize("how", ["serve()", "the command"])
def test_a_module_that_hangs_in_its_thread_does_not_hold_up_the_end(
    how: str, folder: Path, tmp_path: Path
) -> None:
    with process(ways_to_serve(folder, 1)[how], tmp_path) as agent, hanging(agent) as stream:
        assert agent.end(signal.SIGTERM) == 0
        assert last_state(stream.answer) == ("failed", SERVER_SHUTDOWN)


@pytest.mark.process
@pytest.mark.parametrize("how", ["serve()", "the command"])
def test_a_second_signal_ends_a_server_at_once_whose_module_hangs(
    how: str, folder: Path, tmp_path: Path
) -> None:
    with process(ways_to_serve(folder, 600)[how], tmp_path) as agent, hanging(agent) as stream:
        agent.signal(signal.SIGTERM)
        agent.wait_for("(a second Ctrl)")
        time.sleep(0.2)  # what comes at once is taken for an echo

        assert agent.end(signal.SIGTERM) == 0
        assert last_state(stream.answer) == ("failed", SERVER_SHUTDOWN)


class Asks(Module):
    """Asks for more, and takes its time to look at what it gets."""

    input_schema: ClassVar[Any] = {"type": "object"}

    def __init__(self) -> None:
        self.looks, self.seen = threading.Event(), threading.Event()

    def preflight(self, inputs: Inputs, context: Any) -> list[str]:
        self.looks.set()
        self.seen.wait(PATIENCE)
        return []

    async def execute(self, inputs: Inputs, context: Any) -> Inputs:
        if "more" not in inputs:
            raise InputRequiredError("What more?")
        await asyncio.sleep(0.1)
        return inputs


@pytest.mark.anyio
async def test_an_answer_to_a_paused_task_is_refused_or_gets_its_time_at_the_end() -> None:
    asks = Asks()
    asks.seen.set()
    async with serving({"work": asks}, shutdown_timeout=PATIENCE) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        assert state_of(task) == "input-required"
        asks.looks.clear()
        asks.seen.clear()
        more = peer.part(data={"more": 1})
        answering = asyncio.create_task(peer.send("work", more, taskId=task["id"]))
        await asyncio.to_thread(asks.looks.wait)
        draining = asyncio.create_task(peer.served.drain())
        ended, _ = await asyncio.wait({draining}, timeout=0.1)
        asks.seen.set()
        answer = await answering
        assert answer.code == -32029 or (answer.state == "completed" and not ended)
        await draining


class Stalled(InMemoryTaskStore):
    """A store that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()

    async def save(self, record: TaskRecord) -> None:
        await self.goes_on.wait()
        await super().save(record)


@pytest.mark.anyio
async def test_a_store_that_stalls_does_not_hold_up_the_end() -> None:
    modules, store = {"work": always({})}, Stalled()
    async with serving(modules, task_store=store, shutdown_timeout=0.1) as peer:
        sending = [asyncio.create_task(peer.send()) for _ in range(8)]
        await true(lambda: len(peer.served.engine.runs) == len(sending))
        draining = asyncio.create_task(peer.served.drain())
        await draining  # although nothing is stored yet
        store.goes_on.set()
        await asyncio.gather(*sending)


# Clients that hardly read

READERS, SENDS, PAIRS = 200, 100, range(8, 24)
"""How many slow readers there are, how many sends a figure is of, how many pairs of figures."""


class SlowReader:
    """Opens a stream, and reads it byte by byte."""

    def __init__(self) -> None:
        self.received = bytearray()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # As over a network; between two ends of loopback the kernel would take megabytes.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        self._socket.setblocking(False)

    async def open(self, url: httpx.URL, request: bytes) -> None:
        """Ask for the stream, and wait for its first byte."""
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, (url.host, url.port))
        await loop.sock_sendall(self._socket, request)
        self.received += await loop.sock_recv(self._socket, 1)

    def read(self) -> None:
        self.received += self._socket.recv(1)

    def close(self) -> None:
        self._socket.close()


async def read_slowly(readers: list[SlowReader]) -> None:
    """Have each reader read a byte a second."""
    while True:
        for reader in readers:
            await asyncio.sleep(1 / len(readers))
            reader.read()


async def p95(url: str) -> float:
    """What 95 of 100 sends at *url*, one after the other, do not take longer than; in seconds."""
    agent = Agent(cast(Any, None), "1.0")
    params = agent.params("echo", agent.part(data={"text": "hello"}))
    request, took = request_of(url, "1.0", "send", params), list[float]()
    with closing(Line(url)) as line:
        for _ in range(SENDS):
            begun = time.perf_counter()
            response = await line.ask(request)
            took.append(time.perf_counter() - begun)
            assert response is not None
            assert response.status_code == 200
    return quantiles(took, n=20)[-1]


@asynccontextmanager
async def slow_readers(url: str) -> AsyncIterator[None]:
    """As many slow readers as the server has streams for, each in the middle of its own."""
    agent = Agent(cast(Any, None), "1.0")
    request = request_of(url, "1.0", "stream", agent.params("flood", agent.part(data={})))
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(SlowReader())) for _ in range(READERS)]
        raw = as_bytes(h11.Connection(h11.CLIENT), request)
        await asyncio.gather(*(reader.open(httpx.URL(url), raw) for reader in readers))
        reading = asyncio.ensure_future(read_slowly(readers))
        await true(lambda: len(readers[-1].received) > 1)
        yield
        one_more = await stack.enter_context(closing(Line(url))).ask(request)
        assert one_more is not None
        assert one_more.status_code == 429, "the readers are not there any more"
        assert not reading.done()
        reading.cancel()
        begun = b"HTTP/1.1 200 OK"
        assert all(begun.startswith(reader.received[: len(begun)]) for reader in readers)


async def compare(busy: str, quiet: str) -> tuple[float, float]:
    """The best p95 of a server with slow readers, and of one without, measured in turns."""
    with_them = without = inf
    async with asyncio.timeout(2 * PATIENCE), slow_readers(busy):
        for pair in range(1, PAIRS.stop):
            with_them = min(with_them, await p95(busy))
            without = min(without, await p95(quiet))
            if pair >= PAIRS.start and with_them <= 1.2 * without:
                break
    return with_them, without


@pytest.mark.process
@pytest.mark.clock
def test_readers_of_a_byte_a_second_slow_nobody_down(folder: Path, tmp_path: Path) -> None:
    """As figures are noisy, each is the best of at least eight, taken in turns."""
    limits = {"max_streams_per_client": READERS}
    options: Any = {"max_streams": READERS, "limits": limits}
    with (
        process(served(folder, **options), tmp_path) as busy,
        process(served(folder, **options), tmp_path) as quiet,
    ):
        for agent in (busy, quiet):
            agent.answers_at(agent.url)
        with_them, without = asyncio.run(compare(busy.url, quiet.url))
    assert with_them <= 1.2 * without
