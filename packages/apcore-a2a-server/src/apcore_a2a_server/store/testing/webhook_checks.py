"""The checks of webhooks and their notifications."""

import asyncio
from collections.abc import Sequence
from typing import Any

from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core.data import Task, TaskPushNotificationConfig
from apcore_a2a_core.records import LARGE_MESSAGE
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED
from msgspec.structs import replace

from apcore_a2a_server.store.exceptions import StaleError
from apcore_a2a_server.store.port import Retention, Store
from apcore_a2a_server.store.webhooks import (
    MAX_KEPT_ATTEMPTS,
    MAX_WEBHOOKS,
    Attempt,
    AttemptResult,
    ClaimRequest,
    Notification,
    Webhook,
    WebhookQuery,
    WebhookStatus,
)

from .samples import (
    LEASE,
    begun,
    check,
    chunk_change,
    new_record,
    raises,
    state_change,
    stored_record,
)


def hook(config_id: str = "w1", host: str = "a.example", task_id: str = "t1") -> Webhook:
    """Return a webhook."""
    url = f"https://{host}/hook"
    return Webhook(TaskPushNotificationConfig(id=config_id, task_id=task_id, url=url), "0.3")


async def claim_due(store: Store, **request: Any) -> Sequence[Notification]:
    """Claim the next due notification of each webhook.

    *request* overrides the default limits. Nothing is claimed for the `owners` and `hosts` in it.
    """
    defaults: dict[str, Any] = {"limit": 100, "per_host": 100, "per_owner": 100, "seconds": 60}
    return await store.claim_notifications(ClaimRequest(**{**defaults, **request}))


def _config_id(notification: Notification) -> str:
    return notification.webhook.config.id


async def settle_all(store: Store) -> list[tuple[str, int]]:
    """Settle all due notifications; return the webhook id and the event version of each."""
    settled: list[tuple[str, int]] = []
    while notifications := await claim_due(store):
        for notification in notifications:
            await store.settle(notification)
            settled.append((notification.webhook.config.id, notification.version))
    return settled


@check
async def webhooks_can_be_saved_and_deleted(store: Store) -> None:
    config = TaskPushNotificationConfig(id="w1", task_id="t1", url="https://a.example/\x00")
    trace = f"00-{'ab' * 16}-{'cd' * 8}-00 vendor=1,other=2"
    webhook = Webhook(config, "0.3", "gone", trace)
    await begun(store, webhooks=[webhook])
    assert [*await store.webhooks("t1")] == [webhook]
    await store.save_webhooks("t1", [])
    assert not await store.webhooks("t1")
    await store.save_webhooks("t1", [webhook])
    assert [*await store.webhooks("t1")] == [webhook]


@check
async def a_notification_of_a_new_task_has_its_large_message(store: Store) -> None:
    new = new_record()
    new.task.history[0].parts[0].text = "large" * LARGE_MESSAGE
    record, _ = await begun(store, new, webhooks=[hook()])
    (notification,) = await claim_due(store)
    assert isinstance(notification.payload, Task)
    assert notification.payload.history == record.task.history


@check
async def webhooks_are_replaced_only_if_they_are_the_expected_ones(store: Store) -> None:
    await begun(store, webhooks=[hook()])
    await store.save_webhooks("t1", [hook("w2")], [hook()])
    await raises(StaleError, store.save_webhooks("t1", [hook("w3")], [hook()]))
    assert [*await store.webhooks("t1")] == [hook("w2")]
    await raises(StaleError, store.save_webhooks("t2", [hook(task_id="t2")], []))


@check
async def webhooks_are_notified_of_each_state_in_order(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2")])
    (first, second) = await claim_due(store)
    assert {first.webhook.config.id, second.webhook.config.id} == {"w1", "w2"}
    assert (first.task_id, first.owner, first.version, first.attempts) == ("t1", "ada", 1, 1)
    assert isinstance(first.payload, Task)
    chunk = chunk_change(record, "chunk", lease)
    await store.change(chunk)
    await store.change(state_change(chunk.record, COMPLETED, lease))
    assert not await claim_due(store), "a later notification did not wait for the claimed one"
    for notification in (first, second):
        await store.settle(notification)
    # a stable sort by webhook keeps the order of each webhook's notifications
    settled = sorted(await settle_all(store), key=lambda each: each[0])
    assert settled == [("w1", 2), ("w1", 4), ("w2", 2), ("w2", 4)]


@check
async def webhooks_are_not_notified_of_chunks(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2")])
    await settle_all(store)
    await store.change(chunk_change(record, "chunk", lease))
    assert not await claim_due(store)


@check
async def a_notification_that_is_not_settled_is_due_again(store: Store) -> None:
    await begun(store, webhooks=[hook()])
    (first,) = await claim_due(store, seconds=LEASE)
    await asyncio.sleep(2 * LEASE)
    (reclaimed,) = await claim_due(store)
    assert (reclaimed.version, reclaimed.attempts) == (1, 2)
    await store.settle(first)  # does nothing: it has been claimed again
    await store.postpone(reclaimed, 0)
    assert [notification.attempts for notification in await claim_due(store)] == [3]


@check
async def a_postponed_notification_is_due_after_the_delay(store: Store) -> None:
    await begun(store, webhooks=[hook("w1"), hook("w2")])
    for notification in await claim_due(store):
        is_first = notification.webhook.config.id == "w1"
        await store.postpone(notification, LEASE if is_first else 60)
    await asyncio.sleep(2 * LEASE)
    (due,) = await claim_due(store)
    assert (due.webhook.config.id, due.attempts) == ("w1", 2)


@check
async def a_failed_webhook_gets_no_notifications(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2")])
    failing, working = sorted(await claim_due(store), key=_config_id)
    assert await store.give_up(failing, "status 500") == 2
    assert await store.give_up(failing, "status 500") == 0
    assert [webhook.failure for webhook in await store.webhooks("t1")] == ["status 500", ""]
    change = state_change(record, INPUT_REQUIRED, lease)
    await store.change(change)
    await store.save_webhooks("t1", [Webhook(failing.webhook.config, "0.3", "status 500")])
    await store.change(state_change(change.record, COMPLETED))
    await store.postpone(working, 0)
    assert not await claim_due(store)
    await store.limit_backlog(100)
    assert store.backlog.pending == 0


@check
async def the_replacement_of_a_webhook_is_notified_at_once(store: Store) -> None:
    await begun(store, webhooks=[hook()])
    (first,) = await claim_due(store)
    await store.postpone(first, 60)
    replacement = hook(host="b.example")
    await store.save_webhooks("t1", [replacement])
    (reclaimed,) = await claim_due(store)
    assert (reclaimed.webhook, reclaimed.attempts) == (replacement, 1)
    assert await store.give_up(first, "the old URL failed") == 0
    await store.settle(first)
    await store.postpone(first, 0)
    assert not await claim_due(store)
    await store.postpone(reclaimed, 0)
    assert [notification.version for notification in await claim_due(store)] == [reclaimed.version]


@check
async def a_webhook_that_is_added_later_is_notified_of_later_states(store: Store) -> None:
    record, lease = await begun(store)
    await store.save_webhooks("t1", [hook()])
    await store.change(state_change(record, INPUT_REQUIRED, lease))
    assert await settle_all(store) == [("w1", 3)]


@check
async def claims_respect_the_free_slots_of_owners_and_hosts(store: Store) -> None:
    for number in range(6):
        task_id, owner = f"t{number}", "ada" if number < 4 else "bob"
        host = "b.example" if number == 3 else "a.example"
        await begun(store, new_record(task_id, owner), [hook(host=host, task_id=task_id)])
    busy: dict[str, Any] = {"owners": ["bob"], "hosts": [("ada", "b.example")]}
    first = await claim_due(store, per_host=2, **busy)
    receivers = [(notification.owner, notification.webhook.host) for notification in first]
    assert receivers == [("ada", "a.example")] * 2
    second = await claim_due(store, per_owner=2)
    assert sorted(notification.owner for notification in second) == ["ada", "ada", "bob", "bob"]
    assert not await claim_due(store)


@check
async def the_host_that_has_waited_longest_is_served_first(store: Store) -> None:
    for task_id in ("c", "b", "a"):
        webhook = hook(host=f"{task_id}.example", task_id=task_id)
        await begun(store, new_record(task_id), [webhook])
    await begun(store, new_record("other", "bob"), [hook(task_id="other")])
    (notification,) = await claim_due(store, owners=["ada"])
    assert notification.owner == "bob"
    for task_ids in (["c", "b"], ["a"]):
        claimed = await claim_due(store, per_owner=2)
        assert [notification.task_id for notification in claimed] == task_ids


@check
async def the_newest_notifications_above_the_limit_of_an_owner_are_given_up(store: Store) -> None:
    for task_id in ("t1", "t2"):
        await begun(store, new_record(task_id), [hook(task_id=task_id)])
    await begun(store, new_record("t3", "bob"), [hook(task_id="t3")])
    assert await store.limit_backlog(2) == 2
    assert store.backlog.pending == 4
    assert 0 <= store.backlog.age < 60
    assert [webhook.failure for webhook in await store.webhooks("t1")] == [""]
    assert [webhook.failure != "" for webhook in await store.webhooks("t2")] == [True]


@check
async def a_task_is_kept_until_its_notifications_are_settled(store: Store) -> None:
    if not store.is_durable:
        return
    record, lease = await begun(store, webhooks=[hook()])
    await store.change(state_change(record, COMPLETED, lease))
    store.retention = Retention(log_ttl=0, max_logs=0)  # keep no ended tasks
    await asyncio.sleep(0.01)
    assert await store.prune() == 0
    assert len(await settle_all(store)) == 3
    assert await store.prune() == 1


@check
async def a_webhook_added_with_a_change_is_notified_of_it(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2")])
    await settle_all(store)
    change = state_change(record, INPUT_REQUIRED, lease)
    replacement, addition = hook("w2", "b.example"), hook("w3")
    await store.change(replace(change, webhook=replacement))
    await store.change(replace(state_change(change.record, COMPLETED), webhook=addition))
    webhooks = await store.webhooks("t1")
    assert sorted((webhook.config.id, webhook.host) for webhook in webhooks) == [
        ("w1", "a.example"),
        ("w2", "b.example"),
        ("w3", "a.example"),
    ]
    settled = sorted(await settle_all(store))
    assert settled == [("w1", 3), ("w1", 4), ("w2", 3), ("w2", 4), ("w3", 4)]


@check
async def a_webhook_of_a_refused_change_is_not_added(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1")])
    change = state_change(record, COMPLETED, lease)
    stale_change = replace(change, base=change.base - 1, webhook=hook("w2"))
    await raises(StaleError, store.change(stale_change))
    await store.save_webhooks("t1", [hook(f"w{number}") for number in range(MAX_WEBHOOKS)])
    await raises(InvalidParamsError, store.change(replace(change, webhook=hook("new"))))
    assert len(await store.webhooks("t1")) == MAX_WEBHOOKS
    assert (await stored_record(store)).version == record.version
    await store.change(replace(change, webhook=hook("w1", "b.example")))
    assert len(await store.webhooks("t1")) == MAX_WEBHOOKS


@check
async def the_listener_is_called_when_a_notification_is_added(store: Store) -> None:
    calls: list[None] = []
    store.on_notification(lambda: calls.append(None))
    record, lease = await begun(store)
    assert not calls
    await store.save_webhooks("t1", [hook()])
    calls.clear()
    await store.change(state_change(record, COMPLETED, lease))
    assert calls
    calls.clear()
    await begun(store, new_record("t2"), [hook(task_id="t2")])
    assert calls


def attempt(at: int, result: AttemptResult = "delivered") -> Attempt:
    """Return an attempt that began at a time, in seconds since 1970."""
    if result == "delivered":
        return Attempt(at, 0.25, result, 204)
    return Attempt(at, 0.25, result, 500, "status")


async def status(store: Store, config_id: str = "w1", task_id: str = "t1") -> WebhookStatus:
    """Return the status of a webhook."""
    statuses = await store.webhook_statuses(WebhookQuery(task_id=task_id))
    return next(status for status in statuses if status.webhook.config.id == config_id)


@check
async def the_last_attempts_of_a_webhook_are_kept(store: Store) -> None:
    await begun(store, webhooks=[hook("w1"), hook("w2")])
    assert [*(await status(store)).attempts] == []
    for number in range(MAX_KEPT_ATTEMPTS + 2):
        (first, *_) = [due for due in await claim_due(store) if due.webhook == hook("w1")]
        await store.postpone(first, 0, attempt(number, "retried"))
    (first,) = [due for due in await claim_due(store) if due.webhook == hook("w1")]
    await store.settle(first, attempt(99))
    await store.settle(first, attempt(100))  # does nothing: it is settled already
    kept_attempts = [*(await status(store)).attempts]
    numbers = range(MAX_KEPT_ATTEMPTS + 1, 2, -1)
    assert kept_attempts == [attempt(99), *(attempt(number, "retried") for number in numbers)]
    assert [*(await status(store, "w2")).attempts] == []


@check
async def an_edited_webhook_loses_its_attempts_and_others_keep_theirs(store: Store) -> None:
    await begun(store, webhooks=[hook("w1"), hook("w2")])
    for notification in await claim_due(store):
        await store.settle(notification, attempt(1))
    edited = hook("w1", "b.example")
    await store.save_webhooks("t1", [hook("w2"), edited])
    assert [*(await status(store, "w2")).attempts] == [attempt(1)]
    assert [*(await status(store, "w1")).attempts] == []
    await store.save_webhooks("t1", [edited])
    await store.save_webhooks("t1", [edited, hook("w2")])
    assert [*(await status(store, "w2")).attempts] == []


@check
async def a_webhook_status_says_what_is_pending(store: Store) -> None:
    await begun(store, webhooks=[hook()])
    assert (await status(store)).pending == 2
    (first,) = await claim_due(store)
    await store.postpone(first, 60)
    postponed = await status(store)
    assert (postponed.task_id, postponed.owner) == ("t1", "ada")
    assert postponed.webhook == hook()
    assert postponed.pending == 2
    assert postponed.due is not None
    assert 50 < postponed.due - await store.now() < 70
    assert await store.give_up(first, "status 500", attempt(1, "failed")) == 2
    failed = await status(store)
    assert (failed.pending, failed.due, failed.webhook.failure) == (0, None, "status 500")
    assert [*failed.attempts] == [attempt(1, "failed")]


@check
async def webhooks_are_found_by_task_by_owner_and_by_state(store: Store) -> None:
    for number, owner in enumerate(("ada", "bob", "bo")):
        task_id = f"t{number}"
        webhooks = [hook("w1", task_id=task_id), hook("w2", task_id=task_id)]
        await begun(store, new_record(task_id, owner), webhooks)
    (failing, *_) = [due for due in await claim_due(store) if due.owner == "bob"]
    await store.give_up(failing, "status 500", attempt(1, "failed"))
    failed = ("t1", failing.webhook.config.id)
    active = ("t1", "w2" if failed[1] == "w1" else "w1")

    async def find(**query: Any) -> list[tuple[str, str]]:
        statuses = await store.webhook_statuses(WebhookQuery(**query))
        return [(status.task_id, status.webhook.config.id) for status in statuses]

    all_webhooks = [(task_id, name) for task_id in ("t2", "t1", "t0") for name in ("w1", "w2")]
    assert await find() == all_webhooks
    assert await find(limit=3) == all_webhooks[:3]
    assert await find(state="failed") == [failed]
    assert await find(owner="bob", state="active") == [active]
    assert await find(owner="eve") == []
    assert await find(owner_prefix="bo") == all_webhooks[:4]
    assert await find(task_id="t0") == all_webhooks[4:]
    assert await find(task_id="t0", owner="bob") == []
    assert await find(task_id="none") == []


@check
async def redelivery_sends_a_failed_webhook_what_it_has_missed(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2")])
    assert await settle_all(store) == [("w1", 1), ("w2", 1), ("w1", 2), ("w2", 2)]
    chunk = chunk_change(record, "chunk", lease)
    await store.change(chunk)
    paused = state_change(chunk.record, INPUT_REQUIRED, lease)
    await store.change(paused)
    (failing, working) = sorted(await claim_due(store), key=_config_id)
    await store.settle(working)
    assert await store.give_up(failing, "status 500", attempt(1, "failed")) == 1
    await store.change(state_change(paused.record, COMPLETED))
    assert await settle_all(store) == [("w2", 5)]
    assert await store.redeliver("t1", "w1") == 2
    assert [webhook.failure for webhook in await store.webhooks("t1")] == ["", ""]
    reactivated = await status(store)
    assert (reactivated.pending, [*reactivated.attempts]) == (2, [attempt(1, "failed")])
    (missed,) = await claim_due(store)
    assert (missed.version, missed.attempts) == (4, 1)
    await store.settle(missed)
    assert await settle_all(store) == [("w1", 5)]


@check
async def redelivery_does_nothing_for_a_webhook_that_has_not_failed(store: Store) -> None:
    await begun(store, webhooks=[hook()])
    assert await store.redeliver("t1", "w1") == 0
    assert await store.redeliver("t1", "other") is None
    assert await store.redeliver("none", "w1") is None
    assert await settle_all(store) == [("w1", 1), ("w1", 2)]
    assert await store.redeliver("t1", "w1") == 0
    assert not await claim_due(store)
