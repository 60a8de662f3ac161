"""Webhooks in task stores: they are kept with their task, leave with it, and outlive a server."""

import asyncio
from typing import Any

import pytest
from a2a.server.tasks import InMemoryTaskStore as SdkStore
from a2a.types import TaskPushNotificationConfig as Config
from apcore_a2a_core.states import COMPLETED, WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.store import Webhook

from tests.push.receiver import Reply, receiving

from .asking import Json
from .inloop import (
    NEEDS_APPROVAL,
    WAYS,
    Does,
    Gate,
    Peer,
    give_back,
    serving,
    true,
)
from .inloop import anyio_backend as anyio_backend
from .modules import SECRET
from .test_custom_stores import BrokenStore, DictStore
from .test_memory_store import record
from .webhooks import NOBODY, Hooks, plain

pytestmark = pytest.mark.anyio

QUICK = PushSettings(dev=True, retries=())
GIVEN: dict[str, object] = {
    "work": Does(give_back),
    "pay": Does(give_back, annotations=NEEDS_APPROVAL),
}
HOOK: Json = {"id": "c1", "url": NOBODY, "token": "t-1"}
every_way = pytest.mark.parametrize("way", WAYS)


def webhook(name: str = "c1", task_id: str = "t") -> Webhook:
    return Webhook(Config(id=name, task_id=task_id, url=NOBODY), "0.3")


async def ask(peer: Peer, operation: str, task: str, config_id: str = "", **config: Any) -> Any:
    """The code and the result of a question about the webhooks of a task."""
    hooks = Hooks(peer.wire)
    sets = operation == "push set"
    params = hooks.setting(task, **config) if sets else hooks.naming(task, config_id)
    answer = await peer.ask(operation, params)
    return answer.code, None if answer.error else answer.result


async def hooks_of(peer: Peer, task: str) -> list[Json]:
    """All webhooks of a task, as 1.0 writes them."""
    _, result = await ask(peer, "push list", task)
    return [plain(each) for each in (result["configs"] if peer.wire.modern else result)]


# In memory


async def test_webhooks_are_kept_in_their_order_and_leave_with_their_task() -> None:
    store = InMemoryTaskStore()
    await store.save(record("t"))
    both = [webhook("c2"), webhook("c1")]
    await store.save_webhooks("t", both)
    assert [*await store.webhooks("t")] == both
    assert await store.delete("t")
    await store.save(record("t"))
    assert not await store.webhooks("t")


async def test_webhooks_leave_with_a_task_whose_time_is_over() -> None:
    store = InMemoryTaskStore(ttl=0.01)
    await store.save_webhooks("t", [webhook()])
    await store.save(record("t", COMPLETED))
    assert await store.webhooks("t")
    await true(lambda: len(store) == 0)
    assert not await store.webhooks("t")


async def test_webhooks_leave_with_a_task_that_makes_room() -> None:
    store = InMemoryTaskStore(max_capacity=2)
    for name, state in (("working", WORKING), ("ended", COMPLETED), ("new", WORKING)):
        await store.save(record(name, state))
        await store.save_webhooks(name, [webhook(task_id=name)])
    assert await store.get("ended") is None
    kept = {name: len(await store.webhooks(name)) for name in ("working", "ended", "new")}
    assert kept == {"working": 1, "ended": 0, "new": 1}


async def test_the_store_in_memory_has_the_three_methods_of_the_requirements() -> None:
    store, config = InMemoryTaskStore(), Config(id="c1", task_id="t", url=NOBODY)
    await store.save(record("t"))
    assert await store.get_push_config("t") is None
    assert await store.delete_push_config("t") is False
    await store.save_push_config("t", config)
    assert await store.get_push_config("t") == config
    assert await store.delete_push_config("t") is True
    assert await store.get_push_config("t") is None


@every_way
async def test_a_task_that_has_left_has_no_webhooks_any_more(way: str) -> None:
    async with serving(GIVEN, way, push_notifications=QUICK, max_tasks=1) as peer:
        task = (await peer.send()).task["id"]
        await ask(peer, "push set", task, **HOOK)
        assert await hooks_of(peer, task)
        await peer.send()
        for operation in ("push set", "push get", "push list", "push delete"):
            assert await ask(peer, operation, task, "c1", **HOOK) == (-32001, None)


# Of users


@every_way
async def test_a_users_store_keeps_the_webhook_of_a_task(way: str) -> None:
    store = DictStore()
    async with serving(GIVEN, way, task_store=store, push_notifications=QUICK) as peer:
        task = (await peer.send()).task["id"]
        assert await hooks_of(peer, task) == []
        assert (await ask(peer, "push set", task, **HOOK))[0] is None
        kept = store.configs[task]
        assert (kept.id, kept.url, kept.token, kept.task_id) == ("c1", NOBODY, "t-1", task)
        assert await hooks_of(peer, task) == [{"taskId": task, **HOOK}]
        assert (await ask(peer, "push set", task, id="c1", url=f"{NOBODY}/new"))[0] is None
        assert store.configs[task].url == f"{NOBODY}/new"
        assert (await ask(peer, "push delete", task, "c1"))[0] is None
        assert (store.configs, await hooks_of(peer, task)) == ({}, [])


@every_way
async def test_a_users_store_keeps_one_webhook_and_does_not_lose_it_to_a_second(way: str) -> None:
    store = DictStore()
    async with serving(GIVEN, way, task_store=store, push_notifications=QUICK) as peer:
        task = (await peer.send("pay")).task["id"]
        await ask(peer, "push set", task, **HOOK)
        assert await ask(peer, "push set", task, id="c2", url=NOBODY) == (-32602, None)
        more = Hooks(peer.wire).sending("pay", hook={"id": "c2", "url": NOBODY}, taskId=task)
        assert (await peer.ask("send", more)).code == -32602
        assert await peer.state(task) == "input-required"
        assert await hooks_of(peer, task) == [{"taskId": task, **HOOK}]


async def replied(peer: Peer, task: str) -> Json:
    """The task after a yes."""
    part = peer.part(text="yes")
    return (await peer.send("pay", part, taskId=task)).task


@every_way
@pytest.mark.parametrize("kept", [DictStore, InMemoryTaskStore])
async def test_a_webhook_outlives_the_server_and_is_told_in_its_version(
    way: str, kept: Any
) -> None:
    store, other = kept(), "1.0" if way == "0.3" else "0.3"
    with receiving() as receiver:
        async with serving(GIVEN, way, task_store=store, push_notifications=QUICK) as peer:
            task = (await peer.send("pay")).task["id"]
            await ask(peer, "push set", task, **{**HOOK, "url": receiver.url})
        async with serving(GIVEN, other, task_store=store, push_notifications=QUICK) as peer:
            assert await hooks_of(peer, task) == [{"taskId": task, **HOOK, "url": receiver.url}]
            await replied(peer, task)
            await asyncio.to_thread(receiver.wait, 2)
    assert receiver.states == ["working", "completed"]
    old = {"id" in delivery.json for delivery in receiver.deliveries}
    assert old == {way == "0.3"}


async def test_that_a_webhook_has_failed_outlives_the_server() -> None:
    store = DictStore()
    with receiving(lambda delivery: Reply(500)) as receiver:
        async with serving(GIVEN, "0.3", task_store=store, push_notifications=QUICK) as peer:
            hook = {**HOOK, "url": receiver.url}
            params = Hooks(peer.wire).sending("pay", hook=hook)
            task = (await peer.ask("send", params)).task["id"]
            await asyncio.to_thread(receiver.wait, 1)
            await true(lambda: "500" in store.configs[task].tenant)
        async with serving(GIVEN, "0.3", task_store=store, push_notifications=QUICK) as peer:
            _, found = await ask(peer, "push get", task)
            assert (found["status"], found["reason"]) == ("failed", "status 500")
            assert "tenant" not in found["pushNotificationConfig"]
            await replied(peer, task)
        assert len(receiver) == 1


class Refusing(DictStore):
    """Raises when a webhook is saved."""

    async def save_push_config(self, task_id: str, config: Any) -> None:
        raise RuntimeError(SECRET)


class RefusingAll(Refusing):
    async def delete_push_config(self, task_id: str) -> bool:
        raise RuntimeError(SECRET)


@every_way
@pytest.mark.parametrize("operation", ["send", "stream"])
@pytest.mark.parametrize("broken", [Refusing, RefusingAll])
async def test_a_store_that_can_not_keep_the_webhook_refuses_the_message(
    way: str, operation: str, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gate, store = Gate(), broken()
    modules = {"work": Does(gate)}
    async with serving(modules, way, task_store=store, push_notifications=QUICK) as peer:
        params = Hooks(peer.wire).sending("work", hook=HOOK)
        answer = await peer.ask(operation, params)
        assert answer.code == -32603
        assert SECRET in caplog.text
        assert (store.records, store.configs) == ({}, {})
        assert (await peer.ask("list")).result["tasks"] == []
        await true(lambda: not peer.served.engine.runs)
        assert not gate.calls


async def test_a_store_that_can_not_keep_the_task_keeps_no_webhook_either() -> None:
    store = BrokenStore(lambda record: True)
    async with serving(GIVEN, task_store=store, push_notifications=QUICK) as peer:
        answer = await peer.ask("send", Hooks(peer.wire).sending("work", hook=HOOK))
        assert answer.code == -32603
        assert (store.records, store.configs) == ({}, {})


async def test_a_full_store_keeps_no_webhook_of_a_task_that_it_does_not_take() -> None:
    gate, store = Gate(), InMemoryTaskStore(max_capacity=1)
    modules = {"work": Does(gate)}
    async with serving(modules, task_store=store, push_notifications=QUICK) as peer:
        await peer.start()
        answer = await peer.ask("send", Hooks(peer.wire).sending("work", hook=HOOK))
        assert answer.error is not None
        assert not store._webhooks


@every_way
async def test_a_store_that_can_not_keep_a_webhook_leaves_the_task_as_it_is(way: str) -> None:
    async with serving(GIVEN, way, task_store=Refusing(), push_notifications=QUICK) as peer:
        task = (await peer.send("pay")).task["id"]
        assert await ask(peer, "push set", task, **HOOK) == (-32603, None)
        assert await hooks_of(peer, task) == []
        assert (await replied(peer, task))["status"]["state"].lower().endswith("completed")


async def test_a_store_that_can_not_note_the_failure_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Once(DictStore):
        async def save_push_config(self, task_id: str, config: Any) -> None:
            if task_id in self.configs:
                raise RuntimeError(SECRET)
            await super().save_push_config(task_id, config)

    with receiving(lambda delivery: Reply(500)) as receiver:
        async with serving(GIVEN, task_store=Once(), push_notifications=QUICK) as peer:
            params = Hooks(peer.wire).sending("work", hook={**HOOK, "url": receiver.url})
            assert (await peer.ask("send", params)).state == "completed"
            await true(lambda: "were not saved" in caplog.text)
            assert SECRET not in caplog.text


async def test_a_store_without_webhooks_is_never_asked_for_them() -> None:
    class Plain(DictStore):
        async def get_push_config(self, task_id: str) -> Any:
            raise AssertionError

        save_push_config = delete_push_config = get_push_config  # type: ignore[assignment]  # none is called

    async with serving(GIVEN, task_store=Plain()) as peer:
        task = (await peer.send("pay")).task["id"]
        assert (await replied(peer, task))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_over_a_store_of_the_sdk_webhooks_live_in_the_process() -> None:
    store = SdkStore()
    with receiving() as receiver:
        async with serving(GIVEN, task_store=store, push_notifications=QUICK) as peer:
            hook = {**HOOK, "url": receiver.url}
            params = Hooks(peer.wire).sending("pay", hook=hook)
            task = (await peer.ask("send", params)).task["id"]
            assert await hooks_of(peer, task) == [{"taskId": task, **hook}]
            await replied(peer, task)
            await asyncio.to_thread(receiver.wait, 5)
            assert await hooks_of(peer, task) == [{"taskId": task, **hook}]
        async with serving(GIVEN, task_store=store, push_notifications=QUICK) as peer:
            assert await hooks_of(peer, task) == []
    states = ["submitted", "working", "input-required", "working", "completed"]
    assert receiver.states == states
