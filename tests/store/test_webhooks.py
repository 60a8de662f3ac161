"""Notifications and timeouts of pending input survive the process that created them."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.facade.processes import process
from tests.push.receiver import OK, Delivery, Receiver, Reply, free_port, receiving
from tests.server.conftest import eventually

from .postgresql import Database
from .proxies import CuttableLink
from .replicas import LEASE, Replica, write_modules

pytestmark = pytest.mark.process

SERVE = """
import json
import sys
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server import serve
from apcore_a2a_server.store import open_store

store = open_store(sys.argv[2])
store.lease_seconds = float(sys.argv[3])
options = json.loads(sys.argv[4])
push = PushSettings(dev=True, **options.pop("push", {}))
serve(
    sys.argv[1], host="127.0.0.1", port=0, task_store=store, shutdown_timeout=1,
    push_notifications=push, **options
)
"""
QUICK = {"timeout": 1, "retries": [0.2] * 100}


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.database)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"sqlite:///{tmp_path / 'agent.db'}"
    server: Database = request.getfixturevalue("server")
    server.clear()
    return server.url


@contextmanager
def serving(home: Path, store: str, **options: Any) -> Iterator[Replica]:
    """Run a replica that serves the modules of *home* and delivers notifications."""
    options = {"push": QUICK, **options}
    command = [sys.executable, "-c", SERVE, str(write_modules(home)), store, str(LEASE)]
    with process([*command, json.dumps(options)], home) as server:
        agent = Replica(server, home)
        with agent.client:
            yield agent
        server.end(signal.SIGTERM)


def send(agent: Replica, url: str) -> str:
    """Start a task with a webhook and return its id."""
    answer = agent.ask(
        "SendMessage",
        message={"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"seconds": 0}}]},
        metadata={"skillId": "again"},
        configuration={
            "returnImmediately": True,
            "taskPushNotificationConfig": {"id": "w", "url": url},
        },
    )
    task_id: str = answer["result"]["task"]["id"]
    return task_id


def states(receiver: Receiver) -> list[str]:
    """Return the states in the order of their first notifications."""
    return [*dict.fromkeys(delivery.state for delivery in receiver.deliveries)]


def test_notifications_of_a_killed_process_are_delivered_by_the_next(
    tmp_path: Path, store: str
) -> None:
    port = free_port()
    with serving(tmp_path, store) as first:
        tasks = [send(first, f"http://127.0.0.1:{port}/hook") for _ in range(3)]
        first.wait_for_end(*tasks)
        first.process.signal(signal.SIGKILL)
    with serving(tmp_path, store), receiving(port=port) as receiver:
        receiver.wait(9, 30)
        for task_id in tasks:
            delivered = [
                delivery.state for delivery in receiver.deliveries if task_of(delivery) == task_id
            ]
            assert [*dict.fromkeys(delivered)] == ["submitted", "working", "completed"]


def task_of(delivery: Delivery) -> str:
    """Return the id of the task of a notification."""
    event = delivery.json.get("task") or delivery.json["statusUpdate"]
    task_id: str = event.get("taskId") or event["id"]
    return task_id


def test_notifications_pending_at_a_stop_are_delivered_after_the_restart(
    tmp_path: Path, store: str
) -> None:
    port = free_port()
    with serving(tmp_path, store, push={"retries": [3, 3]}) as first:
        first.wait_for_end(send(first, f"http://127.0.0.1:{port}/hook"))
        assert first.process.end(signal.SIGTERM) == 0
    with serving(tmp_path, store, push={"retries": [3, 3]}), receiving(port=port) as receiver:
        receiver.wait(3, 20)
        assert states(receiver) == ["submitted", "working", "completed"]


def test_a_failed_webhook_is_still_failed_after_a_restart(tmp_path: Path, store: str) -> None:
    with receiving(lambda delivery: Reply(410)) as receiver:
        with serving(tmp_path, store) as first:
            task_id = send(first, receiver.url)
            receiver.wait(1)
            first.wait_for_end(task_id)
        with serving(tmp_path, store) as second:
            config = second.ask("GetTaskPushNotificationConfig", taskId=task_id, id="w")["result"]
            assert (config["status"], config["reason"]) == ("failed", "status 410")
    assert len(receiver) == 1


def test_pending_input_expires_after_its_process_is_killed(tmp_path: Path, store: str) -> None:
    with serving(tmp_path, store, input_timeout=3) as first:
        paused_id = first.start("asks", seconds=0)
        eventually(lambda: first.state(paused_id) == "input-required")
        first.process.signal(signal.SIGKILL)
    with serving(tmp_path, store, input_timeout=3) as second:
        assert second.wait_for_end(paused_id) == ["failed"]
        message_parts = second.task(paused_id)["status"]["message"]["parts"]
        assert message_parts == [{"text": "Approval expired: no answer arrived in time"}]


def test_a_process_shuts_down_in_time_when_the_database_hangs(
    tmp_path: Path, server: Database
) -> None:
    server.clear()
    with (
        CuttableLink(server.port) as link,
        receiving(lambda delivery: Reply(silent=True)) as receiver,
        serving(tmp_path, link.rerouted_url(server.url), push={"timeout": 600}) as agent,
    ):
        for _ in range(8):
            send(agent, receiver.url)
        receiver.wait(8)
        link.cut()
        assert agent.process.end(signal.SIGTERM) == 0
        link.heal()


def test_a_suspended_process_repeats_no_notification_that_others_have_delivered(
    tmp_path: Path, server: Database
) -> None:
    server.clear()
    is_suspended = threading.Event()

    def answer(delivery: Delivery) -> Reply:
        return OK if is_suspended.is_set() or len(receiver) == 1 else Reply(silent=True)

    port = free_port()
    with serving(tmp_path, server.url) as suspended:
        suspended.wait_for_end(
            *(send(suspended, f"http://127.0.0.1:{port}/hook") for _ in range(20))
        )
        with receiving(answer, port=port) as receiver:
            receiver.wait(9)
            suspended.process.signal(signal.SIGSTOP)
            is_suspended.set()
            with serving(tmp_path, server.url):
                eventually(lambda: len({delivery.id for delivery in receiver.deliveries}) == 60)
            delivered, failures = len(receiver), suspended.process.log.count("no answer")
            suspended.process.signal(signal.SIGCONT)
            eventually(lambda: suspended.process.log.count("no answer") > failures)
            assert suspended.process.end(signal.SIGTERM) == 0
            assert len(receiver) == delivered


def test_webhooks_set_through_any_replica_are_notified(tmp_path: Path, server: Database) -> None:
    server.clear()
    with (
        receiving() as receiver,
        receiving() as other_receiver,
        serving(tmp_path, server.url) as first,
        serving(tmp_path, server.url) as second,
    ):
        task_id = first.start("once", seconds=2)
        for agent, name, url in ((second, "a", receiver.url), (first, "b", other_receiver.url)):
            agent.ask("CreateTaskPushNotificationConfig", taskId=task_id, id=name, url=url)
        listed = second.ask("ListTaskPushNotificationConfigs", taskId=task_id)["result"]["configs"]
        assert [config["id"] for config in listed] == ["a", "b"]
        first.wait_for_end(task_id)
        receiver.wait(1)
        other_receiver.wait(1)
        assert states(receiver) == states(other_receiver) == ["completed"]


def test_webhooks_set_at_the_same_time_are_all_kept(tmp_path: Path, server: Database) -> None:
    server.clear()
    with serving(tmp_path, server.url) as first, serving(tmp_path, server.url) as second:
        task_id = first.start("once", seconds=600)
        bodies = [
            first.request(
                "CreateTaskPushNotificationConfig",
                taskId=task_id,
                id=f"w{number}",
                url="http://127.0.0.1:9/hook",
            )
            for number in range(10)
        ]
        post_concurrently(first, second, bodies)
        listed = second.ask("ListTaskPushNotificationConfigs", taskId=task_id)["result"]["configs"]
        assert {config["id"] for config in listed} == {f"w{number}" for number in range(10)}
        first.ask("CancelTask", id=task_id)


def post_concurrently(first: Replica, second: Replica, bodies: list[Any]) -> None:
    """Post the requests at the same time, to each replica in turn."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        posts = [
            pool.submit((first, second)[number % 2].client.post, "/", json=body)
            for number, body in enumerate(bodies)
        ]
        for post in posts:
            assert "result" in post.result().json(), post.result().text
