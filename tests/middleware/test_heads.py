"""Limits of heads, trailers and pipelined requests."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import uvicorn
from apcore_a2a_server.middleware.timeouts import RequestTimeoutProtocol
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE, Server, listener

from .byhand import HEALTH, connected, message_request, request, status_of

MAX_HEAD = 64 * 1024
"""Maximum bytes of the first line and headers of a request."""


def test_expect_100_continue_is_answered(url: str) -> None:
    full_request = message_request(headers="Expect: 100-continue\r\nConnection: close\r\n")
    head, _, content = full_request.partition(b"\r\n\r\n")
    with connected(url) as connection:
        connection.send(head + b"\r\n\r\n")
        assert status_of(connection.read_until()) == 100
        connection.send(content)
        assert status_of(connection.read_until()) == 200


def request_with_head(size: int) -> bytes:
    """Return a request whose first line and headers have *size* bytes."""
    start = request("/health", "Connection: close\r\n", verb="GET")[:-2]
    return start + b"X: " + b"x" * (size - len(start) - 7) + b"\r\n\r\n"


def test_a_head_may_have_64_kib(url: str) -> None:
    with connected(url) as connection:
        connection.send(request_with_head(MAX_HEAD))
        assert status_of(connection.read_all()) == 200


def test_a_head_of_more_than_64_kib_is_refused(url: str) -> None:
    with connected(url) as connection:
        connection.send(request_with_head(MAX_HEAD + 1)[:-4])  # the head does not end
        connection.send(b"\r\nY: y")
        answer = connection.read_all()
    assert status_of(answer) == 431
    assert b"connection: close" in answer


class FakeTransport(asyncio.Transport):
    """Transport that keeps what a protocol writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        if self.written.endswith(b"read"):  # the answer of `RecordingApp`
            self.ended.set()

    def close(self) -> None:
        self.ended.set()

    def is_closing(self) -> bool:
        return self.ended.is_set()

    def pause_reading(self) -> None:
        """Do nothing: nothing is read from this transport."""

    def resume_reading(self) -> None:
        """Do nothing."""


def connected_protocol(app: ASGIApp) -> tuple[RequestTimeoutProtocol, FakeTransport]:
    """Return a protocol that serves *app*, connected to a fake transport."""
    config = uvicorn.Config(app, lifespan="off")
    config.load()
    protocol, transport = RequestTimeoutProtocol(config, ServerState(), {}), FakeTransport()
    protocol.connection_made(transport)
    return protocol, transport


async def answer_to(*pieces: bytes) -> bytes:
    """Return the answer of a protocol that receives *pieces* of requests."""
    app = RecordingApp(reads=True)
    protocol, transport = connected_protocol(app)
    for piece in pieces:
        if not transport.is_closing():  # a closed transport receives nothing
            protocol.data_received(piece)
    async with asyncio.timeout(PATIENCE):
        await transport.ended.wait()
        await asyncio.sleep(0)
    assert bool(app.received_headers) is (status_of(transport.written) == 200)
    protocol.connection_lost(None)
    return transport.written


@pytest.mark.anyio
async def test_the_size_of_a_head_is_limited_however_it_is_split() -> None:
    assert status_of(await answer_to(request_with_head(MAX_HEAD))) == 200
    for cut in (1, 1000, MAX_HEAD):
        full_request = request_with_head(2 * MAX_HEAD)
        assert (
            status_of(await answer_to(full_request[:cut], full_request[cut:-4], full_request[-4:]))
            == 431
        )


@pytest.mark.anyio
async def test_a_target_that_is_too_long_for_the_parser_is_refused() -> None:
    full_request = b"GET /" + b"a" * 2 * MAX_HEAD + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    assert status_of(await answer_to(full_request)) == 400


@pytest.mark.anyio
async def test_a_large_body_does_not_count_towards_the_next_head() -> None:
    large = request("/", content=b"x" * 2 * MAX_HEAD)
    assert status_of(await answer_to(large + HEALTH[:10])) == 200
    assert status_of(await answer_to(large, large + HEALTH[:10])) == 200


@pytest.mark.anyio
async def test_the_heads_of_pipelined_requests_do_not_count_together() -> None:
    protocol, transport = connected_protocol(RecordingApp(reads=True))
    pipelined = request("/", "X: " + "x" * 3000 + "\r\n", verb="GET") * 30
    protocol.data_received(pipelined[:-10])
    protocol.data_received(pipelined[-10:])
    assert transport.written == b""  # no refusal
    assert not transport.is_closing()
    assert len(protocol.pipeline) == 29
    protocol.connection_lost(None)


CHUNKED = request("/", "Transfer-Encoding: chunked\r\n")
ENDLESS_ELEMENTS = {
    "trailer": CHUNKED + b"0\r\na: ",
    "name of a trailer": CHUNKED + b"0\r\na",
    "extension of a chunk": CHUNKED + b"1;",
    "size of a chunk": CHUNKED + b"0",
    "header": b"GET / HTTP/1.1\r\na: ",
    "name of a header": b"GET / HTTP/1.1\r\na",
    "target": b"GET /",
    "target of the next request": HEALTH + b"GET /",
}


@pytest.mark.anyio
@pytest.mark.parametrize("element", ENDLESS_ELEMENTS)
async def test_an_endless_element_of_a_request_is_refused(element: str) -> None:
    protocol, transport = connected_protocol(RecordingApp(reads=True))
    protocol.data_received(ENDLESS_ELEMENTS[element])
    for _ in range(10):
        if not transport.ended.is_set():
            protocol.data_received(b"0" * MAX_HEAD)
    is_refused = transport.ended.is_set()
    protocol.connection_lost(None)
    assert is_refused


class RecordingApp:
    """Application that records request headers, and may answer without reading the body."""

    def __init__(self, reads: bool) -> None:
        self._reads = reads
        self.received_headers: list[list[tuple[bytes, bytes]]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.received_headers.append(scope["headers"])
        while self._reads and (await receive()).get("more_body"):
            continue
        await PlainTextResponse("read")(scope, receive, send)


@contextmanager
def serving_app(app: ASGIApp) -> Iterator[str]:
    """Serve *app* in a thread with `RequestTimeoutProtocol`."""
    config = uvicorn.Config(app, http=RequestTimeoutProtocol, lifespan="off", log_level="warning")
    server = Server(config)
    with listener() as sock:
        thread = threading.Thread(target=server.serve_in_thread, args=([sock],))
        thread.start()
        try:
            assert server.settled.wait(PATIENCE)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


@pytest.mark.parametrize("reads", [True, False], ids=["before the answer", "after the answer"])
def test_trailers_are_not_kept(reads: bool) -> None:
    app = RecordingApp(reads)
    with serving_app(app) as url, connected(url) as connection:
        connection.send(request("/", "Transfer-Encoding: chunked\r\n"))
        if not reads:
            connection.read_until(b"read")
        with suppress(ConnectionError):
            connection.send(b"0\r\n" + b"X-API-Key: a\r\n" * 1000 + b"\r\n" + HEALTH)
            for _ in range(2 if reads else 1):  # unless `reads`, one answer was read above
                connection.read_until(b"read")
    assert (b"x-api-key", b"a") not in app.received_headers[0]
    assert len(app.received_headers[0]) < 10


@pytest.mark.anyio
async def test_a_client_with_too_many_pipelined_requests_is_disconnected() -> None:
    protocol, transport = connected_protocol(RecordingApp(reads=True))
    protocol.data_received(HEALTH * 100)
    assert transport.ended.is_set()
    assert len(protocol.pipeline) < 100
    protocol.connection_lost(None)
