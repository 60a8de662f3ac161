"""Request bodies that are too large, too slow or incomplete, with both of uvicorn's parsers."""

import json
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from tests.serving import PATIENCE, listener

from .checking_client import MODERN, Agent
from .conftest import Host, eventually

ROOT = Path(__file__).parents[2]
LIMIT = 10 * 2**20
MB = 2**20
PIECE = b" " * 2**16


PATHS = ["/", "/message:send"]


@dataclass(frozen=True)
class Server:
    """The address of a server and the id of its process."""

    address: tuple[str, int]
    pid: int

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE)

    def resident(self) -> int:
        """Return the server's resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match
        return int(match[1]) * 1024


PARSERS = [pytest.param(name, marks=pytest.mark.process) for name in ("httptools", "h11")]
in_a_process = pytest.mark.parametrize("server", PARSERS, indirect=True)
"""Selects servers in their own processes, whose memory can be measured."""


@pytest.fixture(scope="module", params=["in a thread", *PARSERS])
def server(request: pytest.FixtureRequest, host: Host) -> Iterator[Server]:
    """Yield the shared server, then a server in its own process for each parser."""
    if request.param == "in a thread":
        yield Server(("127.0.0.1", int(host.url.rpartition(":")[2])), os.getpid())
    else:
        with process(request.param) as server:
            yield server


@contextmanager
def process(parser: str) -> Iterator[Server]:
    uvicorn = [sys.executable, "-m", "uvicorn", "--factory", "tests.server.modules:app"]
    with listener() as sock:
        sock.listen()
        options = ["--fd", str(sock.fileno()), "--http", parser, "--log-level", "warning"]
        child = subprocess.Popen([*uvicorn, *options], pass_fds=[sock.fileno()], cwd=ROOT)
        try:
            server = Server(sock.getsockname(), child.pid)
            with server.connect() as first:
                assert ask(first, send_body()).state == "completed"
            yield server
        finally:
            child.terminate()
            child.wait(PATIENCE)


@dataclass(frozen=True)
class Reply:
    """The response on a raw connection."""

    status: int
    closes: bool
    body: Any

    @property
    def state(self) -> str:
        state: str = self.body["result"]["task"]["status"]["state"]
        return state.removeprefix("TASK_STATE_").lower()


def send_body(size: int = 0) -> bytes:
    """Return a valid send, padded with white space to *size* bytes."""
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    params = {"message": message, "metadata": {"skillId": "echo"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return json.dumps(request).encode().ljust(size)


def head(length: int | None, path: str = "/", verb: str = "POST") -> bytes:
    """Return the head of a request; without a *length*, its body is chunked."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"{verb} {path} HTTP/1.1", "Host: x", "Content-Type: application/json", framing]
    lines += [f"{name}: {value}" for name, value in MODERN.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def reply(sock: socket.socket) -> Reply:
    with closing(HTTPResponse(sock)) as response:
        response.begin()
        text = response.read()
        return Reply(response.status, response.will_close, json.loads(text))


def ask(sock: socket.socket, body: bytes, path: str = "/") -> Reply:
    sock.sendall(head(len(body), path) + body)
    return reply(sock)


def pour(sock: socket.socket, pieces: Iterable[bytes]) -> int:
    """Send pieces while the server keeps the connection open; return the number of bytes sent."""
    count = 0
    try:
        for piece in pieces:
            sock.sendall(piece)
            count += len(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return count


@pytest.mark.rotating("path")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [LIMIT + 1, 2 * LIMIT])
def test_a_body_over_the_limit_is_refused_and_the_connection_kept_open(
    server: Server, path: str, size: int
) -> None:
    with server.connect() as sock:
        for _ in range(2):
            refusal = ask(sock, b" " * size, path)
            assert (refusal.status, refusal.closes) == (413, False)
            assert ask(sock, send_body()).state == "completed"


@pytest.mark.rotating("path")
@pytest.mark.parametrize("path", PATHS)
def test_a_chunked_body_over_the_limit_is_refused_and_the_connection_kept_open(
    server: Server, path: str
) -> None:
    with server.connect() as sock:
        for _ in range(2):
            sock.sendall(head(None, path))
            pour(sock, chunks(repeat(PIECE, LIMIT // len(PIECE) + 1)))
            refusal = reply(sock)
            assert (refusal.status, refusal.closes) == (413, False)
            assert ask(sock, send_body()).state == "completed"


def test_a_body_of_exactly_the_limit_is_accepted(server: Server) -> None:
    with server.connect() as sock:
        assert ask(sock, send_body(LIMIT)).state == "completed"
        sock.sendall(
            head(None) + b"".join(chunks([send_body(), b" " * (LIMIT - len(send_body()))]))
        )
        assert reply(sock).state == "completed"


@in_a_process
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_500_mb_is_cut_off(server: Server, chunked: bool) -> None:
    pieces: Iterable[bytes] = repeat(PIECE, 500 * MB // len(PIECE))
    before = server.resident()
    with server.connect() as sock:
        sock.sendall(head(None if chunked else 500 * MB))
        sent_bytes = pour(sock, chunks(pieces) if chunked else pieces)
        assert sent_bytes < 150 * MB
    assert server.resident() - before < 20 * MB


@in_a_process
@pytest.mark.parametrize(("clients", "bound"), [(1, 20 * MB), (4, 4 * LIMIT + 20 * MB)])
def test_large_bodies_use_a_bounded_amount_of_memory(
    server: Server, clients: int, bound: int
) -> None:
    def status_of_large_body(_: int) -> int:
        with server.connect() as sock:
            sock.sendall(head(None))
            pour(sock, chunks(repeat(PIECE, 50 * MB // len(PIECE))))
            return reply(sock).status

    before = server.resident()
    with ThreadPoolExecutor(clients) as pool:
        assert set(pool.map(status_of_large_body, range(8))) == {413}
    assert server.resident() - before < bound


def test_a_slow_body_delays_no_other_request_and_is_answered(server: Server) -> None:
    body = send_body()
    with server.connect() as slow, server.connect() as second:
        slow.sendall(head(len(body)))
        for index in range(len(body)):
            if index % 50 == 0:
                assert ask(second, body).state == "completed"
            slow.sendall(body[index : index + 1])
        assert reply(slow).state == "completed"


def test_an_unread_body_does_not_corrupt_the_next_request(server: Server) -> None:
    with server.connect() as sock:
        for verb, path in (
            ("PUT", "/"),
            ("POST", "/nothing"),
            ("POST", "/agent/authenticatedExtendedCard"),
        ):
            sock.sendall(head(len(send_body()), path, verb) + send_body())
            with closing(HTTPResponse(sock)) as response:
                response.begin()
                response.read()
                assert response.status in {404, 405}
                assert not response.will_close
        assert ask(sock, send_body()).state == "completed"


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("length", [None, 1000, LIMIT + 1])
@pytest.mark.rotating("path", "reset")
@pytest.mark.parametrize("path", PATHS)
def test_a_client_that_disconnects_during_its_body_leaves_nothing_behind(
    host: Host, rpc_v10: Agent, reset: bool, length: int | None, path: str
) -> None:
    """In particular, no asyncio task waits for the rest of the body."""
    address = ("127.0.0.1", int(host.url.rpartition(":")[2]))
    rpc_v10.send()
    before = host.tasks()
    for _ in range(10):
        with socket.create_connection(address, timeout=PATIENCE) as sock:
            sock.sendall(head(length, path) + (b"64\r\n" if length is None else b"") + b"{")
            eventually(lambda: host.tasks() > before)
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: host.tasks() <= before)
    assert rpc_v10.send().state == "completed"
