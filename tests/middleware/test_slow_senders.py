"""Who does not send what was begun is not waited for; who sends, or waits for us, is."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from apcore_a2a_server import serve

from tests.facade.processes import extensions, process, served
from tests.server.asking import MODERN
from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

from .byhand import HEALTH, KEY, KNOWN, TIMEOUT, connected, message, request, sending, status_of

pytestmark = [pytest.mark.process, pytest.mark.clock]

BY_DEFAULT, LATE, KEPT = 10.0, 5.0, 5.0
"""Seconds: the timeout by default, what it may be late, how long uvicorn keeps connections."""


# Many connections that do not come to the point


async def trickle(writer: asyncio.StreamWriter, begin: bytes, rest: bytes) -> None:
    writer.write(begin)
    for byte in rest:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.2)


async def held(url: str, begin: bytes = b"", rest: bytes = b"") -> float:
    """For how many seconds a connection lasts on which *rest* is sent byte by byte."""
    place, begun = urlsplit(url), time.monotonic()
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    sending = asyncio.create_task(trickle(writer, begin, rest))
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            while await reader.read(65536):
                continue
    took = time.monotonic() - begun
    sending.cancel()
    with suppress(ConnectionError, asyncio.CancelledError):
        await sending
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return took


SLOW = [
    (b"", b""),
    (b"", b"POST / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 1000),
    (request("/", f"{KNOWN}Content-Length: 100000\r\n"), b"a" * 1000),
]
"""What is sent at once, and what byte by byte: nothing, half a header, half a body."""


def latencies(url: str, enough: Callable[[int], bool]) -> list[float]:
    """How long a client's messages take, one after the other."""
    found: list[float] = []
    headers = {**MODERN, "X-API-Key": KEY, "Content-Type": "application/json"}
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE, headers=headers) as client:
        while not enough(len(found)):
            begun = time.perf_counter()
            answer = client.post("/", content=message())
            found.append(time.perf_counter() - begun)
            assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    return found


@pytest.mark.anyio
async def test_half_open_connections_are_closed_and_others_hardly_notice(url: str) -> None:
    before = await asyncio.to_thread(latencies, url, lambda count: count >= 50)
    closed = threading.Event()
    asking = asyncio.create_task(asyncio.to_thread(latencies, url, lambda _: closed.is_set()))
    try:
        took = await asyncio.gather(*(held(url, *slow) for slow in SLOW * 100))
    finally:
        closed.set()
    during = await asking
    assert min(took) > TIMEOUT * 0.9
    assert max(took) < TIMEOUT + LATE
    assert len(during) >= 10
    assert median(during) < 3 * median(before)
    assert max(during) < 2


# What takes its time, all of it begun together


def test_by_default_a_request_has_ten_seconds(results: dict[str, "Future[Any]"]) -> None:
    took = results["by_default"].result(2 * PATIENCE)
    assert min(took) > BY_DEFAULT * 0.95
    assert max(took) < BY_DEFAULT + LATE


def by_default(url: str, folder: Path) -> list[float]:
    async def all_of_them(url: str) -> list[float]:
        return await asyncio.gather(*(held(url, *slow) for slow in SLOW * 5))

    with process(served(folder), folder.parent) as agent:
        return asyncio.run(all_of_them(agent.url))


def test_a_kept_connection_waits_as_long_as_ever(results: dict[str, "Future[Any]"]) -> None:
    first, second, idle = results["kept"].result(2 * PATIENCE)
    assert (first, second) == (200, 200)
    assert KEPT * 0.9 < idle < KEPT + 2


def kept(url: str, folder: Path) -> tuple[int, int, float]:
    """Two requests on a connection, with more than the timeout between them, and then nothing."""
    with connected(url) as line:
        line.say(HEALTH)
        first = status_of(line.hear())
        line.hear(b"}")
        time.sleep(TIMEOUT + 1)
        line.say(HEALTH)
        second, begun = status_of(line.hear()), time.monotonic()
        line.all()
        return first, second, time.monotonic() - begun


def test_a_large_body_may_take_longer_when_it_comes_steadily(
    results: dict[str, "Future[Any]"],
) -> None:
    status, took = results["steady"].result(2 * PATIENCE)
    assert status == 200
    assert took > 2 * TIMEOUT


def steady(url: str, folder: Path) -> tuple[int, float]:
    """A message of a megabyte, at 200 KB/s."""
    whole, begun = sending(text="x" * 1_000_000), time.monotonic()
    with connected(url) as line:
        for start in range(0, len(whole), 20_000):
            line.say(whole[start : start + 20_000])
            time.sleep(0.1)
        return status_of(line.hear()), time.monotonic() - begun


def test_each_request_of_a_kept_connection_has_its_own_time(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["steady_later"].result(2 * PATIENCE) == 200


def steady_later(url: str, folder: Path) -> int:
    """The second request of a connection: half a megabyte, at 100 KB/s."""
    whole = sending(text="x" * 500_000)
    with connected(url) as line:
        line.say(HEALTH)
        line.hear(b"}")
        time.sleep(2 * TIMEOUT)
        for start in range(0, len(whole), 10_000):
            line.say(whole[start : start + 10_000])
            time.sleep(0.1)
        return status_of(line.hear())


def test_half_a_request_on_a_kept_connection_is_not_waited_for(
    results: dict[str, "Future[Any]"],
) -> None:
    assert TIMEOUT * 0.9 < results["half_later"].result(2 * PATIENCE) < TIMEOUT + LATE


def half_later(url: str, folder: Path) -> float:
    """How long half a head is waited for, after the first request of a connection."""
    with connected(url) as line:
        line.say(HEALTH)
        line.hear(b"}")
        time.sleep(TIMEOUT + 1)
        line.say(HEALTH[:10])
        begun = time.monotonic()
        assert status_of(line.all()) == 408
        return time.monotonic() - begun


def test_a_long_run_is_waited_for(results: dict[str, "Future[Any]"]) -> None:
    answer = results["long_run"].result(2 * PATIENCE)
    assert status_of(answer) == 200
    assert b"TASK_STATE_COMPLETED" in answer


def long_run(url: str, folder: Path) -> bytes:
    with connected(url) as line:
        line.say(sending("nap", "Connection: close\r\n", data={"seconds": TIMEOUT + 1}))
        return line.all()


def test_a_stream_goes_on_as_long_as_it_likes(results: dict[str, "Future[Any]"]) -> None:
    answer, took = results["stream"].result(2 * PATIENCE)
    assert answer.count(b"\ndata:") >= 3
    assert b"TASK_STATE_COMPLETED" in answer
    assert took > 2 * TIMEOUT


def stream(url: str, folder: Path) -> tuple[bytes, float]:
    begun = time.monotonic()
    body = message("nap", method="SendStreamingMessage", data={"seconds": 2 * TIMEOUT})
    with connected(url) as line:
        line.say(request("/", KNOWN + "Connection: close\r\n", body))
        return line.all(), time.monotonic() - begun


def test_requests_may_be_sent_before_the_first_is_answered(
    results: dict[str, "Future[Any]"],
) -> None:
    answer = results["pipelined"].result(2 * PATIENCE)
    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert answer.count(b"TASK_STATE_COMPLETED") == 2


def pipelined(url: str, folder: Path) -> bytes:
    long, last = {"seconds": TIMEOUT + 1}, request("/health", "Connection: close\r\n", verb="GET")
    with connected(url) as line:
        line.say(sending("nap", data=long) + sending("nap", data={"seconds": 0}) + HEALTH + last)
        return line.all()


def test_blank_lines_keep_no_connection(results: dict[str, "Future[Any]"]) -> None:
    for took in results["blank"].result(2 * PATIENCE):
        assert TIMEOUT * 0.9 < took < TIMEOUT + LATE


def blank(url: str, folder: Path) -> list[float]:
    async def both() -> list[float]:
        lines = b"\r\n" * 100
        return [*await asyncio.gather(held(url, b"", lines), held(url, HEALTH, lines))]

    return asyncio.run(both())


def test_after_a_refusal_the_rest_of_the_body_is_not_waited_for(
    results: dict[str, "Future[Any]"],
) -> None:
    head, took = results["refused"].result(2 * PATIENCE)
    assert status_of(head) == 401
    for seconds in took:
        assert TIMEOUT * 0.9 < seconds < TIMEOUT + LATE


def refused(url: str, folder: Path) -> tuple[bytes, list[float]]:
    begin = request("/", "Content-Length: 100000\r\n")
    chunked = request("/", "Transfer-Encoding: chunked\r\n")

    async def both() -> list[float]:
        rest = [(begin, b"a" * 1000), (chunked, b"1\r\na\r\n" * 1000)]
        return await asyncio.gather(*(held(url, *each) for each in rest))

    with connected(url) as line:
        line.say(begin)
        return line.hear(), asyncio.run(both())


def test_while_a_run_is_waited_for_the_next_request_may_come_slowly(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["half_of_the_next"].result(2 * PATIENCE) == [200, 200]


def half_of_the_next(url: str, folder: Path) -> list[int]:
    with connected(url) as line:
        line.say(sending("nap", data={"seconds": TIMEOUT + 1}) + HEALTH[:10])
        first = status_of(line.hear())
        line.hear(b"nap")
        line.say(HEALTH[10:])
        return [first, 200 if b"200 OK" in line.all() else 0]


SLOW_AUTH = """
import asyncio, json, sys
from apcore import Identity
from apcore_a2a_server import serve

class Slow:
    async def authenticate(self, headers):
        await asyncio.sleep(float(headers["x-seconds"]))
        return Identity("ada")

serve(sys.argv[1], auth=Slow(), **json.loads(sys.argv[2]))
"""


def test_a_client_may_wait_until_it_is_asked_for_the_body(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["slow_auth"].result(2 * PATIENCE)[0] == [100, 200]


def test_a_client_may_wait_until_the_agent_reads(results: dict[str, "Future[Any]"]) -> None:
    assert results["slow_auth"].result(2 * PATIENCE)[1] == 200


def test_a_client_that_was_asked_for_the_body_has_its_time_and_no_more(
    results: dict[str, "Future[Any]"],
) -> None:
    late = TIMEOUT + 1
    assert late + TIMEOUT * 0.9 < results["slow_auth"].result(2 * PATIENCE)[2] < late + 2 * LATE


def slow_auth(url: str, folder: Path) -> list[Any]:
    """What comes of requests to an agent that takes its time to know who calls."""
    options = {"host": "127.0.0.1", "port": 0, "request_timeout": TIMEOUT}
    command = [sys.executable, "-c", SLOW_AUTH, str(folder), json.dumps(options)]
    with process(command, folder.parent) as agent, ThreadPoolExecutor(3) as pool:
        begun = [pool.submit(each, agent.url) for each in (asking_first, held_up, never_sending)]
        return [each.result(PATIENCE) for each in begun]


def parts_of(whole: bytes) -> tuple[bytes, bytes]:
    """The head and the body of a request."""
    head, end, content = whole.partition(b"\r\n\r\n")
    return head + end, content


def asking_first(url: str) -> Any:
    """The answers to a request that waits to be asked for its body."""
    whole = sending(headers=f"Expect: 100-continue\r\nX-Seconds: {TIMEOUT + 1}\r\n")
    head, content = parts_of(whole)
    with connected(url) as line:
        line.say(head)
        first = status_of(line.hear())
        with suppress(ConnectionError):
            line.say(content)
        return [first, status_of(line.hear())]


def held_up(url: str) -> Any:
    """The status of a large message that nobody reads for more than three times the timeout."""
    with connected(url) as line, suppress(ConnectionError):
        line.say(sending(headers=f"X-Seconds: {3.5 * TIMEOUT}\r\n", text="x" * 250_000))
        return status_of(line.hear())


def never_sending(url: str) -> Any:
    """How long a client is waited for that was asked for its body, and does not send it."""
    head, _ = parts_of(sending(headers=f"Expect: 100-continue\r\nX-Seconds: {TIMEOUT + 1}\r\n"))
    begun = time.monotonic()
    with connected(url) as line, suppress(TimeoutError):
        line.say(head)
        line.all()
    return time.monotonic() - begun


def test_while_a_run_is_waited_for_the_body_of_the_next_may_come_slowly(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["half_of_the_next_body"].result(2 * PATIENCE) == [200, 200]


def half_of_the_next_body(url: str, folder: Path) -> list[int]:
    head, content = parts_of(sending())
    with connected(url) as line:
        line.say(sending("nap", data={"seconds": TIMEOUT + 1}) + head + content[:10])
        first = status_of(line.hear())
        line.hear(b"nap")
        with suppress(ConnectionError):
            line.say(content[10:])
        return [first, 200 if b"200 OK" in line.all() else 0]


LONG = [
    *(by_default, kept, steady, long_run, stream, pipelined, blank, refused),
    *(steady_later, half_later, half_of_the_next, half_of_the_next_body, slow_auth),
]


@pytest.fixture(scope="module")
def results(
    url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[Any]"]]:
    """What comes of all that takes long."""
    folder = extensions(tmp_path_factory.mktemp("long"), "echo.py", "nap.py")
    with ThreadPoolExecutor(len(LONG)) as pool:
        yield {each.__name__: pool.submit(each, url, folder) for each in LONG}


def test_a_timeout_must_be_more_than_none_and_an_hour_at_most(tmp_path: Path) -> None:
    for seconds in (0, -1, 3601, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="request_timeout"):
            serve(tmp_path, request_timeout=seconds)
