"""The example receiver, run as a user runs it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import httpx
import pytest
from apcore_a2a_server.push.settings import origin_of
from apcore_a2a_server.push.signing import receiver_secret
from standardwebhooks import Webhook

from tests.push.agents import SECRET, agent
from tests.push.receiver import free_port
from tests.serving import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.smoke]

SCRIPT = Path(__file__).parents[2] / "examples" / "receiver.py"
STATES = ["submitted", "working", "completed"]


@contextmanager
def receiver() -> Iterator[tuple[str, IO[str]]]:
    """Run the example in a separate process; yield its URL and its output."""
    port = free_port()
    command = [sys.executable, str(SCRIPT), str(port)]
    environment = {**os.environ, "PUSH_SECRET": secret_of(f"http://127.0.0.1:{port}/")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, env=environment, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == f"Receiving at http://127.0.0.1:{port}/\n"
        try:
            yield f"http://127.0.0.1:{port}/", process.stdout
        finally:
            process.terminate()
            process.wait(PATIENCE)


def secret_of(url: str) -> str:
    """Return the secret of a receiver."""
    return receiver_secret(SECRET, origin_of(url))


def signed_headers(
    url: str, body: str, *, message_id: str = "msg_1", age: float = 0
) -> dict[str, str]:
    """Return the headers of a notification that is *age* seconds old."""
    sent_at = datetime.now(UTC) - timedelta(seconds=age)
    signature = Webhook(secret_of(url)).sign(message_id, sent_at, body)
    timestamp = str(int(sent_at.timestamp()))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature,
    }


def test_each_state_of_a_task_is_printed_once_in_0_3_and_in_1_0() -> None:
    with receiver() as (url, lines), agent() as caller:
        for send in (caller.send, caller.send_old):
            task = send(url=url)
            printed = [lines.readline() for _ in STATES]
            assert printed == [f"task {task['id']} is {state}\n" for state in STATES]


def test_forged_and_old_notifications_are_refused_and_none_is_printed_twice() -> None:
    body = '{"id": "t1", "status": {"state": "working"}}'
    with receiver() as (url, lines):
        assert httpx.post(url, content=body).status_code == 401
        assert (
            httpx.post(url, content=body + " ", headers=signed_headers(url, body)).status_code
            == 401
        )
        assert (
            httpx.post(url, content=body, headers=signed_headers(url, body, age=400)).status_code
            == 401
        )
        assert httpx.post(url, content=body, headers=signed_headers(url, body)).status_code == 204
        assert httpx.post(url, content=body, headers=signed_headers(url, body)).status_code == 204
        other_body = body.replace("t1", "t2")
        headers = signed_headers(url, other_body, message_id="msg_2")
        assert httpx.post(url, content=other_body, headers=headers).status_code == 204
        assert lines.readline() == "task t1 is working\n"
        assert lines.readline() == "task t2 is working\n"


@pytest.mark.parametrize(
    ("length", "status"), [("-1", 400), ("many", 400), ("9" * 5000, 413), ("99999999", 413)]
)
def test_invalid_and_excessive_content_lengths_are_refused(length: str, status: int) -> None:
    with receiver() as (url, _):
        connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
        connection.putrequest("POST", "/")
        connection.putheader("content-length", length)
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


def test_without_a_secret_the_receiver_exits_with_a_message() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PUSH_SECRET"}
    result = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith("PUSH_SECRET must be")
