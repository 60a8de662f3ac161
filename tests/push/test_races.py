"""Races of deliveries with changed and deleted webhooks, failures and shutdown."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED, WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.store import Webhook
from msgspec.structs import replace

from tests.server.inloop import ActionModule, Gate, serving, wait_until
from tests.server.test_custom_stores import DictStore
from tests.server.test_push_stores import HOOK, MODULES, QUICK, ask, hooks_of
from tests.server.webhooks import Hooks
from tests.serving import PATIENCE

from .bench import LATER, NEW, OLD, Bench, bench, hook, response_with
from .receiver import Delivery, Reply, receiving, script

pytestmark = pytest.mark.anyio

TOKEN = "open-sesame"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """Run the test with either event loop: they order timers and callbacks differently."""
    return "asyncio", {"use_uvloop": request.param}


# At the end of an attempt


async def drain_and_restart(queue_bench: Bench) -> None:
    queue_bench.transport.answer_all()
    await queue_bench.queue.drain(PATIENCE)
    queue_bench.queue.start()


async def delete_and_set(queue_bench: Bench) -> None:
    await queue_bench.set_webhooks()
    await queue_bench.set_webhooks(hook(NEW))


CHANGES = {
    "a new URL": lambda queue_bench: queue_bench.set_webhooks(hook(NEW)),
    "the same URL": lambda queue_bench: queue_bench.set_webhooks(hook()),
    "a deletion": lambda queue_bench: queue_bench.set_webhooks(),
    "a deletion and a new URL": delete_and_set,
    "a new URL and a deletion": lambda queue_bench: asyncio.gather(
        queue_bench.set_webhooks(hook(NEW)), queue_bench.set_webhooks()
    ),
    "a drain and a restart": drain_and_restart,
}


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("status", [200, 410, 500])
@pytest.mark.parametrize("name", CHANGES)
async def test_changes_at_the_end_of_an_attempt_are_applied(
    name: str, status: int, steps: int
) -> None:
    """After one step of the event loop, the attempt is done but its callback was not called yet."""
    async with bench(hook()) as queue_bench:
        first = await queue_bench.transport.next()
        (delivery_task,) = queue_bench.deliveries
        first.answer.set_result(response_with(status))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert (delivery_task.done(), len(queue_bench.deliveries)) == (
            steps > 0,
            1 if steps < 2 else 0,
        )
        await CHANGES[name](queue_bench)
        if status == 500 and name == "a new URL":  # without the backoff
            assert (await queue_bench.transport.next()).url == NEW
        queue_bench.transport.answer_all()
        await queue_bench.set_webhooks(hook(LATER, "c2"))
        await queue_bench.change_state(COMPLETED)
        await wait_until(lambda: queue_bench.transport.urls[-1] == LATER)
    assert len(queue_bench.transport.attempts) <= 3


@pytest.mark.parametrize("steps", range(3))
@pytest.mark.parametrize("status", [200, 410, 500])
async def test_a_transition_at_the_end_of_an_attempt_is_delivered_in_order(
    status: int, steps: int
) -> None:
    async with bench(hook()) as queue_bench:
        await queue_bench.transport.next()
        queue_bench.transport.attempts[0].answer.set_result(response_with(status))
        for _ in range(steps):
            await asyncio.sleep(0)
        await queue_bench.change_state(COMPLETED)
        await wait_until(
            lambda: not queue_bench.deliveries or len(queue_bench.transport.attempts) == 2
        )
    ids = [attempt.id for attempt in queue_bench.transport.attempts]
    numbers = [[*dict.fromkeys(ids)].index(id) for id in ids]
    assert numbers == {200: [0, 1], 410: [0], 500: [0, 0, 1]}[status]


async def test_a_retry_due_before_the_previous_attempt_has_ended_is_made_once() -> None:
    async with bench(hook(), retries=(0, 0)) as queue_bench:
        for count in (1, 2, 3):
            await queue_bench.transport.answer(500 if count < 3 else 200)
            await wait_until(lambda: not queue_bench.deliveries or queue_bench.transport.in_flight)
            for _ in range(20):
                await asyncio.sleep(0)
            assert queue_bench.transport.in_flight == (count < 3)
    assert len(queue_bench.transport.attempts) == 3


# Replaced URLs


@pytest.mark.parametrize("statuses", [[410], [500, 500, 500], [200]], ids=str)
async def test_results_for_a_replaced_url_do_not_affect_the_new_one(
    statuses: list[int],
) -> None:
    async with bench(hook(), retries=(0, 0)) as queue_bench:
        await queue_bench.transport.answer(*statuses[:-1])
        last = await queue_bench.transport.next()
        await queue_bench.set_webhooks(hook(NEW))
        last.answer.set_result(response_with(statuses[-1]))
        await queue_bench.transport.answer(500, 500, 200)  # the new URL has all its attempts
        await queue_bench.change_state(COMPLETED)
        await queue_bench.transport.answer(200)
        assert await queue_bench.failures() == {"c1": ""}
    assert queue_bench.transport.urls == [OLD] * len(statuses) + [NEW] * 4
    assert len({attempt.id for attempt in queue_bench.transport.attempts}) == 2


# Failure marks


class SlowStore(InMemoryTaskStore):
    """Store that saves webhooks only while its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.reached = asyncio.Event()

    async def write_webhooks(self, task_id: str, webhooks: Sequence[Webhook]) -> None:
        self.reached.set()
        await self.gate.wait()
        await super().write_webhooks(task_id, webhooks)


@pytest.mark.parametrize("order", ["set, mark", "mark, set", "set, mark, set"])
async def test_a_webhook_set_again_while_it_fails_is_active_in_any_order(order: str) -> None:
    store = SlowStore()
    async with bench(hook(), store=store, retries=()) as queue_bench:
        first_attempt, saves = await queue_bench.transport.next(), []
        store.gate.clear()
        store.reached.clear()
        # the first save holds the lock that the later ones wait for
        saves.append(asyncio.create_task(queue_bench.set_webhooks(hook())))
        await store.reached.wait()
        for name in order.split(", "):
            if name == "set":
                saves.append(asyncio.create_task(queue_bench.set_webhooks(hook())))
            else:
                first_attempt.answer.set_result(response_with(500))
            for _ in range(3):
                await asyncio.sleep(0)
        store.gate.set()
        await asyncio.gather(*saves)
        await wait_until(lambda: not queue_bench.deliveries)
        assert await queue_bench.failures() == {"c1": ""}
        await queue_bench.change_state(COMPLETED)
        assert (await queue_bench.transport.next()).id != first_attempt.id
    assert not any(webhook.failure for webhook in await store.webhooks("t"))


async def test_a_webhook_can_be_marked_as_failed_even_if_its_store_returns_it_changed() -> None:
    class ChangingStore(DictStore):
        async def get_push_config(self, task_id: str) -> Any:
            return replace(self.configs[task_id], token="")

    release, store = asyncio.Event(), ChangingStore()
    loop = asyncio.get_running_loop()

    def answer(delivery: Delivery) -> Reply:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(PATIENCE)
        return Reply(500)

    with receiving(answer) as receiver:
        async with serving(MODULES, "0.3", task_store=store, push_notifications=QUICK) as peer:
            params = Hooks(peer.wire).send_params("work", hook={**HOOK, "url": receiver.url})
            task = (await peer.ask("send", params)).task["id"]
            release.set()
            # a custom store keeps the failure in the config's `tenant`
            await wait_until(lambda: "status 500" in store.configs[task].tenant)
            _, config = await ask(peer, "push get", task)
            assert (config["status"], config["reason"]) == ("failed", "status 500")
    assert len(receiver) == 1


async def test_notifications_stop_after_a_failed_one_even_if_the_failure_is_not_saved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class OneSaveStore(DictStore):
        async def save_push_config(self, task_id: str, config: Any) -> None:
            if task_id in self.configs:
                raise OSError(TOKEN)
            await super().save_push_config(task_id, config)

    gate, modules = Gate(), dict[str, object]()
    modules["work"] = ActionModule(gate)
    with receiving(script(Reply(500))) as receiver:
        async with serving(modules, task_store=OneSaveStore(), push_notifications=QUICK) as peer:
            params = Hooks(peer.wire).send_params("work", hook={**HOOK, "url": receiver.url})
            configuration = {**params["configuration"], "returnImmediately": True}
            task = (await peer.ask("send", {**params, "configuration": configuration})).task["id"]
            await wait_until(lambda: "not saved" in caplog.text)
            gate.opened.set()
            await peer.until(task, "completed")
            assert peer.agent.push
            assert not peer.agent.setup.tasks.store.backlog.pending
            (config,) = (await ask(peer, "push list", task))[1]["configs"]
    assert receiver.states == ["submitted"]
    assert config["id"] == "c1"
    assert TOKEN not in caplog.text


async def test_notifications_stop_after_a_failed_one_while_the_failure_is_being_saved() -> None:
    store = SlowStore()
    async with bench(hook(), store=store, retries=()) as queue_bench:
        store.gate.clear()
        store.reached.clear()
        await queue_bench.transport.answer(500)
        await store.reached.wait()
        await queue_bench.change_state(INPUT_REQUIRED)
        store.gate.set()
        await wait_until(lambda: not queue_bench.deliveries)
        await queue_bench.change_state(COMPLETED)
        assert await queue_bench.failures() == {"c1": "status 500"}
    assert len(queue_bench.transport.attempts) == 1


# Messages with webhooks


async def test_a_webhook_set_while_the_store_rejects_a_message_is_kept() -> None:
    class FullStore(DictStore):
        def __init__(self) -> None:
            super().__init__()
            self.reached, self.gate = asyncio.Event(), asyncio.Event()

        async def save(self, record: Any) -> None:
            if record.task.status.state == WORKING and record.version > 3:
                self.reached.set()
                await self.gate.wait()
                raise OSError
            await super().save(record)

    store = FullStore()
    async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
        first = Hooks(peer.wire).send_params("pay", hook={"id": "c1", "url": OLD})
        task = (await peer.ask("send", first)).task["id"]
        part = peer.part(text="yes")
        params = Hooks(peer.wire).send_params(
            "pay", part, hook={"id": "c1", "url": NEW}, taskId=task
        )
        answer = asyncio.create_task(peer.ask("send", params))
        await store.reached.wait()
        assert (await ask(peer, "push set", task, id="c1", url=LATER))[0] is None
        store.gate.set()
        assert (await answer).code == -32603
        assert await hooks_of(peer, task) == [{"taskId": task, "id": "c1", "url": LATER}]


async def test_a_message_that_the_store_rejects_replaces_no_webhook() -> None:
    class FullStore(DictStore):
        is_full = True

        async def save(self, record: Any) -> None:
            if self.is_full and record.task.status.state == WORKING and record.version > 3:
                raise OSError
            await super().save(record)

    store = FullStore()
    async with serving(MODULES, task_store=store, push_notifications=QUICK) as peer:
        hooks = Hooks(peer.wire)
        first = hooks.send_params("pay", hook={"id": "c1", "url": OLD})
        task = (await peer.ask("send", first)).task["id"]
        part = peer.part(text="yes")
        answer = hooks.send_params("pay", part, hook={"id": "c1", "url": NEW}, taskId=task)
        assert (await peer.ask("send", answer)).code == -32603
        assert await hooks_of(peer, task) == [{"taskId": task, "id": "c1", "url": OLD}]
        store.is_full = False
        assert (await peer.ask("send", answer)).state == "completed"
        assert await hooks_of(peer, task) == [{"taskId": task, "id": "c1", "url": NEW}]


@pytest.mark.parametrize("word", ["yes", "no", "perhaps"])
async def test_each_of_two_concurrent_messages_adds_its_webhook(word: str) -> None:
    async with serving(MODULES, push_notifications=QUICK) as peer:
        hooks, part = Hooks(peer.wire), peer.part(text=word)
        task = (await peer.send("pay")).task["id"]
        answers = [
            hooks.send_params("pay", part, hook={"id": name, "url": OLD}, taskId=task)
            for name in ("c1", "c2")
        ]
        outcomes = await asyncio.gather(*(peer.ask("send", answer) for answer in answers))
        assert [answer.error for answer in outcomes] == [None, None]
        assert {hook["id"] for hook in await hooks_of(peer, task)} == {"c1", "c2"}
