"""Answers of webhooks: only a status and a delay are read, within limits of size and time."""

import asyncio
import gc
import gzip
import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain, cycle, repeat
from pkgutil import resolve_name
from typing import Any

import pytest
from apcore_a2a_server.push.transport import MAX_READ, MAX_WAIT, READ_SIZE, WebhookResponse

from tests.client.raw import (
    CLOSE,
    CUT,
    HOLD,
    Request,
    Script,
    Step,
    TcpServer,
    flood,
    head,
    raw,
    reply,
)
from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE, listener

from .posting import posting

pytestmark = pytest.mark.anyio

CHUNK = 2**16
"""Bytes that httpcore asks for in one read."""
SHORT_TIMEOUT = 0.3
"""Timeout of an attempt in these tests, in seconds."""
UNDER_DEFAULT_TIMEOUT = 10 * 0.9
"""Seconds that are less than the default timeout."""
MEGABYTE = 2**20


@pytest.fixture
def read_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of bytes of each read from a connection."""
    sizes: list[int] = []
    stream = resolve_name("httpcore._backends.anyio:AnyIOStream")
    inner = stream.read

    async def read_recording(self: Any, *args: Any, **kwargs: Any) -> bytes:
        data: bytes = await inner(self, *args, **kwargs)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(stream, "read", read_recording)
    return sizes


async def answer_of(script: Script, **options: Any) -> WebhookResponse:
    """Return the answer to one post to a server with *script*."""
    with raw(script) as server:
        async with posting(dev=True, **options) as post:
            return await post(server.url)


# Statuses


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_is_a_success(status: int) -> None:
    answer = await answer_of(lambda _: reply(b"", status))
    assert answer == WebhookResponse(status, f"status {status}")
    assert answer.is_success


@pytest.mark.parametrize("status", [300, 302, 304, 400, 404, 410, 429, 500, 503, 599, 999])
async def test_other_statuses_are_failures(status: int) -> None:
    answer = await answer_of(lambda _: reply(b"", status))
    assert (answer.status, answer.is_success) == (status, False)


async def test_an_informational_status_is_not_the_answer() -> None:
    early_hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    assert (await answer_of(lambda _: [early_hints, *reply(b"", 500)])).status == 500


INVALID_HEADS: dict[str, Iterable[Step]] = {
    "reset": [CUT],
    "closed": [CLOSE],
    "reset in the status": [b"HTTP/1.1 20", CUT],
    "closed in the status": [b"HTTP/1.1 200", CLOSE],
    "reset in the headers": [b"HTTP/1.1 200 OK\r\nA: b\r\n", CUT],
    "closed in the headers": [b"HTTP/1.1 200 OK\r\nA: b\r\n", CLOSE],
    "closed after 100": [b"HTTP/1.1 100 Continue\r\n\r\n", CLOSE],
    "no HTTP": [b"SSH-2.0-OpenSSH_9.9\r\nhunter2\r\n\r\n", CLOSE],
    "old HTTP": [b"<html>hunter2</html>", CLOSE],
    "zeros": [bytes(1000), CLOSE],
    "no number": [b"HTTP/1.1 hunter2 OK\r\n\r\n", CLOSE],
    "status of two digits": [b"HTTP/1.1 20 hunter2\r\n\r\n", CLOSE],
    "two lengths": [head(content_length="1, 2"), CLOSE],
    "another protocol": [b"HTTP/1.1 101 hunter2\r\nUpgrade: x\r\n\r\n", CLOSE],
}


@pytest.mark.parametrize("steps", INVALID_HEADS.values(), ids=INVALID_HEADS)
async def test_without_a_valid_head_the_status_is_0(steps: Iterable[Step]) -> None:
    answer = await answer_of(lambda _: steps)
    assert answer.status == 0
    assert not answer.is_success
    assert answer.retry_after == 0
    assert "hunter2" not in answer.reason


async def test_a_reason_has_no_text_of_the_receiver() -> None:
    answer_bytes = b"HTTP/1.1 500 hunter2\r\nContent-Length: 7\r\n\r\nhunter2"
    assert await answer_of(lambda _: [answer_bytes]) == WebhookResponse(500, "status 500")


# Endless answers


async def test_an_endless_answer_is_read_up_to_the_limit(read_sizes: list[int]) -> None:
    answer = await answer_of(lambda _: flood(head(), b" " * CHUNK))
    assert answer.status == 200
    assert MAX_READ == 2**16
    assert sum(read_sizes) <= MAX_READ + READ_SIZE


async def test_an_endless_chunked_answer_is_read_up_to_the_limit(read_sizes: list[int]) -> None:
    start, chunk = head(transfer_encoding="chunked"), b"1\r\n.\r\n" * 1000
    assert (await answer_of(lambda _: flood(start, chunk))).status == 200
    assert sum(read_sizes) <= MAX_READ + READ_SIZE


async def test_endless_headers_are_read_up_to_the_limit(read_sizes: list[int]) -> None:
    answer = await answer_of(lambda _: flood(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000))
    assert answer.status == 0
    assert sum(read_sizes) <= MAX_READ + READ_SIZE


async def test_a_decompression_bomb_is_not_unpacked(read_sizes: list[int]) -> None:
    body = gzip.compress(bytes(64 * MEGABYTE))
    packed = reply(body, content_encoding="gzip")
    tracemalloc.start()
    try:
        answer = await answer_of(lambda _: packed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer == WebhookResponse(200, "status 200")
    assert peak < 8 * MEGABYTE
    assert sum(read_sizes) <= len(body) + CHUNK


async def test_an_endless_decompression_bomb_is_not_unpacked(read_sizes: list[int]) -> None:
    body = gzip.compress(bytes(64 * MEGABYTE))
    start = head(content_encoding="gzip")
    assert (await answer_of(lambda _: flood(start, body))).status == 200
    assert sum(read_sizes) <= MAX_READ + READ_SIZE


async def test_a_connection_with_an_endless_answer_is_not_reused() -> None:
    scripts = iter([flood(head(), b" " * CHUNK), reply(), reply()])
    with raw(lambda _: next(scripts)) as server:
        async with posting(dev=True) as post:
            assert [(await post(server.url)).status for _ in range(3)] == [200] * 3
    assert server.connections == 2


# Slow answers


def slow_bytes(data: bytes) -> Iterator[Step]:
    """Yield one byte each second."""
    for byte in data:
        yield bytes([byte])
        yield 1.0


CHUNKED: list[Step] = [b"1\r\n.\r\n", 0.01]
SLOW: dict[str, Script] = {
    "silence": lambda _: [HOLD],
    "half a status": lambda _: [b"HTTP/1.1 2", HOLD],
    "half of the headers": lambda _: [b"HTTP/1.1 200 OK\r\nA: ", HOLD],
    "half a body": lambda _: [head(content_length="9"), b"1234", HOLD],
    "a head byte by byte": lambda _: slow_bytes(head() * 9),
    "a body byte by byte": lambda _: [head(content_length="100"), *slow_bytes(b"." * 100)],
    "hints without end": lambda _: repeat(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100),
    "a chunk each moment": lambda _: chain([head(transfer_encoding="chunked")], cycle(CHUNKED)),
}


WITH_STATUS = ("half a body", "a body byte by byte", "a chunk each moment")
"""Answers whose status arrives in time, which is enough."""


TOO_LONG = ("hints without end",)
"""Answers that exceed the size limit before the timeout."""


@pytest.mark.parametrize("name", SLOW)
async def test_an_attempt_ends_at_its_timeout(name: str) -> None:
    with raw(SLOW[name]) as server:
        async with posting(dev=True, timeout=SHORT_TIMEOUT) as post:
            started_at = time.monotonic()
            async with asyncio.timeout(UNDER_DEFAULT_TIMEOUT):
                answer = await post(server.url)
            duration = time.monotonic() - started_at
    assert answer.is_success == (name in WITH_STATUS)
    assert duration >= SHORT_TIMEOUT * 0.9 or name in TOO_LONG
    assert len(server.requests) == 1


class SilentServer(TcpServer):
    """Server that never answers; if it reads, it sets `ended` when a connection is closed."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.reads = reads
        self.ended = threading.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.reads:
            await asyncio.Event().wait()
        with suppress(ConnectionError):
            await reader.read()
        self.ended.set()


@contextmanager
def silent_server(reads: bool = True) -> Iterator[SilentServer]:
    server = SilentServer(reads)
    with listener() as sock, server.running(sock):
        yield server


async def test_an_attempt_ends_at_its_timeout_if_its_body_is_not_read() -> None:
    with silent_server(reads=False) as server:
        async with (
            posting(dev=True, timeout=SHORT_TIMEOUT) as post,
            asyncio.timeout(UNDER_DEFAULT_TIMEOUT),
        ):
            answer = await post(server.url, bytes(32 * MEGABYTE))
    assert answer.status == 0
    assert server.connections == 1


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which could close what the code left open."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_connection_is_closed_when_an_attempt_times_out(scheme: str) -> None:
    with silent_server() as server:
        async with (
            posting(dev=True, timeout=SHORT_TIMEOUT) as post,
            asyncio.timeout(UNDER_DEFAULT_TIMEOUT),
        ):
            assert (await post(server.url.replace("http", scheme))).status == 0
            assert await asyncio.to_thread(server.ended.wait, PATIENCE / 2)


async def test_an_attempt_ends_at_its_timeout_during_name_resolution() -> None:
    async def resolve(host: str, port: int, principal: str) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        posting(resolve, timeout=SHORT_TIMEOUT) as post,
        asyncio.timeout(UNDER_DEFAULT_TIMEOUT),
    ):
        assert (await post("https://hooks.example.com/")).status == 0


# Retry-After


async def parsed_retry_after(value: str, status: int = 503) -> float:
    """Return the seconds read from a `Retry-After`."""
    answer = await answer_of(lambda _: reply(b"", status, **{"retry-after": value}))
    assert answer.status == status
    return answer.retry_after


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        (" 7 ", 7),
        ("3600", MAX_WAIT),
        ("3601", MAX_WAIT),
        ("9" * 5000, MAX_WAIT),
        ("0" * 5000 + "1", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_WAIT),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("-1", 0),
        ("-99999", 0),
        ("+5", 0),
        ("1.5", 0),
        ("1e3", 0),
        ("0x10", 0),
        ("nan", 0),
        ("inf", 0),
        ("", 0),
        ("soon", 0),
        ("5, 7", 0),
        ("7 seconds", 0),
        ("\xb2", 0),
        ("Fri, 99 Foo 9999 99:99:99 GMT", 0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 0),
        ("Fri, 31 Dec 2100 23:59:59 +99999999", 0),
    ],
)
async def test_retry_after_is_limited_to_an_hour_and_invalid_values_are_ignored(
    value: str, seconds: float
) -> None:
    assert MAX_WAIT == 3600
    assert await parsed_retry_after(value) == seconds
    assert await parsed_retry_after(value, 200) == seconds


async def test_retry_after_may_be_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 60 < await parsed_retry_after(date) <= 90


async def test_without_retry_after_there_is_no_delay() -> None:
    assert (await answer_of(lambda _: reply(b"", 503))).retry_after == 0


@pytest.mark.parametrize("name", ["Retry-After", "RETRY-AFTER", "retry-after", "Retry-after"])
async def test_the_name_of_retry_after_is_case_insensitive(name: str) -> None:
    answer = await answer_of(lambda _: reply(b"", 503, **{name: "7"}))
    assert answer == WebhookResponse(503, "status 503", 7)


def request_line_and_body(request: Request) -> tuple[str, str, bytes]:
    return request.method, request.path, request.body


async def test_the_path_query_and_body_of_a_post_arrive_unchanged() -> None:
    body = bytes(range(256)) * 4096
    with raw(lambda _: reply()) as server:
        async with posting(dev=True, timeout=PATIENCE) as post:
            await post(f"{server.url}/a/b?c=d%20e#f", body)
    assert [request_line_and_body(request) for request in server.requests] == [
        ("POST", "/a/b?c=d%20e", body)
    ]
