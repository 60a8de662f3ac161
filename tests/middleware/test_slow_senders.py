"""Request timeouts: slow senders are disconnected, but not clients that wait for the agent."""

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

from tests.facade.processes import extensions, process, serve_command
from tests.server.checking_client import MODERN
from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

from .byhand import (
    AUTHENTICATED,
    HEALTH,
    KEY,
    TIMEOUT,
    connected,
    message,
    message_request,
    request,
    status_of,
)

pytestmark = [pytest.mark.process, pytest.mark.clock]

DEFAULT_TIMEOUT, TOLERANCE, KEEP_ALIVE = 10.0, 5.0, 5.0
"""Seconds: the default timeout, its tolerance, and the keep-alive of uvicorn."""


# Many half-open connections


async def trickle(writer: asyncio.StreamWriter, begin: bytes, rest: bytes) -> None:
    writer.write(begin)
    for byte in rest:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.2)


async def duration(url: str, begin: bytes = b"", rest: bytes = b"") -> float:
    """Send *rest* byte by byte on a new connection; return the seconds until it is closed."""
    address, started = urlsplit(url), time.monotonic()
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    sender = asyncio.create_task(trickle(writer, begin, rest))
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            while await reader.read(65536):
                continue
    seconds = time.monotonic() - started
    sender.cancel()
    with suppress(ConnectionError, asyncio.CancelledError):
        await sender
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return seconds


SLOW = [
    (b"", b""),  # nothing
    (b"", b"POST / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 1000),  # an unfinished header
    (request("/", f"{AUTHENTICATED}Content-Length: 100000\r\n"), b"a" * 1000),  # an unfinished body
]
"""For each half-open connection, bytes sent at once and then bytes sent one by one."""


def latencies(url: str, enough: Callable[[int], bool]) -> list[float]:
    """Send messages one after the other until `enough(count)`; return the seconds of each."""
    durations: list[float] = []
    headers = {**MODERN, "X-API-Key": KEY, "Content-Type": "application/json"}
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE, headers=headers) as client:
        while not enough(len(durations)):
            started = time.perf_counter()
            answer = client.post("/", content=message())
            durations.append(time.perf_counter() - started)
            assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    return durations


@pytest.mark.anyio
async def test_half_open_connections_are_closed_and_hardly_slow_down_others(url: str) -> None:
    before = await asyncio.to_thread(latencies, url, lambda count: count >= 50)
    closed = threading.Event()
    measuring = asyncio.create_task(asyncio.to_thread(latencies, url, lambda _: closed.is_set()))
    try:
        durations = await asyncio.gather(*(duration(url, *slow) for slow in SLOW * 100))
    finally:
        closed.set()
    during = await measuring
    assert min(durations) > TIMEOUT * 0.9
    assert max(durations) < TIMEOUT + TOLERANCE
    assert len(during) >= 10
    assert median(during) < 3 * median(before)
    assert max(during) < 2


# Long scenarios, all started together


def test_the_default_timeout_is_ten_seconds(results: dict[str, "Future[Any]"]) -> None:
    durations = results["default_timeout"].result(2 * PATIENCE)
    assert min(durations) > DEFAULT_TIMEOUT * 0.95
    assert max(durations) < DEFAULT_TIMEOUT + TOLERANCE


def default_timeout(url: str, folder: Path) -> list[float]:
    async def measure_all(url: str) -> list[float]:
        return await asyncio.gather(*(duration(url, *slow) for slow in SLOW * 5))

    with process(serve_command(folder), folder.parent) as agent:
        return asyncio.run(measure_all(agent.url))


def test_a_kept_connection_may_be_idle_for_the_keep_alive_timeout(
    results: dict[str, "Future[Any]"],
) -> None:
    first, second, idle = results["idle_connection"].result(2 * PATIENCE)
    assert (first, second) == (200, 200)
    assert KEEP_ALIVE * 0.9 < idle < KEEP_ALIVE + 2


def idle_connection(url: str, folder: Path) -> tuple[int, int, float]:
    """Return the statuses of two requests, and the seconds until their idle connection is closed.

    The pause between the requests is longer than the request timeout.
    """
    with connected(url) as connection:
        connection.send(HEALTH)
        first = status_of(connection.read_until())
        connection.read_until(b"}")
        time.sleep(TIMEOUT + 1)
        connection.send(HEALTH)
        second, started = status_of(connection.read_until()), time.monotonic()
        connection.read_all()
        return first, second, time.monotonic() - started


def test_a_large_body_that_arrives_steadily_may_take_longer_than_the_timeout(
    results: dict[str, "Future[Any]"],
) -> None:
    status, seconds = results["steady_upload"].result(2 * PATIENCE)
    assert status == 200
    assert seconds > 2 * TIMEOUT


def steady_upload(url: str, folder: Path) -> tuple[int, float]:
    """Send a message of a megabyte at 200 KB/s; return its status and duration."""
    full_request, started = message_request(text="x" * 1_000_000), time.monotonic()
    with connected(url) as connection:
        for start in range(0, len(full_request), 20_000):
            connection.send(full_request[start : start + 20_000])
            time.sleep(0.1)
        return status_of(connection.read_until()), time.monotonic() - started


def test_each_request_on_a_kept_connection_has_its_own_timeout(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["steady_second_upload"].result(2 * PATIENCE) == 200


def steady_second_upload(url: str, folder: Path) -> int:
    """Send half a megabyte at 100 KB/s as the second request of a connection; return its status."""
    full_request = message_request(text="x" * 500_000)
    with connected(url) as connection:
        connection.send(HEALTH)
        connection.read_until(b"}")
        time.sleep(2 * TIMEOUT)
        for start in range(0, len(full_request), 10_000):
            connection.send(full_request[start : start + 10_000])
            time.sleep(0.1)
        return status_of(connection.read_until())


def test_an_incomplete_request_on_a_kept_connection_times_out(
    results: dict[str, "Future[Any]"],
) -> None:
    assert (
        TIMEOUT * 0.9
        < results["incomplete_second_request"].result(2 * PATIENCE)
        < TIMEOUT + TOLERANCE
    )


def incomplete_second_request(url: str, folder: Path) -> float:
    """Return the seconds until an incomplete second request times out."""
    with connected(url) as connection:
        connection.send(HEALTH)
        connection.read_until(b"}")
        time.sleep(TIMEOUT + 1)
        connection.send(HEALTH[:10])
        started = time.monotonic()
        assert status_of(connection.read_all()) == 408
        return time.monotonic() - started


def test_a_long_run_does_not_time_out(results: dict[str, "Future[Any]"]) -> None:
    answer = results["long_run"].result(2 * PATIENCE)
    assert status_of(answer) == 200
    assert b"TASK_STATE_COMPLETED" in answer


def long_run(url: str, folder: Path) -> bytes:
    with connected(url) as connection:
        connection.send(
            message_request("nap", "Connection: close\r\n", data={"seconds": TIMEOUT + 1})
        )
        return connection.read_all()


def test_a_stream_does_not_time_out(results: dict[str, "Future[Any]"]) -> None:
    answer, seconds = results["stream"].result(2 * PATIENCE)
    assert answer.count(b"\ndata:") >= 3
    assert b"TASK_STATE_COMPLETED" in answer
    assert seconds > 2 * TIMEOUT


def stream(url: str, folder: Path) -> tuple[bytes, float]:
    started = time.monotonic()
    body = message("nap", method="SendStreamingMessage", data={"seconds": 2 * TIMEOUT})
    with connected(url) as connection:
        connection.send(request("/", AUTHENTICATED + "Connection: close\r\n", body))
        return connection.read_all(), time.monotonic() - started


def test_requests_may_be_pipelined(
    results: dict[str, "Future[Any]"],
) -> None:
    answer = results["pipelined_requests"].result(2 * PATIENCE)
    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert answer.count(b"TASK_STATE_COMPLETED") == 2


def pipelined_requests(url: str, folder: Path) -> bytes:
    long, last = {"seconds": TIMEOUT + 1}, request("/health", "Connection: close\r\n", verb="GET")
    with connected(url) as connection:
        connection.send(
            message_request("nap", data=long)
            + message_request("nap", data={"seconds": 0})
            + HEALTH
            + last
        )
        return connection.read_all()


def test_blank_lines_do_not_keep_a_connection_open(results: dict[str, "Future[Any]"]) -> None:
    for seconds in results["blank_lines"].result(2 * PATIENCE):
        assert TIMEOUT * 0.9 < seconds < TIMEOUT + TOLERANCE


def blank_lines(url: str, folder: Path) -> list[float]:
    async def measure_both() -> list[float]:
        lines = b"\r\n" * 100
        return [*await asyncio.gather(duration(url, b"", lines), duration(url, HEALTH, lines))]

    return asyncio.run(measure_both())


def test_after_a_refusal_the_rest_of_the_body_times_out(
    results: dict[str, "Future[Any]"],
) -> None:
    head, durations = results["refused_uploads"].result(2 * PATIENCE)
    assert status_of(head) == 401
    for seconds in durations:
        assert TIMEOUT * 0.9 < seconds < TIMEOUT + TOLERANCE


def refused_uploads(url: str, folder: Path) -> tuple[bytes, list[float]]:
    plain_head = request("/", "Content-Length: 100000\r\n")
    chunked_head = request("/", "Transfer-Encoding: chunked\r\n")

    async def measure_both() -> list[float]:
        uploads = [(plain_head, b"a" * 1000), (chunked_head, b"1\r\na\r\n" * 1000)]
        return await asyncio.gather(*(duration(url, *arguments) for arguments in uploads))

    with connected(url) as connection:
        connection.send(plain_head)
        return connection.read_until(), asyncio.run(measure_both())


def test_the_next_request_may_arrive_slowly_during_a_run(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["next_request_in_parts"].result(2 * PATIENCE) == [200, 200]


def next_request_in_parts(url: str, folder: Path) -> list[int]:
    with connected(url) as connection:
        connection.send(message_request("nap", data={"seconds": TIMEOUT + 1}) + HEALTH[:10])
        first = status_of(connection.read_until())
        connection.read_until(b"nap")
        connection.send(HEALTH[10:])
        return [first, 200 if b"200 OK" in connection.read_all() else 0]


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


def test_a_client_may_wait_for_100_continue(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["slow_auth"].result(2 * PATIENCE)[0] == [100, 200]


def test_a_client_may_wait_until_the_agent_reads(results: dict[str, "Future[Any]"]) -> None:
    assert results["slow_auth"].result(2 * PATIENCE)[1] == 200


def test_after_100_continue_the_body_has_the_usual_timeout(
    results: dict[str, "Future[Any]"],
) -> None:
    wait = TIMEOUT + 1
    assert (
        wait + TIMEOUT * 0.9 < results["slow_auth"].result(2 * PATIENCE)[2] < wait + 2 * TOLERANCE
    )


def slow_auth(url: str, folder: Path) -> list[Any]:
    """Return the results of requests to an agent with a slow authenticator."""
    options = {"host": "127.0.0.1", "port": 0, "request_timeout": TIMEOUT}
    command = [sys.executable, "-c", SLOW_AUTH, str(folder), json.dumps(options)]
    with process(command, folder.parent) as agent, ThreadPoolExecutor(4) as pool:
        futures = [
            pool.submit(scenario, agent.url)
            for scenario in (expecting_continue, delayed_read, never_sending, delayed_body)
        ]
        return [future.result(PATIENCE) for future in futures]


def head_and_body(full_request: bytes) -> tuple[bytes, bytes]:
    """Return the head and the body of a request."""
    head, end, content = full_request.partition(b"\r\n\r\n")
    return head + end, content


def expecting_continue(url: str) -> Any:
    """Return the statuses for a request that waits for 100 Continue."""
    full_request = message_request(headers=f"Expect: 100-continue\r\nX-Seconds: {TIMEOUT + 1}\r\n")
    head, content = head_and_body(full_request)
    with connected(url) as connection:
        connection.send(head)
        first = status_of(connection.read_until())
        with suppress(ConnectionError):
            connection.send(content)
        return [first, status_of(connection.read_until())]


def delayed_read(url: str) -> Any:
    """Return the status of a large message that is not read for over three times the timeout."""
    with connected(url) as connection, suppress(ConnectionError):
        connection.send(
            message_request(headers=f"X-Seconds: {3.5 * TIMEOUT}\r\n", text="x" * 250_000)
        )
        return status_of(connection.read_until())


def never_sending(url: str) -> Any:
    """Return the seconds until a client that never sends its body is disconnected."""
    head, _ = head_and_body(
        message_request(headers=f"Expect: 100-continue\r\nX-Seconds: {TIMEOUT + 1}\r\n")
    )
    started = time.monotonic()
    with connected(url) as connection, suppress(TimeoutError):
        connection.send(head)
        connection.read_all()
    return time.monotonic() - started


def delayed_body(url: str) -> Any:
    """Return the status of a request whose body comes half a timeout after 100 Continue.

    The agent checks a connection after each timeout, and here it sends 100 Continue just before a
    check.
    """
    seconds = 2.9 * TIMEOUT
    head, content = head_and_body(
        message_request(headers=f"Expect: 100-continue\r\nX-Seconds: {seconds}\r\n")
    )
    with connected(url) as connection:
        connection.send(head)
        connection.read_until()
        time.sleep(TIMEOUT / 2)
        with suppress(ConnectionError):
            connection.send(content)
            return status_of(connection.read_until())


def test_a_body_may_come_half_a_timeout_after_a_late_100_continue(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["slow_auth"].result(2 * PATIENCE)[3] == 200


def test_the_body_of_the_next_request_may_arrive_slowly_during_a_run(
    results: dict[str, "Future[Any]"],
) -> None:
    assert results["next_body_in_parts"].result(2 * PATIENCE) == [200, 200]


def next_body_in_parts(url: str, folder: Path) -> list[int]:
    head, content = head_and_body(message_request())
    with connected(url) as connection:
        connection.send(message_request("nap", data={"seconds": TIMEOUT + 1}) + head + content[:10])
        first = status_of(connection.read_until())
        connection.read_until(b"nap")
        with suppress(ConnectionError):
            connection.send(content[10:])
        return [first, 200 if b"200 OK" in connection.read_all() else 0]


SCENARIOS = [
    default_timeout,
    idle_connection,
    steady_upload,
    long_run,
    stream,
    pipelined_requests,
    blank_lines,
    refused_uploads,
    steady_second_upload,
    incomplete_second_request,
    next_request_in_parts,
    next_body_in_parts,
    slow_auth,
]


@pytest.fixture(scope="module")
def results(
    url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[Any]"]]:
    """Start all long scenarios together, and yield their futures by name."""
    folder = extensions(tmp_path_factory.mktemp("long"), "echo.py", "nap.py")
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        yield {scenario.__name__: pool.submit(scenario, url, folder) for scenario in SCENARIOS}


def test_the_timeout_must_be_positive_and_at_most_an_hour(tmp_path: Path) -> None:
    for seconds in (0, -1, 3601, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="request_timeout"):
            serve(tmp_path, request_timeout=seconds)
