"""Push notifications as a whole: isolation, metrics, log records and shutdown."""

import logging
from base64 import b64encode
from typing import Any

import pytest
from apcore_a2a_server.push import PushSettings

from tests.server.conftest import eventually
from tests.serving import PATIENCE

from .agents import agent
from .receiver import Delivery, Reply, free_port, receiving

local_store = pytest.mark.usefixtures("local_store")
QUICK = (0.05, 0.1)
NOWHERE = "http://127.0.0.1:{}/hook?key=hunter2"
SILENT = Reply(silent=True)
LONG = 2 * PATIENCE
"""Seconds: longer than tests wait for anything."""


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about push notifications."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "apcore_a2a.push" and record.levelno == logging.WARNING
    ]


@local_store
def test_a_silent_webhook_delays_no_task() -> None:
    with receiving(lambda delivery: SILENT) as receiver, agent(timeout=LONG) as caller:
        for _ in range(50):
            assert caller.send(url=receiver.url)["status"]["state"] == "TASK_STATE_COMPLETED"
        eventually(lambda: caller.metrics()["webhooks_pending"] == 150)


@local_store
def test_a_silent_receiver_delays_no_other_receiver() -> None:
    def answer(delivery: Delivery) -> Reply:
        return SILENT

    with receiving(answer) as dead, receiving() as good, agent(timeout=LONG) as caller:
        good_url = good.url.replace("127.0.0.1", "localhost")  # limits are per host
        for _ in range(50):
            caller.send(url=dead.url)
        caller.send(url=good_url)
        good.wait(3)


@local_store
def test_metrics_count_delivered_retried_failed_and_pending_notifications() -> None:
    with receiving() as receiver, agent(retries=QUICK) as caller:
        before = caller.metrics()
        counts = {"delivered": 0, "retried": 0, "failed": 0, "pending": 0, "pending_age_seconds": 0}
        assert {name: before[f"webhooks_{name}"] for name in counts} == counts
        caller.send(url=receiver.url)
        caller.send(url=NOWHERE.format(free_port()))
        eventually(lambda: caller.metrics()["webhooks_failed"] == 3)
        eventually(lambda: caller.metrics()["webhooks_pending"] == 0)
        metrics = caller.metrics()
        assert metrics["webhooks_delivered"] == 3
        assert metrics["webhooks_retried"] == 2
        assert metrics["webhooks_failed"] == 3
        receiver.answer = lambda delivery: SILENT
        caller.send(url=receiver.url)
        eventually(lambda: caller.metrics()["webhooks_pending_age_seconds"] > 0.2)
        assert caller.metrics()["webhooks_pending"] == 3


@local_store
def test_attempts_are_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    authentication = {"scheme": "Bearer", "credentials": "hunter3"}
    url = NOWHERE.format(free_port())
    with caplog.at_level(logging.DEBUG), agent(retries=QUICK) as caller:
        task = caller.send(id="hook-1", url=url, token="hunter4", authentication=authentication)
        eventually(lambda: caller.config(task)["status"] == "failed")
    warnings = warnings_of(caplog)
    assert len(warnings) == 3
    name = f"webhook hook-1 of task {task['id']} at 127.0.0.1"
    assert warnings[0] == f"Attempt 1 of 3 for {name} failed: ConnectError; retrying in 0.05 s"
    assert warnings[1] == f"Attempt 2 of 3 for {name} failed: ConnectError; retrying in 0.1 s"
    assert warnings[2] == f"The {name} has failed: ConnectError; it gets no more notifications"
    own_messages = [record.getMessage() for record in caplog.records if "apcore" in record.name]
    assert "hunter" not in "".join(own_messages)


@local_store
def test_content_of_a_receivers_answer_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    cut = Reply(cut=b"HTTP/1.1 200 forged\nWARNING all is well\r\n\x1b[31m: \r\n\r\n")
    with (
        caplog.at_level(logging.WARNING),
        receiving(lambda delivery: cut) as receiver,
        agent(retries=QUICK) as caller,
    ):
        task = caller.send(url=receiver.url)
        eventually(lambda: caller.config(task)["status"] == "failed")
    assert "forged" not in caplog.text
    assert "\x1b" not in caplog.text


@local_store
def test_pending_notifications_are_limited_and_a_webhook_over_the_limit_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        receiving(lambda delivery: SILENT) as dead,
        agent(max_pending=10, timeout=0.5, retries=[60]) as caller,
    ):
        tasks = [caller.send(url=dead.url) for _ in range(6)]
        assert caller.metrics()["webhooks_pending"] <= 10
        eventually(lambda: caller.config(tasks[-1])["status"] == "failed")
        assert caller.config(tasks[-1])["reason"] == "too many pending notifications"
        assert caller.config(tasks[0])["status"] == "active"
    assert any("too many pending notifications" in line for line in warnings_of(caplog))


def test_pending_notifications_are_tried_once_more_at_shutdown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with receiving(lambda delivery: Reply(500)) as receiver:
        with agent({"shutdown_timeout": LONG}, retries=[600]) as caller:
            caller.send(url=receiver.url)
            receiver.wait(1)
            receiver.answer = lambda delivery: Reply()
        assert receiver.states == ["submitted", "submitted", "working", "completed"]
    assert not [line for line in warnings_of(caplog) if "lost" in line]


@local_store
def test_the_end_of_a_task_at_shutdown_is_delivered() -> None:
    with receiving() as receiver:
        with agent({"shutdown_timeout": 0.5}) as caller:
            caller.send("held", wait=False, url=receiver.url)
            receiver.wait(2)
        assert receiver.states == ["submitted", "working", "failed"]


@pytest.mark.parametrize("seconds", [0, 0.5])
def test_notifications_lost_at_shutdown_are_logged(
    seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        receiving(lambda delivery: SILENT) as receiver,
        agent({"shutdown_timeout": seconds}, timeout=LONG) as caller,
    ):
        task = caller.send(id="c", url=receiver.url)
        receiver.wait(1)
    lost = [line for line in warnings_of(caplog) if "lost" in line]
    webhook = f"webhook c of task {task['id']} at 127.0.0.1"
    assert lost == [f"3 notifications for {webhook} are lost: the server is shutting down"]


def test_missing_secrets_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with agent(secrets=[]):
        assert any("not signed" in line for line in warnings_of(caplog))
    caplog.clear()
    with agent():
        assert not warnings_of(caplog)


@pytest.mark.parametrize("length", [24, 25, 26, 32, 64])
def test_a_secret_is_base64_with_or_without_padding(length: int) -> None:
    text = b64encode(bytes(length)).decode()
    for secret in (text, text.rstrip("="), f"whsec_{text}"):
        assert PushSettings(secrets=[secret]).secrets == [secret]


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"secrets": "whsec_QUJDREVGQUJDREVGQUJDREVGQUJDREVG"}, "secrets"),
        ({"secrets": ["whsec_c2hvcnQ="]}, "secrets"),
        ({"secrets": ["not base64!"]}, "secrets"),
        ({"retries": [-1]}, "retries"),
        ({"retries": [float("nan")]}, "retries"),
        ({"timeout": 0}, "timeout"),
        ({"ports": [0]}, "ports"),
        ({"ports": [70000]}, "ports"),
        ({"max_pending": 0}, "max_pending"),
        ({"allowed_hosts": "example.com"}, "allowed_hosts"),
        ({"allowed_hosts": ["10.0.0.1/8"]}, "allowed_hosts"),
        ({"allowed_hosts": ["a.*.com"]}, "allowed_hosts"),
        ({"proxy": "proxy:3128"}, "proxy"),
    ],
)
def test_invalid_settings_are_refused_by_name(settings: Any, setting: str) -> None:
    with pytest.raises(ValueError, match=rf"^{setting}\b") as refused, agent(**settings):
        pass
    assert "c2hvcnQ" not in str(refused.value)
