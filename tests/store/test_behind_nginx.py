"""Several replicas behind nginx, configured as in the examples, act as one agent."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.server.conftest import eventually

from .nginx import PROGRAM, behind_nginx
from .postgresql import Database
from .replicas import TIMEOUT, Agent, Json, check_log, replica

pytestmark = pytest.mark.process

STEPS, SECONDS = 20, 0.2


def follow(site: Agent, has_begun: Event) -> tuple[list[tuple[int, Json]], float, bool]:
    """Start a task and read its stream to its end, resuming it if it breaks.

    Returns:
        The events, the seconds from the first to the last, and whether the stream broke.
    """
    events, first_at, broke = list[tuple[int, Json]](), 0.0, False
    try:
        with site.stream("steps", seconds=SECONDS, steps=STEPS) as stream:
            for event in stream:
                first_at = first_at or time.monotonic()
                events.append(event)
                has_begun.set()
    except httpx.RemoteProtocolError:
        broke = True
        # a GET makes nginx skip the dying replica, and is repeated elsewhere; a POST would get 502
        eventually(lambda: site.client.get("/health").status_code == 200)
        events += site.events(events[0][1]["task"]["id"], after=events[-1][0])
    return events, time.monotonic() - first_at, broke


@pytest.mark.skipif(
    PROGRAM is None, reason="No nginx here; Debian and Ubuntu: apt install nginx-light"
)
def test_streams_are_not_buffered_and_resume_on_another_replica(
    tmp_path: Path, server: Database
) -> None:
    server.clear()
    with ExitStack() as stack:
        replicas = [stack.enter_context(replica(tmp_path, server.url)) for _ in range(3)]
        site = stack.enter_context(behind_nginx(tmp_path, *replicas))
        assert site.client.get("/health").json()["status"] == "healthy"
        assert site.client.get("/metrics").status_code == 404
        begun = [Event() for _ in replicas]
        with ThreadPoolExecutor() as threads:
            streams = [threads.submit(follow, site, has_begun) for has_begun in begun]
            assert all(has_begun.wait(TIMEOUT) for has_begun in begun)
            replicas[0].process.signal(signal.SIGKILL)
            assert site.wait_for_end(site.start("again", seconds=0)) == ["completed"]
        results = [stream.result() for stream in streams]
    assert sorted(broke for *_, broke in results) == [False, False, True]
    for events, seconds, _ in results:
        check_log(events)
        assert seconds > STEPS * SECONDS / 2
