"""Routes for webhooks below /apcore/: attempts, test notifications and redelivery."""

import logging
from typing import Any

import pytest
from apcore import Identity
from apcore_a2a_auth import APIKeyAuthenticator

from tests.server.conftest import eventually

from .agents import Caller, agent, verify
from .receiver import Delivery, Json, Reply, receiving, script

pytestmark = pytest.mark.usefixtures("every_store")

QUICK = (0.05, 0.1)
ADA, BOB, OP, BOSS = ({"x-api-key": f"the key of {name}"} for name in ("ada", "bob", "op", "boss"))
ROLES = {"ada": (), "bob": (), "op": ("operator",), "boss": ("boss",)}


def auth_options() -> Json:
    """Return the options of an agent with four callers, one of whom is an operator."""
    identities = {
        f"the key of {name}": Identity(name, roles=roles) for name, roles in ROLES.items()
    }
    auth = APIKeyAuthenticator(identities)
    return {"auth": auth, "operators": "operator", "approvers": "boss", "metrics": False}


def webhook(caller: Caller, task: Json) -> Json:
    """Return the only webhook of a task."""
    response = caller.get(f"tasks/{task['id']}/webhooks")
    assert response.status_code == 200, response.text
    (document,) = response.json()["webhooks"]
    return dict(document)


def results(document: Json) -> list[tuple[Any, ...]]:
    return [
        (attempt["result"], attempt["status"], attempt["reason"])
        for attempt in document["attempts"]
    ]


def audited_operations(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the operations in the audit log, each with its operator."""
    records = [record for record in caplog.records if record.name == "apcore_a2a.audit"]
    return [(vars(record)["operation"], vars(record)["operator"]) for record in records]


def test_the_attempts_of_a_webhook_are_listed() -> None:
    with receiving(script(Reply(503))) as receiver, agent(retries=QUICK) as caller:
        task = caller.send(id="w", url=f"{receiver.url}?key=secret")
        receiver.wait_for("completed")
        eventually(lambda: len(webhook(caller, task)["attempts"]) == 4)
        document = webhook(caller, task)
        listed = caller.get("webhooks").json()["webhooks"]
    assert results(document) == [("delivered", 200, None)] * 3 + [("retried", 503, "status")]
    assert listed == [document]
    attempts = document.pop("attempts")
    assert document == {
        "taskId": task["id"],
        "id": "w",
        "url": receiver.url,
        "state": "active",
        "reason": None,
        "pending": 0,
        "nextAttemptAt": None,
    }
    times = [attempt["at"] for attempt in attempts]
    assert times == sorted(times, reverse=True)
    assert all(
        time.endswith("Z") and attempt["seconds"] > 0
        for time, attempt in zip(times, attempts, strict=True)
    )


def test_a_pending_webhook_says_when_the_next_attempt_is_due() -> None:
    with receiving(lambda delivery: Reply(500)) as receiver, agent(retries=(600,)) as caller:
        task = caller.send("held", wait=False, url=receiver.url)
        eventually(lambda: webhook(caller, task)["attempts"])
        document = webhook(caller, task)
        caller.held.release()
    assert document["pending"] == 2
    assert document["nextAttemptAt"] > document["attempts"][0]["at"]


@pytest.mark.parametrize(
    ("reply", "reason"), [(Reply(cut=b"HTTP/1.1 2"), "connection"), (Reply(404), "status")]
)
def test_the_reason_of_a_failure_is_a_fixed_word(reply: Reply, reason: str) -> None:
    with receiving(lambda delivery: reply) as receiver, agent(retries=()) as caller:
        task = caller.send(url=receiver.url)
        eventually(lambda: webhook(caller, task)["state"] == "failed")
        assert [result[2] for result in results(webhook(caller, task))] == [reason]


def test_redelivery_sends_all_notifications_that_a_failed_webhook_has_missed() -> None:
    repaired: list[bool] = []

    def answer(delivery: Delivery) -> Reply:
        return Reply() if repaired else Reply(500)

    with receiving(answer) as receiver, agent(retries=()) as caller:
        task = caller.send("held", wait=False, id="w", url=receiver.url)
        eventually(lambda: webhook(caller, task)["state"] == "failed")
        caller.held.release()
        eventually(
            lambda: (
                caller.ask("GetTask", id=task["id"])["status"]["state"] == "TASK_STATE_COMPLETED"
            )
        )
        repaired.append(True)
        response = caller.post(f"tasks/{task['id']}/webhooks/w/redeliver")
        assert (response.status_code, response.json()) == (202, {"requeued": 3})
        receiver.wait_for("completed")
        assert [delivery.state for delivery in receiver.deliveries[1:]] == [
            "submitted",
            "working",
            "completed",
        ]
        eventually(lambda: len(webhook(caller, task)["attempts"]) == 4)
        assert webhook(caller, task)["state"] == "active"
        second = caller.post(f"tasks/{task['id']}/webhooks/w/redeliver")
        assert (second.status_code, second.json()) == (202, {"requeued": 0})


def test_redelivery_to_a_webhook_of_03_sends_the_task_in_each_state() -> None:
    repaired: list[bool] = []

    def answer(delivery: Delivery) -> Reply:
        return Reply() if repaired else Reply(410)

    with receiving(answer) as receiver, agent() as caller:
        task = caller.send_old(id="w", url=receiver.url)
        eventually(lambda: webhook(caller, task)["state"] == "failed")
        repaired.append(True)
        caller.post(f"tasks/{task['id']}/webhooks/w/redeliver")
        deliveries = receiver.wait(4)[1:]
    assert [delivery.json["status"]["state"] for delivery in deliveries] == [
        "submitted",
        "working",
        "completed",
    ]


def test_a_test_notification_is_one_attempt_that_changes_nothing() -> None:
    with receiving() as receiver, agent() as caller:
        task = caller.send(id="w", token="t-1", url=receiver.url)
        receiver.wait(3)
        eventually(lambda: len(webhook(caller, task)["attempts"]) == 3)
        response = caller.post(f"tasks/{task['id']}/webhooks/w/test")
        attempt = response.json()["attempt"]
        assert (response.status_code, attempt["result"], attempt["status"]) == (
            200,
            "delivered",
            200,
        )
        test = receiver.wait(4)[-1]
        assert verify(test, receiver.url)["statusUpdate"]["metadata"] == {"apcore": {"test": True}}
        assert test.headers["x-a2a-notification-token"] == "t-1"
        assert test.id not in {delivery.id for delivery in receiver.deliveries[:3]}
        assert len(webhook(caller, task)["attempts"]) == 3


def test_a_test_notification_to_a_failed_webhook_says_why_it_fails() -> None:
    with receiving(lambda delivery: Reply(410)) as receiver, agent() as caller:
        task = caller.send_old(id="w", url=receiver.url)
        eventually(lambda: webhook(caller, task)["state"] == "failed")
        attempt = caller.post(f"tasks/{task['id']}/webhooks/w/test").json()["attempt"]
        assert (attempt["result"], attempt["reason"]) == ("failed", "status")
        body = receiver.wait(2)[1].json
        assert (body["kind"], body["metadata"]["apcore"]["test"]) == ("task", True)
        assert webhook(caller, task)["state"] == "failed"


def test_an_unknown_task_or_webhook_is_not_found() -> None:
    with receiving() as receiver, agent() as caller:
        task = caller.send(id="w", url=receiver.url)
        for path in (
            "tasks/other/webhooks/w/test",
            "tasks/other/webhooks/w/redeliver",
            f"tasks/{task['id']}/webhooks/other/test",
            f"tasks/{task['id']}/webhooks/other/redeliver",
        ):
            response = caller.post(path)
            assert (response.status_code, response.json()["error"]["code"]) == (404, "NOT_FOUND")
        assert caller.get("tasks/other/webhooks").status_code == 404
        assert caller.get(f"tasks/{task['id']}/webhooks/w/test").status_code == 405


def test_lists_are_filtered_and_bounded() -> None:
    with receiving() as good, receiving(lambda delivery: Reply(410)) as bad, agent() as caller:
        active_ids = [caller.send(url=good.url)["id"] for _ in range(3)]
        failing_id = caller.send(url=bad.url)["id"]
        failing_task = {"id": failing_id}
        eventually(lambda: webhook(caller, failing_task)["state"] == "failed")

        def tasks(**params: Any) -> list[str]:
            listed: list[Json] = caller.get("webhooks", **params).json()["webhooks"]
            return [item["taskId"] for item in listed]

        assert tasks() == [failing_id, *reversed(active_ids)]
        assert tasks(state="failed") == [failing_id]
        assert tasks(state="active", limit=2) == [*reversed(active_ids)][:2]
        # cut to nine digits, the last two limits would be 1
        limits: list[Any] = [0, 201, "x", "000000001999", f"000000001{'9' * 5000}"]
        invalid: list[Json] = [{"state": "lost"}, *({"limit": limit} for limit in limits)]
        for params in invalid:
            response = caller.get("webhooks", **params)
            assert (response.status_code, response.json()["error"]["code"]) == (400, "BAD_REQUEST")


def test_without_authentication_or_metrics_there_is_no_list_of_all_webhooks() -> None:
    with receiving() as receiver, agent({"metrics": False}) as caller:
        task = caller.send(id="w", url=receiver.url)
        assert caller.get("webhooks").status_code == 404
        assert webhook(caller, task)["id"] == "w"


def test_owners_and_operators_have_access_and_others_see_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "apcore_a2a.audit")
    with receiving(lambda delivery: Reply(410)) as receiver, agent(auth_options()) as caller:
        with caller.with_headers(ADA):
            task = caller.send(id="w", url=receiver.url)
            eventually(lambda: webhook(caller, task)["state"] == "failed")
            assert webhook(caller, task)["url"] == receiver.url
            assert caller.get("webhooks").json()["webhooks"] == [webhook(caller, task)]
        assert audited_operations(caplog) == []
        with caller.with_headers(OP):
            shown_webhook = webhook(caller, task)
            assert shown_webhook["url"] == receiver.url.removesuffix("/hook")
            assert caller.get("webhooks").json()["webhooks"] == [shown_webhook]
            assert caller.post(f"tasks/{task['id']}/webhooks/w/test").status_code == 200
            assert caller.post(f"tasks/{task['id']}/webhooks/w/redeliver").status_code == 202
        for stranger in (BOB, BOSS):
            with caller.with_headers(stranger):
                assert caller.get("webhooks").json() == {"webhooks": []}
                assert caller.get(f"tasks/{task['id']}/webhooks").status_code == 404
                for action in ("test", "redeliver"):
                    assert caller.post(f"tasks/{task['id']}/webhooks/w/{action}").status_code == 404
        assert caller.get("webhooks").status_code == 401
    operations = ("ListTaskWebhooks", "ListWebhooks", "TestWebhook", "RedeliverWebhook")
    assert audited_operations(caplog) == [(operation, "apikey|op") for operation in operations]


def test_attempts_and_dead_letters_survive_a_restart_except_in_memory(every_store: str) -> None:
    repaired: list[bool] = []

    def answer(delivery: Delivery) -> Reply:
        return Reply() if repaired else Reply(410)

    with receiving(answer) as receiver:
        with agent() as caller:
            task = caller.send(id="w", url=receiver.url)
            eventually(lambda: webhook(caller, task)["state"] == "failed")
            before = webhook(caller, task)
        repaired.append(True)
        with agent() as caller:
            if every_store == "memory":
                assert caller.get("webhooks").json() == {"webhooks": []}
                return
            assert webhook(caller, task) == before
            response = caller.post(f"tasks/{task['id']}/webhooks/w/redeliver")
            assert response.json() == {"requeued": 3}
            receiver.wait_for("completed")
            eventually(lambda: len(webhook(caller, task)["attempts"]) == 4)
            assert webhook(caller, task)["attempts"][-1] == before["attempts"][0]
