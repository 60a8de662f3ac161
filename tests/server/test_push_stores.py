"""Push configs in task stores: they are stored and deleted with their task."""

import asyncio
from typing import Any

import pytest
from a2a.server.tasks import InMemoryTaskStore as SdkStore
from apcore_a2a_core.data import TaskPushNotificationConfig as Config
from apcore_a2a_core.states import COMPLETED, WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.push import PushSettings
from apcore_a2a_server.store import Webhook

from tests.push.receiver import Reply, receiving

from .checking_client import Json
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    echo,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import SECRET
from .test_custom_stores import BrokenStore, DictStore
from .test_memory_store import record
from .webhooks import UNREACHABLE, Hooks, plain

pytestmark = pytest.mark.anyio

QUICK = PushSettings(dev=True, retries=())
MODULES: dict[str, object] = {
    "work": ActionModule(echo),
    "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
}
HOOK: Json = {"id": "c1", "url": UNREACHABLE, "token": "t-1"}
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def webhook(name: str = "c1", task_id: str = "t") -> Webhook:
    return Webhook(Config(id=name, task_id=task_id, url=UNREACHABLE), "0.3")


async def ask(peer: Peer, operation: str, task_id: str, config_id: str = "", **config: Any) -> Any:
    """Call an operation on push configs; return the error code and the result."""
    hooks = Hooks(peer.wire)
    if operation == "push set":
        params = hooks.create_params(task_id, **config)
    else:
        params = hooks.params_of(task_id, config_id)
    answer = await peer.ask(operation, params)
    return answer.code, None if answer.error else answer.result


async def hooks_of(peer: Peer, task_id: str) -> list[Json]:
    """Return all push configs of a task in the format of 1.0."""
    _, result = await ask(peer, "push list", task_id)
    return [plain(config) for config in (result["configs"] if peer.wire.modern else result)]


# In memory


async def test_push_configs_keep_their_order_and_are_deleted_with_their_task() -> None:
    store = InMemoryTaskStore()
    await store.save(record("t"))
    webhooks = [webhook("c2"), webhook("c1")]
    await store.save_webhooks("t", webhooks)
    assert [*await store.webhooks("t")] == webhooks
    assert await store.delete("t")
    await store.save(record("t"))
    assert not await store.webhooks("t")


async def test_push_configs_expire_with_their_task() -> None:
    store = InMemoryTaskStore(ttl=0.01)
    await store.save_webhooks("t", [webhook()])
    await store.save(record("t", COMPLETED))
    assert await store.webhooks("t")
    await wait_until(lambda: len(store) == 0)
    assert not await store.webhooks("t")


async def test_push_configs_are_evicted_with_their_task() -> None:
    store = InMemoryTaskStore(max_capacity=2)
    for name, state in (("working", WORKING), ("ended", COMPLETED), ("new", WORKING)):
        await store.save(record(name, state))
        await store.save_webhooks(name, [webhook(task_id=name)])
    assert await store.get("ended") is None
    webhook_counts = {name: len(await store.webhooks(name)) for name in ("working", "ended", "new")}
    assert webhook_counts == {"working": 1, "ended": 0, "new": 1}


async def test_the_memory_store_has_the_three_push_config_methods_of_the_srs() -> None:
    store, config = InMemoryTaskStore(), Config(id="c1", task_id="t", url=UNREACHABLE)
    await store.save(record("t"))
    assert await store.get_push_config("t") is None
    assert await store.delete_push_config("t") is False
    await store.save_push_config("t", config)
    assert await store.get_push_config("t") == config
    assert await store.delete_push_config("t") is True
    assert await store.get_push_config("t") is None


@every_dialect
async def test_an_evicted_task_has_no_push_configs(dialect: str) -> None:
    async with serving(MODULES, dialect, push_notifications=QUICK, max_tasks=1) as peer:
        task_id = (await peer.send()).task["id"]
        await ask(peer, "push set", task_id, **HOOK)
        assert await hooks_of(peer, task_id)
        await peer.send()
        for operation in ("push set", "push get", "push list", "push delete"):
            assert await ask(peer, operation, task_id, "c1", **HOOK) == (-32001, None)


# In users' stores


@every_dialect
async def test_a_users_store_keeps_the_push_config_of_a_task(dialect: str) -> None:
    store = DictStore()
    async with serving(MODULES, dialect, task_store=store, push_notifications=QUICK) as peer:
        task_id = (await peer.send()).task["id"]
        assert await hooks_of(peer, task_id) == []
        assert (await ask(peer, "push set", task_id, **HOOK))[0] is None
        stored = store.configs[task_id]
        assert (stored.id, stored.url, stored.token, stored.task_id) == (
            "c1",
            UNREACHABLE,
            "t-1",
            task_id,
        )
        assert await hooks_of(peer, task_id) == [{"taskId": task_id, **HOOK}]
        assert (await ask(peer, "push set", task_id, id="c1", url=f"{UNREACHABLE}/new"))[0] is None
        assert store.configs[task_id].url == f"{UNREACHABLE}/new"
        assert (await ask(peer, "push delete", task_id, "c1"))[0] is None
        assert (store.configs, await hooks_of(peer, task_id)) == ({}, [])


@every_dialect
async def test_a_users_store_keeps_its_one_push_config_and_refuses_a_second(dialect: str) -> None:
    store = DictStore()
    async with serving(MODULES, dialect, task_store=store, push_notifications=QUICK) as peer:
        task_id = (await peer.send("pay")).task["id"]
        await ask(peer, "push set", task_id, **HOOK)
        assert await ask(peer, "push set", task_id, id="c2", url=UNREACHABLE) == (-32602, None)
        params = Hooks(peer.wire).send_params(
            "pay", hook={"id": "c2", "url": UNREACHABLE}, taskId=task_id
        )
        assert (await peer.ask("send", params)).code == -32602
        assert await peer.state(task_id) == "input-required"
        assert await hooks_of(peer, task_id) == [{"taskId": task_id, **HOOK}]


async def approve(peer: Peer, task_id: str) -> Json:
    """Approve a paused task and return it."""
    part = peer.part(text="yes")
    return (await peer.send("pay", part, taskId=task_id)).task


@every_dialect
@pytest.mark.parametrize("store_type", [DictStore, InMemoryTaskStore])
async def test_a_push_config_survives_a_restart_and_keeps_its_protocol_version(
    dialect: str, store_type: Any
) -> None:
    store, other_dialect = store_type(), "1.0" if dialect == "0.3" else "0.3"
    with receiving() as receiver:
        async with serving(MODULES, dialect, task_store=store, push_notifications=QUICK) as peer:
            task_id = (await peer.send("pay")).task["id"]
            await ask(peer, "push set", task_id, **{**HOOK, "url": receiver.url})
        async with serving(
            MODULES, other_dialect, task_store=store, push_notifications=QUICK
        ) as peer:
            assert await hooks_of(peer, task_id) == [
                {"taskId": task_id, **HOOK, "url": receiver.url}
            ]
            await approve(peer, task_id)
            await asyncio.to_thread(receiver.wait, 2)
    assert receiver.states == ["working", "completed"]
    are_v03 = {"id" in delivery.json for delivery in receiver.deliveries}
    assert are_v03 == {dialect == "0.3"}


async def test_the_failure_of_a_webhook_survives_a_restart() -> None:
    store = DictStore()
    with receiving(lambda delivery: Reply(500)) as receiver:
        async with serving(MODULES, "0.3", task_store=store, push_notifications=QUICK) as peer:
            hook = {**HOOK, "url": receiver.url}
            params = Hooks(peer.wire).send_params("pay", hook=hook)
            task_id = (await peer.ask("send", params)).task["id"]
            await asyncio.to_thread(receiver.wait, 1)
            # the failure is stored in `tenant`
            await wait_until(lambda: "500" in store.configs[task_id].tenant)
        async with serving(MODULES, "0.3", task_store=store, push_notifications=QUICK) as peer:
            _, config = await ask(peer, "push get", task_id)
            assert (config["status"], config["reason"]) == ("failed", "status 500")
            assert "tenant" not in config["pushNotificationConfig"]
            await approve(peer, task_id)
        assert len(receiver) == 1


class FailingSaves(DictStore):
    """A store that raises when a push config is saved."""

    async def save_push_config(self, task_id: str, config: Any) -> None:
        raise RuntimeError(SECRET)


class FailingSavesAndDeletions(FailingSaves):
    """A store that raises when a push config is saved or deleted."""

    async def delete_push_config(self, task_id: str) -> bool:
        raise RuntimeError(SECRET)


@every_dialect
@pytest.mark.parametrize("operation", ["send", "stream"])
@pytest.mark.parametrize("store_type", [FailingSaves, FailingSavesAndDeletions])
async def test_a_message_is_refused_if_its_push_config_cannot_be_saved(
    dialect: str, operation: str, store_type: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gate, store = Gate(), store_type()
    modules = {"work": ActionModule(gate)}
    async with serving(modules, dialect, task_store=store, push_notifications=QUICK) as peer:
        params = Hooks(peer.wire).send_params("work", hook=HOOK)
        answer = await peer.ask(operation, params)
        assert answer.code == -32603
        assert SECRET in caplog.text
        assert (store.records, store.configs) == ({}, {})
        assert (await peer.ask("list")).result["tasks"] == []
        await wait_until(lambda: not peer.agent.engine.runs)
        assert not gate.calls


async def test_a_store_that_cannot_save_the_task_keeps_no_push_config() -> None:
    store = BrokenStore(lambda record: True)
    async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
        answer = await peer.ask("send", Hooks(peer.wire).send_params("work", hook=HOOK))
        assert answer.code == -32603
        assert (store.records, store.configs) == ({}, {})


async def test_a_send_whose_task_could_not_be_saved_in_time_can_be_repeated() -> None:
    class HangingStore(DictStore):
        hangs = True

        async def _wait(self) -> None:
            if self.hangs:
                await asyncio.Event().wait()

        async def save(self, record: Any) -> None:
            await self._wait()
            await super().save(record)

        async def delete_push_config(self, task_id: str) -> bool:
            await self._wait()
            return await super().delete_push_config(task_id)

    store = HangingStore()
    async with serving(
        MODULES, task_store=store, execution_timeout=0.3, push_notifications=QUICK
    ) as peer:
        params = Hooks(peer.wire).send_params("work", hook=HOOK)
        key = {"Idempotency-Key": "key"}
        assert (await peer.ask("send", params, key)).code == -32603
        await wait_until(lambda: not peer.agent.engine.runs)
        assert (store.records, peer.agent.setup.tasks.kept_bytes) == ({}, 0)
        store.hangs = False
        assert (await peer.ask("send", params, key)).state == "completed"


async def test_a_full_store_keeps_no_push_config_of_a_refused_task() -> None:
    gate, store = Gate(), InMemoryTaskStore(max_capacity=1)
    modules = {"work": ActionModule(gate)}
    async with serving(modules, task_store=store, push_notifications=QUICK) as peer:
        await peer.start()
        answer = await peer.ask("send", Hooks(peer.wire).send_params("work", hook=HOOK))
        assert answer.error is not None
        assert not store._webhooks


@every_dialect
async def test_a_push_config_that_cannot_be_saved_does_not_affect_the_task(dialect: str) -> None:
    async with serving(
        MODULES, dialect, task_store=FailingSaves(), push_notifications=QUICK
    ) as peer:
        task_id = (await peer.send("pay")).task["id"]
        assert await ask(peer, "push set", task_id, **HOOK) == (-32603, None)
        assert await hooks_of(peer, task_id) == []
        assert (await approve(peer, task_id))["status"]["state"].lower().endswith("completed")


async def test_a_webhook_failure_that_cannot_be_saved_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class SavesConfigOnce(DictStore):
        async def save_push_config(self, task_id: str, config: Any) -> None:
            if task_id in self.configs:
                raise RuntimeError(SECRET)
            await super().save_push_config(task_id, config)

    with receiving(lambda delivery: Reply(500)) as receiver:
        async with serving(MODULES, task_store=SavesConfigOnce(), push_notifications=QUICK) as peer:
            params = Hooks(peer.wire).send_params("work", hook={**HOOK, "url": receiver.url})
            assert (await peer.ask("send", params)).state == "completed"
            await wait_until(lambda: "webhooks not saved" in caplog.text)
            assert SECRET not in caplog.text


async def test_without_push_notifications_the_store_is_not_asked_for_push_configs() -> None:
    class NoPushStore(DictStore):
        async def get_push_config(self, task_id: str) -> Any:
            raise AssertionError

        save_push_config = delete_push_config = get_push_config  # type: ignore[assignment]  # none is called

    async with serving(MODULES, task_store=NoPushStore()) as peer:
        task_id = (await peer.send("pay")).task["id"]
        assert (await approve(peer, task_id))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_with_a_store_of_the_sdk_push_configs_are_kept_in_memory() -> None:
    store = SdkStore()
    with receiving() as receiver:
        async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
            hook = {**HOOK, "url": receiver.url}
            params = Hooks(peer.wire).send_params("pay", hook=hook)
            task_id = (await peer.ask("send", params)).task["id"]
            assert await hooks_of(peer, task_id) == [{"taskId": task_id, **hook}]
            await approve(peer, task_id)
            await asyncio.to_thread(receiver.wait, 5)
            assert await hooks_of(peer, task_id) == [{"taskId": task_id, **hook}]
        async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
            assert await hooks_of(peer, task_id) == []
    states = ["submitted", "working", "input-required", "working", "completed"]
    assert receiver.states == states
