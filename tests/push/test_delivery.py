"""Notifications over real sockets: each transition, in order, at least once."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest
from standardwebhooks import WebhookVerificationError

from tests.server.conftest import eventually

from .agents import SECRET, agent, verify
from .receiver import Delivery, Reply, free_port, receiving, script

pytestmark = pytest.mark.usefixtures("local_store")

QUICK = (0.05, 0.1, 0.2)
ALL_STATES = ["submitted", "working", "completed"]


def states_without_repeats(deliveries: list[Delivery]) -> list[str]:
    """Return the state of each notification, without those of repeated attempts."""
    return list({delivery.id: delivery.state for delivery in deliveries}.values())


def test_each_transition_is_notified_in_the_version_of_the_push_config() -> None:
    with receiving() as receiver, agent() as caller:
        task = caller.send(url=receiver.url + "/new")
        old_task = caller.send_old(url=receiver.url + "/old")
        deliveries = receiver.wait(6)
    new_deliveries = [delivery for delivery in deliveries if delivery.path == "/hook/new"]
    assert [delivery.state for delivery in new_deliveries] == ALL_STATES
    assert [[*delivery.json] for delivery in new_deliveries] == [
        ["task"],
        ["statusUpdate"],
        ["statusUpdate"],
    ]
    assert {d.headers["content-type"] for d in new_deliveries} == {"application/a2a+json"}
    assert (
        new_deliveries[0].json["task"]["id"]
        == new_deliveries[1].json["statusUpdate"]["taskId"]
        == task["id"]
    )
    old_deliveries = [delivery for delivery in deliveries if delivery.path == "/hook/old"]
    assert [delivery.state for delivery in old_deliveries] == ALL_STATES
    assert {d.headers["content-type"] for d in old_deliveries} == {"application/json"}
    assert old_deliveries[-1].json == old_task


def test_the_last_notification_has_the_status_of_the_task_and_each_has_an_id() -> None:
    with receiving() as receiver, agent() as caller:
        task = caller.send(url=receiver.url)
        receiver.wait(3)
        assert receiver.deliveries[-1].json["statusUpdate"]["status"] == task["status"]
        assert len({delivery.id for delivery in receiver.deliveries}) == 3


def test_credentials_and_token_are_sent_as_specified() -> None:
    authentication = {"scheme": "Bearer", "credentials": "sesame"}
    with receiving() as receiver, agent() as caller:
        caller.send(url=receiver.url, token="t-1", authentication=authentication)
        several = {"schemes": ["Basic", "Bearer"], "credentials": "x"}
        caller.send_old(url=receiver.url, authentication=several)
        caller.send(url=receiver.url)
        receiver.wait(9)
    received = {
        (d.headers.get("authorization"), d.headers.get("x-a2a-notification-token"))
        for d in receiver.deliveries
    }
    assert received == {("Bearer sesame", "t-1"), ("Basic x", None), (None, None)}


def test_notifications_are_signed_with_each_secret() -> None:
    new_secret = "whsec_" + "R0hJSktM" * 4
    with receiving() as receiver, agent(secrets=[new_secret, SECRET]) as caller:
        caller.send(url=receiver.url)
        deliveries = receiver.wait(3)
    for delivery in deliveries:
        for secret in (SECRET, new_secret):
            assert verify(delivery, receiver.url, secret) == delivery.json
    forged = {**deliveries[0].headers, "webhook-id": deliveries[1].id}
    with pytest.raises(WebhookVerificationError):
        verify(replace(deliveries[0], headers=forged), receiver.url)
    other_url = receiver.url.replace("127.0.0.1", "hooks.example.com")
    with pytest.raises(WebhookVerificationError):
        verify(deliveries[0], other_url)


def test_without_a_secret_notifications_are_not_signed() -> None:
    with receiving() as receiver, agent(secrets=[]) as caller:
        caller.send(url=receiver.url)
        assert "webhook-signature" not in receiver.wait(1)[0].headers


@pytest.mark.clock
def test_a_receiver_that_is_down_for_six_seconds_misses_nothing() -> None:
    port = free_port()
    with agent() as caller:
        caller.send(url=f"http://127.0.0.1:{port}/hook")
        time.sleep(6)  # there is no event to await
        with receiving(port=port) as receiver:
            receiver.wait(3)
        assert receiver.states == ALL_STATES


def test_a_failed_attempt_is_repeated_with_the_same_id_and_body() -> None:
    replies = [Reply(500), Reply(500)]
    with receiving(script(*replies)) as receiver, agent(retries=(0.1, 1.1, 4)) as caller:
        caller.send(url=receiver.url)
        first, second, third, *_ = receiver.wait(5)
        assert (first.id, first.body) == (second.id, second.body) == (third.id, third.body)
        assert states_without_repeats(receiver.deliveries) == ALL_STATES
        for delivery in receiver.deliveries:
            verify(delivery, receiver.url)
        assert first.headers["webhook-timestamp"] < third.headers["webhook-timestamp"]
        assert caller.config({"id": first.json["task"]["id"]})["status"] == "active"


@pytest.mark.clock
def test_the_default_backoff_is_one_two_and_four_seconds() -> None:
    with receiving(lambda delivery: Reply(500)) as receiver, agent() as caller:
        task = caller.send(url=receiver.url)
        deliveries = receiver.wait(4)
        gaps = [after.at - before.at for before, after in pairwise(deliveries)]
        assert [gap > wait * 0.99 for gap, wait in zip(gaps, (1, 2, 4), strict=True)] == [True] * 3
        assert gaps[2] < 6 * gaps[0]
        assert len({delivery.id for delivery in deliveries}) == 1
        eventually(lambda: caller.config(task)["status"] == "failed")
        assert caller.config(task)["reason"] == "status 500"
        assert len(receiver) == 4


def test_redirects_are_failures_and_not_followed() -> None:
    with receiving() as elsewhere:
        redirect = Reply(301, {"location": elsewhere.url})
        with receiving(lambda delivery: redirect) as receiver, agent(retries=QUICK) as caller:
            task = caller.send(url=receiver.url)
            eventually(lambda: caller.config(task)["status"] == "failed")
            assert len(receiver) == 4
        assert len(elsewhere) == 0


def test_status_410_fails_the_webhook_at_once() -> None:
    with receiving(lambda delivery: Reply(410)) as receiver, agent() as caller:
        task = caller.send(url=receiver.url)
        eventually(lambda: caller.config(task)["status"] == "failed")
        assert len(receiver) == 1


@pytest.mark.clock
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_followed(status: int, form: str) -> None:
    def answer(delivery: Delivery) -> Reply:
        # a date has no fraction of a second: this one is two to three seconds ahead
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)
        wait = "2" if form == "seconds" else date
        return Reply(status, {"retry-after": wait}) if len(receiver) == 1 else Reply()

    with receiving(answer) as receiver, agent(retries=QUICK) as caller:
        caller.send(url=receiver.url)
        first, second, *_ = receiver.wait(4)
    assert second.at - first.at >= 1.9
    assert first.id == second.id


@pytest.mark.parametrize("cut", [b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\ncontent-le", b"nonsense"])
def test_an_incomplete_or_invalid_answer_is_a_failure(cut: bytes) -> None:
    answer = script(Reply(cut=cut), Reply(cut=cut))
    with receiving(answer) as receiver, agent(retries=QUICK) as caller:
        caller.send(url=receiver.url)
        receiver.wait(5)
    assert states_without_repeats(receiver.deliveries) == ALL_STATES


def test_an_attempt_without_an_answer_times_out() -> None:
    answer = script(Reply(silent=True))
    with receiving(answer) as receiver, agent(retries=QUICK, timeout=0.5) as caller:
        caller.send(url=receiver.url)
        first, second, *_ = receiver.wait(4, seconds=9)  # attempts have ten seconds by default
        assert second.at - first.at >= 0.5
        assert states_without_repeats(receiver.deliveries) == ALL_STATES


def test_a_failed_webhook_gets_no_notification_until_it_is_set_again() -> None:
    with receiving(script(*[Reply(500)] * 4)) as receiver, agent(retries=QUICK) as caller:
        task = caller.send("held", wait=False, id="c", url=receiver.url)
        eventually(lambda: caller.config(task)["status"] == "failed")
        config = caller.ask("GetTaskPushNotificationConfig", taskId=task["id"], id="c")
        assert (config["status"], config["reason"]) == ("failed", "status 500")
        new_config = {"taskId": task["id"], "id": "c", "url": receiver.url}
        caller.ask("CreateTaskPushNotificationConfig", **new_config)
        assert caller.config(task)["status"] == "active"
        caller.held.release()
        receiver.wait_for("completed")
        assert len(receiver) == 5


def test_a_failed_webhook_does_not_affect_other_webhooks_of_its_task() -> None:
    with (
        receiving(lambda delivery: Reply(404)) as bad,
        receiving() as good,
        agent(retries=QUICK) as caller,
    ):
        task = caller.send("held", wait=False, id="bad", url=bad.url)
        params = {"taskId": task["id"], "pushNotificationConfig": {"id": "good", "url": good.url}}
        caller.ask("tasks/pushNotificationConfig/set", **params)
        eventually(lambda: caller.config(task, "bad")["status"] == "failed")
        caller.held.release()
        assert [delivery.state for delivery in good.wait(1)] == ["completed"]
        assert caller.config(task, "good")["status"] == "active"


def test_a_deleted_webhook_gets_no_more_notifications() -> None:
    with receiving(lambda delivery: Reply(500)) as receiver:
        with agent(retries=(600,)) as caller:
            task = caller.send("held", wait=False, url=receiver.url)
            receiver.wait(1)
            caller.ask("tasks/pushNotificationConfig/delete", taskId=task["id"])
            eventually(lambda: caller.metrics()["webhooks_pending"] == 0)
            caller.held.release()
            params = {"id": task["id"]}
            eventually(lambda: "COMPLETED" in caller.ask("GetTask", **params)["status"]["state"])
            assert caller.metrics()["webhooks_pending"] == 0
        assert len(receiver) == 1  # pending notifications are tried once more at shutdown


def test_changes_of_other_webhooks_do_not_shorten_the_backoff() -> None:
    retry_later = Reply(429, {"retry-after": "60"})
    with (
        receiving(lambda delivery: retry_later) as receiver,
        receiving() as other_receiver,
        agent() as caller,
    ):
        task = caller.send("held", wait=False, id="a", url=receiver.url)
        receiver.wait(1)
        caller.ask(
            "CreateTaskPushNotificationConfig", taskId=task["id"], id="b", url=other_receiver.url
        )
        caller.held.release()
        other_receiver.wait(1)
        assert len(receiver) == 1


def test_a_replaced_webhook_is_tried_at_once_with_all_its_attempts() -> None:
    retry_later = Reply(429, {"retry-after": "60"})
    with (
        receiving(lambda delivery: retry_later) as old_receiver,
        receiving(script(*[Reply(500)] * 3)) as new_receiver,
        agent(retries=QUICK) as caller,
    ):
        task = caller.send("held", wait=False, id="a", url=old_receiver.url)
        old_receiver.wait(1)
        caller.ask(
            "CreateTaskPushNotificationConfig", taskId=task["id"], id="a", url=new_receiver.url
        )
        new_receiver.wait(5)
        assert states_without_repeats(new_receiver.deliveries) == ["submitted", "working"]
        assert len(old_receiver) == 1
