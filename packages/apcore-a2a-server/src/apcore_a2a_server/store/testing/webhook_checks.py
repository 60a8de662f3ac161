"""The checks of webhooks, and of what they have to be told."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from a2a import types as a2a
from a2a.utils.errors import InvalidParamsError
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED

from apcore_a2a_server.store.errors import StaleError
from apcore_a2a_server.store.port import Retention, Store
from apcore_a2a_server.store.webhooks import MAX_WEBHOOKS, ClaimRequest, Notification, Webhook

from .samples import LEASE, begun, check, kept, new_record, raises, said_more, went_on


def hook(name: str = "w1", host: str = "a.example", task_id: str = "t1") -> Webhook:
    """A webhook."""
    url = f"https://{host}/hook"
    return Webhook(a2a.TaskPushNotificationConfig(id=name, task_id=task_id, url=url), "0.3")


async def due(store: Store, **more: Any) -> Sequence[Notification]:
    """What is due, taken for as long as a lease of these checks."""
    request: dict[str, Any] = {"limit": 100, "per_host": 100, "per_owner": 100, "seconds": LEASE}
    return await store.claim_notifications(ClaimRequest(**{**request, **more}))


async def drained(store: Store) -> list[tuple[str, int]]:
    """Settles all that is due: the ids of webhooks and versions, in that order."""
    found: list[tuple[str, int]] = []
    while taken := await due(store):
        for each in taken:
            await store.settle(each)
            found.append((each.webhook.config.id, each.version))
    return found


@check
async def webhooks_come_and_go_with_their_task(store: Store) -> None:
    config = a2a.TaskPushNotificationConfig(id="w1", task_id="t1", url="https://a.example/\x00")
    webhook = Webhook(config, "0.3", "gone")
    await begun(store, webhooks=[webhook])
    assert [*await store.webhooks("t1")] == [webhook]
    await store.save_webhooks("t1", [])
    assert not await store.webhooks("t1")
    await store.save_webhooks("t1", [webhook])
    assert [*await store.webhooks("t1")] == [webhook]


@check
async def webhooks_are_not_replaced_when_others_have_been_set(store: Store) -> None:
    await begun(store, webhooks=[hook()])
    await store.save_webhooks("t1", [hook("w2")], [hook()])
    await raises(StaleError, store.save_webhooks("t1", [hook("w3")], [hook()]))
    assert [*await store.webhooks("t1")] == [hook("w2")]
    await raises(StaleError, store.save_webhooks("t2", [hook(task_id="t2")], []))


@check
async def webhooks_are_told_of_each_state_in_order(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2")])
    (first, other) = await due(store)
    assert {first.webhook.config.id, other.webhook.config.id} == {"w1", "w2"}
    assert (first.task_id, first.owner, first.version, first.attempts) == ("t1", "ada", 1, 1)
    assert isinstance(first.payload, a2a.Task)
    chunk = said_more(record, "no state", lease)
    await store.change(chunk)
    await store.change(went_on(chunk.record, COMPLETED, lease))
    assert not await due(store), "what follows waits for what is under way"
    for each in (first, other):
        await store.settle(each)
    assert sorted(await drained(store)) == [("w1", 2), ("w1", 4), ("w2", 2), ("w2", 4)]


@check
async def what_is_not_settled_is_due_again(store: Store) -> None:
    await begun(store, webhooks=[hook()])
    (first,) = await due(store)
    await asyncio.sleep(2 * LEASE)
    (again,) = await due(store)
    assert (again.version, again.attempts) == (1, 2)
    await store.settle(first)  # which somebody else has taken since
    await store.postpone(again, LEASE)
    assert not await due(store)
    await asyncio.sleep(2 * LEASE)
    assert [each.attempts for each in await due(store)] == [3]


@check
async def a_webhook_that_is_gone_or_failed_is_told_nothing(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2")])
    w1, w2 = sorted(await due(store), key=lambda each: each.webhook.config.id)
    assert await store.give_up(w1, "status 500") == 2
    assert await store.give_up(w1, "status 500") == 0
    assert [each.failure for each in await store.webhooks("t1")] == ["status 500", ""]
    change = went_on(record, INPUT_REQUIRED, lease)
    await store.change(change)
    await store.save_webhooks("t1", [Webhook(w1.webhook.config, "0.3", "status 500")])
    await store.change(went_on(change.record, COMPLETED))
    await store.postpone(w2, 0)
    assert not await due(store)
    await store.limit_backlog(100)
    assert store.backlog.pending == 0


@check
async def a_webhook_that_is_set_again_is_told_at_once(store: Store) -> None:
    await begun(store, webhooks=[hook()])
    (first,) = await due(store)
    await store.postpone(first, 60)
    moved = hook(host="b.example")
    await store.save_webhooks("t1", [moved])
    (again,) = await due(store, seconds=60)
    assert (again.webhook, again.attempts) == (moved, 1)
    assert await store.give_up(first, "it was the old one") == 0
    await store.settle(first)
    await store.postpone(first, 0)
    assert not await due(store)
    await store.postpone(again, 0)
    assert [each.version for each in await due(store)] == [again.version]


@check
async def a_webhook_that_is_set_later_is_told_of_what_comes(store: Store) -> None:
    record, lease = await begun(store)
    await store.save_webhooks("t1", [hook()])
    await store.change(went_on(record, INPUT_REQUIRED, lease))
    assert await drained(store) == [("w1", 3)]


@check
async def of_one_owner_and_host_no_more_is_taken_than_there_is_time_for(store: Store) -> None:
    for number in range(6):
        name, owner = f"t{number}", "ada" if number < 4 else "bob"
        host = "b.example" if number == 3 else "a.example"
        await begun(store, new_record(name, owner), [hook(host=host, task_id=name)])
    busy: dict[str, Any] = {"owners": ["bob"], "hosts": [("ada", "b.example")]}
    first = await due(store, per_host=2, **busy)
    assert [(each.owner, each.webhook.host) for each in first] == [("ada", "a.example")] * 2
    second = await due(store, per_owner=2)
    assert sorted(each.owner for each in second) == ["ada", "ada", "bob", "bob"]
    assert not await due(store)


@check
async def of_many_hosts_the_one_that_has_waited_longest_is_first(store: Store) -> None:
    for name in ("c", "b", "a"):
        await begun(store, new_record(name), [hook(host=f"{name}.example", task_id=name)])
    await begun(store, new_record("other", "bob"), [hook(task_id="other")])
    assert [each.owner for each in await due(store, owners=["ada"], seconds=60)] == ["bob"]
    found = [await due(store, per_owner=2, seconds=60) for _ in range(2)]
    assert [[each.task_id for each in taken] for taken in found] == [["c", "b"], ["a"]]


@check
async def of_too_many_notifications_the_latest_are_given_up(store: Store) -> None:
    for name in ("t1", "t2"):
        await begun(store, new_record(name), [hook(task_id=name)])
    await begun(store, new_record("t3", "bob"), [hook(task_id="t3")])
    assert await store.limit_backlog(2) == 2
    assert store.backlog.pending == 4
    assert 0 <= store.backlog.age < 60
    assert [webhook.failure for webhook in await store.webhooks("t1")] == [""]
    assert [webhook.failure != "" for webhook in await store.webhooks("t2")] == [True]


@check
async def a_task_is_kept_until_webhooks_have_been_told_of_its_end(store: Store) -> None:
    if not store.is_durable:
        return
    record, lease = await begun(store, webhooks=[hook()])
    await store.change(went_on(record, COMPLETED, lease))
    store.retention = Retention(log_ttl=0, max_logs=0)
    await asyncio.sleep(0.01)
    assert await store.prune() == 0
    assert len(await drained(store)) == 3
    assert await store.prune() == 1


@check
async def a_webhook_that_comes_with_a_change_is_notified_of_it(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1"), hook("w2")])
    await drained(store)
    change = went_on(record, INPUT_REQUIRED, lease)
    moved, added = hook("w2", "b.example"), hook("w3")
    await store.change(replace(change, webhook=moved))
    await store.change(replace(went_on(change.record, COMPLETED), webhook=added))
    found = await store.webhooks("t1")
    assert sorted((each.config.id, each.host) for each in found) == [
        ("w1", "a.example"),
        ("w2", "b.example"),
        ("w3", "a.example"),
    ]
    assert sorted(await drained(store)) == [("w1", 3), ("w1", 4), ("w2", 3), ("w2", 4), ("w3", 4)]


@check
async def a_webhook_that_comes_with_a_refused_change_is_not_added(store: Store) -> None:
    record, lease = await begun(store, webhooks=[hook("w1")])
    change = went_on(record, COMPLETED, lease)
    stale = replace(change, base=change.base - 1, webhook=hook("w2"))
    await raises(StaleError, store.change(stale))
    await store.save_webhooks("t1", [hook(f"w{number}") for number in range(MAX_WEBHOOKS)])
    await raises(InvalidParamsError, store.change(replace(change, webhook=hook("new"))))
    assert len(await store.webhooks("t1")) == MAX_WEBHOOKS
    assert (await kept(store)).version == record.version
    await store.change(replace(change, webhook=hook("w1", "b.example")))
    assert len(await store.webhooks("t1")) == MAX_WEBHOOKS


@check
async def the_store_tells_when_there_is_something_to_claim(store: Store) -> None:
    rings: list[None] = []
    store.on_notification(lambda: rings.append(None))
    record, lease = await begun(store)
    assert not rings
    await store.save_webhooks("t1", [hook()])
    rings.clear()
    await store.change(went_on(record, COMPLETED, lease))
    assert rings
    await begun(store, new_record("t2"), [hook(task_id="t2")])
    assert len(rings) > 1
