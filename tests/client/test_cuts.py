"""No event is lost or repeated when connections break, and events may be split anywhere."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest
from apcore import Registry
from apcore_a2a_client import (
    A2AProtocolError,
    Event,
    Message,
    TaskArtifactUpdateEvent,
)
from apcore_a2a_client.sse import EventParser
from apcore_a2a_client.tasks import apply_event
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.server.inloop import StreamModule, registry_of
from tests.serving import listener, running

from .raw import KINDS, WIRES, Client, TcpServer, card, raw, reply, reset_connection

CHUNKS = 20
CUTS = 84
"""Broken connections of each client on each wire: 504 in all."""
TYPICAL_LIMIT = 700
"""Bytes within which most connections break, many within the head."""
STREAM_REQUESTS = (b'"SendStreamingMessage"', b'"message/stream"', b"/message:stream ")
"""Bytes that only a request for a new stream contains; such a request can't be sent twice."""

kinds = pytest.mark.parametrize("kind", KINDS)
wires = pytest.mark.parametrize(("binding", "version"), WIRES)


class CuttingProxy(TcpServer):
    """TCP proxy that breaks most connections after some bytes of an answer.

    The first event of a new stream passes: without it, the client does not know the task.
    """

    def __init__(self, port: int, seed: str) -> None:
        super().__init__()
        self.cuts = 0
        self._port = port
        self._random = random.Random(seed)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_agent, to_agent = await asyncio.open_connection("127.0.0.1", self._port)
        connection = LimitedConnection(self._new_limit)
        forward_requests = asyncio.create_task(connection.forward_requests(reader, to_agent))
        try:
            if await connection.forward_answer(from_agent, writer):
                self.cuts += 1
                if self._random.random() < 0.5:
                    reset_connection(writer)
        finally:
            to_agent.transport.abort()
            forward_requests.cancel()
            with suppress(ConnectionError, asyncio.CancelledError):
                await forward_requests

    def _new_limit(self) -> int:
        is_whole = self._random.random() < 0.1  # else cut: most answers exceed TYPICAL_LIMIT
        return 2**20 if is_whole else self._random.randint(1, TYPICAL_LIMIT)


class LimitedConnection:
    """Connection with a limit on the bytes of its answers.

    Args:
        new_limit: Returns a limit; called again for each further stream of a reused connection.
    """

    def __init__(self, new_limit: Callable[[], int]) -> None:
        self._new_limit = new_limit
        self._limit: int | None = new_limit()
        """Limit for the first stream; None once that stream has begun."""
        self._remaining = self._limit
        self._first_event: bytes | None = None
        """The bytes of the first event of a new stream; None if none is being received."""

    async def forward_requests(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter
    ) -> None:
        while data := await source.read(65536):
            if any(beginning in data for beginning in STREAM_REQUESTS):
                self._first_event = b""
            to.write(data)
        to.write_eof()

    async def forward_answer(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> bool:
        """Forward the answers; return whether the limit was reached before their end."""
        while data := await source.read(65536):
            exempt = self._exempt_bytes(data)
            to.write(data[: exempt + self._remaining])
            await to.drain()
            self._remaining -= len(data) - exempt
            if self._remaining <= 0:
                return True
        return False

    def _exempt_bytes(self, data: bytes) -> int:
        """Return how many bytes of *data* belong to the first event of a new stream."""
        if self._first_event is None:
            return 0
        before, self._first_event = len(self._first_event), self._first_event + data
        end = self._first_event.find(b"}\n\n") + 3
        if end < 3:
            return len(data)
        limit = self._new_limit() if self._limit is None else self._limit
        self._first_event, self._remaining, self._limit = None, limit, None
        return max(0, end - before)


async def quick_chunks(inputs: Any, context: Any) -> AsyncIterator[Any]:
    """Yield all chunks at once, so that most are sent after the task has ended."""
    for number in range(CHUNKS):
        yield {"number": number, "text": "ä" * number}


async def paced_chunks(inputs: Any, context: Any) -> AsyncIterator[Any]:
    """Yield chunks slowly, while connections break."""
    async for chunk in quick_chunks(inputs, context):
        await asyncio.sleep(0.002)  # the work of the skill
        yield chunk


def registry() -> Registry:
    return registry_of({"quick": StreamModule(quick_chunks), "paced": StreamModule(paced_chunks)})


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    with running(registry()) as url:
        yield url


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apcore_a2a_client.exchange.FIRST_WAIT", 0.0001)
    monkeypatch.setattr("apcore_a2a_client.exchange.LONGEST_WAIT", 0.001)


@contextmanager
def client_of(url: str, kind: str, binding: str, version: str) -> Iterator[Client]:
    """Yield a client of an agent whose card names only *url*."""
    with (
        raw(lambda _: reply(card(url, binding, version))) as cards,
        Client(kind, cards.url, retries=10_000) as client,
    ):
        yield client


@contextmanager
def client_behind_proxy(agent: str, kind: str, *wire: str) -> Iterator[tuple[Client, CuttingProxy]]:
    """Yield a client behind a proxy that breaks connections."""
    port = urlsplit(agent).port
    assert port
    cutter = CuttingProxy(port, " ".join([kind, *wire]))
    with listener() as sock, cutter.running(sock), client_of(cutter.url, kind, *wire) as client:
        yield client, cutter


def contents(events: list[Event]) -> list[Any]:
    """Return the contents of events, without the ids of their task."""
    return [content_of(event) for event in events]


def content_of(event: Event) -> Any:
    if isinstance(event, TaskArtifactUpdateEvent):
        return event.artifact.value, event.append, event.last_chunk
    assert not isinstance(event, Message)
    return type(event).__name__, str(event.status.state), str(event.status.message)


@wires
@kinds
def test_no_event_is_lost_or_repeated_when_connections_break(
    agent: str, kind: str, binding: str, version: str
) -> None:
    with client_of(agent, kind, binding, version) as client:
        expected = contents(client.do("stream_message", {}, skill="quick"))
    assert len(expected) == CHUNKS + 3
    assert [event[0]["number"] for event in expected[2:-1]] == list(range(CHUNKS))
    with client_behind_proxy(agent, kind, binding, version) as (client, cutter):
        skills = ["quick", "paced"] * CUTS
        while cutter.cuts < CUTS:
            assert contents(client.do("stream_message", {}, skill=skills.pop())) == expected


@wires
@kinds
def test_chunks_arrive_once_and_in_order_when_connections_break(
    agent: str, kind: str, binding: str, version: str
) -> None:
    with client_behind_proxy(agent, kind, binding, version) as (client, cutter):
        chunks = client.do("stream", "paced", {})
        assert [chunk["number"] for chunk in chunks] == list(range(CHUNKS))
        assert cutter.cuts


@wires
@kinds
def test_a_task_is_followed_to_its_end_when_connections_break(
    agent: str, kind: str, binding: str, version: str
) -> None:
    """Snapshots stand in for missed events; all events together yield the final task."""
    with (
        client_of(agent, kind, binding, version) as direct,
        client_behind_proxy(agent, kind, binding, version) as (client, cutter),
    ):
        task = direct.first("stream_message", {}, skill="paced")
        events = client.do("follow", task)
        final_task = client.do("wait", task)
        fetched_task = direct.do("get_task", task.id)
    assert cutter.cuts
    assert final_task.status == fetched_task.status
    assert final_task.value == fetched_task.value
    for event in events:
        task = apply_event(task, event)
    assert (task.status, task.artifacts) == (fetched_task.status, fetched_task.artifacts)


# Parsing of events

TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
IDS = TEXTS.filter(lambda text: "\0" not in text)
IGNORED_LINES = TEXTS.map(": {}".format) | st.sampled_from(
    [":", "event: x", "retry: 5", "datax: 1", "x"]
)
EVENTS = st.lists(
    st.tuples(
        st.none() | IDS,
        st.lists(TEXTS, min_size=1, max_size=3).filter(any),
        st.lists(IGNORED_LINES, max_size=2),
    ),
    max_size=4,
)
ENDINGS = st.sampled_from(["\n", "\r\n", "\r"])
LIMIT = 200


def lines_of(id: str | None, data: list[str], ignored: list[str]) -> list[str]:
    """Return the lines of an event, with the empty line at its end."""
    first = [] if id is None else [f"id: {id}"]
    return [*first, *ignored, *(f"data: {line}" for line in data), *ignored, ""]


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return *data* split at the offsets *cuts*, which wrap around at its end."""
    offsets = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(offsets)]


def parsed(chunks: list[bytes], limit: int = 10_000) -> list[tuple[bytes, str | None]]:
    parser = EventParser(limit)
    return [(data, id) for chunk in chunks for data, id in parser.feed(chunk)]


CUT_ANYWHERE = st.lists(st.integers(0, 500), max_size=20)


@given(EVENTS, ENDINGS, st.booleans(), CUT_ANYWHERE)
@example([("7", ["one", "", "two"], [])], "\r\n", True, list(range(100)))
@example([(None, ["one"], []), ("", [" two"], [":"])], "\r", False, list(range(100)))
@settings(deadline=None)
def test_the_same_events_are_parsed_however_they_are_split(
    events: list[tuple[str | None, list[str], list[str]]],
    ending: str,
    has_bom: bool,
    cuts: list[int],
) -> None:
    lines = [line + ending for event in events for line in lines_of(*event)]
    body = (b"\xef\xbb\xbf" if has_bom else b"") + "".join(lines).encode()
    expected: list[tuple[bytes, str | None]] = []
    last_id = None
    for id, data, _ in events:
        is_usable = id is not None and id.isascii() and id.isprintable()  # as a header value
        last_id = id if is_usable else last_id
        expected.append(("\n".join(data).encode(), last_id))
    assert parsed(split_at(body, cuts)) == expected


@given(st.binary(max_size=300) | st.text(":\r\n dati0", max_size=300).map(str.encode), CUT_ANYWHERE)
@settings(deadline=None)
def test_arbitrary_bytes_are_parsed_alike_however_they_are_split(
    body: bytes, cuts: list[int]
) -> None:
    assert parsed(split_at(body, cuts)) == parsed([body])


@pytest.mark.parametrize("start", [b"\n", b"\r\n", b"\r"])
def test_a_byte_order_mark_after_an_empty_first_line_is_part_of_its_line(start: bytes) -> None:
    body = start + b"\xef\xbb\xbfdata: no\ndata: yes\n\n"
    assert parsed([body]) == [(b"yes", None)]


def test_a_line_break_may_be_split_by_an_empty_chunk() -> None:
    assert parsed([b"data: one\r", b"", b"\ndata: two\r\n\r\n"]) == [(b"one\ntwo", None)]


@given(st.integers(1, LIMIT - 10), ENDINGS, CUT_ANYWHERE)
@settings(deadline=None)
def test_an_event_within_the_limit_is_parsed_however_it_is_split(
    size: int, ending: str, cuts: list[int]
) -> None:
    body = (f"data: {'x' * size}" + ending * 2).encode() * 3
    assert [len(data) for data, _ in parsed(split_at(body, cuts), LIMIT)] == [size] * 3


@given(st.integers(LIMIT + 1, 3 * LIMIT), st.integers(1, 50), ENDINGS, CUT_ANYWHERE)
@example(LIMIT + 1, 50, "\n", [])
@settings(deadline=None)
def test_an_event_beyond_the_limit_is_refused_however_it_is_split(
    size: int, count: int, ending: str, cuts: list[int]
) -> None:
    """Even if it arrives in one piece: nothing depends on how the network splits it."""
    size_per_line, remainder = divmod(size, count)
    lines = [
        f"data: {'x' * (size_per_line + (number < remainder))}{ending}" for number in range(count)
    ]
    body = ("".join(lines) + ending).encode()
    with pytest.raises(A2AProtocolError):
        parsed(split_at(body, cuts), LIMIT)


@pytest.mark.parametrize("line", [b"data\n", b"data:\n", b"data: \r\n", b"data:\r"])
def test_empty_data_lines_count_towards_the_limit(line: bytes) -> None:
    with pytest.raises(A2AProtocolError):
        parsed([line * 50] * 50, LIMIT)


@pytest.mark.parametrize("line", [b"x" * 150 + b"\n", b": " + b"x" * 90 + b"\n", b"id: 1234\n"])
def test_each_line_other_than_data_has_a_limit_of_its_own(line: bytes) -> None:
    assert parsed([line] * 100 + [b"data: x\n\n"], LIMIT)[0][0] == b"x"
