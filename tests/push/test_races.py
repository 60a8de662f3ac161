"""The outbox where things meet: sets, deletes, failures and the end, in the very same moment."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from a2a import types as a2a
from apcore_a2a_core.states import COMPLETED, INPUT_REQUIRED, WORKING
from apcore_a2a_server import InMemoryTaskStore
from apcore_a2a_server.store import Webhook

from tests.server.inloop import Does, Gate, serving, true
from tests.server.test_custom_stores import DictStore
from tests.server.test_push_stores import GIVEN, HOOK, QUICK, ask, hooks_of
from tests.server.webhooks import Hooks
from tests.serving import PATIENCE

from .bench import LATER, NEW, OLD, Bench, answering, bench, hook
from .receiver import Delivery, Reply, receiving, script

pytestmark = pytest.mark.anyio

TOKEN = "open-sesame"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """Either event loop: they differ in whether timers or callbacks come first."""
    return "asyncio", {"use_uvloop": request.param}


# When an attempt ends


async def drained(it: Bench) -> None:
    it.hand.answer_all()
    await it.queue.drain(PATIENCE)
    it.queue.start()


async def put_back(it: Bench) -> None:
    await it.set()
    await it.set(hook(NEW))


MEANWHILE = {
    "a set": lambda it: it.set(hook(NEW)),
    "the same set": lambda it: it.set(hook()),
    "a delete": lambda it: it.set(),
    "a delete and a set": put_back,
    "a set and a delete": lambda it: asyncio.gather(it.set(hook(NEW)), it.set()),
    "the end": drained,
}


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("status", [200, 410, 500])
@pytest.mark.parametrize("name", MEANWHILE)
async def test_what_comes_in_the_moment_when_an_attempt_ends_breaks_nothing(
    name: str, status: int, steps: int
) -> None:
    """With one step it comes when the work has ended, and its callback not yet been called."""
    async with bench(hook()) as it:
        first = await it.hand.next()
        (work,) = it.deliveries
        first.answer.set_result(answering(status))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert (work.done(), len(it.deliveries)) == (steps > 0, 1 if steps < 2 else 0)
        await MEANWHILE[name](it)
        if status == 500 and name == "a set":  # and not a minute later
            assert (await it.hand.next()).url == NEW
        it.hand.answer_all()
        await it.set(hook(LATER, "c2"))
        await it.move(COMPLETED)
        await true(lambda: it.hand.urls[-1] == LATER)
    assert len(it.hand.attempts) <= 3


@pytest.mark.parametrize("steps", range(3))
@pytest.mark.parametrize("status", [200, 410, 500])
async def test_a_transition_in_the_moment_when_an_attempt_ends_is_told_in_its_turn(
    status: int, steps: int
) -> None:
    async with bench(hook()) as it:
        await it.hand.next()
        it.hand.attempts[0].answer.set_result(answering(status))
        for _ in range(steps):
            await asyncio.sleep(0)
        await it.move(COMPLETED)
        await true(lambda: not it.deliveries or len(it.hand.attempts) == 2)
    ids = [attempt.id for attempt in it.hand.attempts]
    numbers = [[*dict.fromkeys(ids)].index(told) for told in ids]
    assert numbers == {200: [0, 1], 410: [0], 500: [0, 0, 1]}[status]


async def test_an_attempt_that_is_due_before_the_last_has_quite_ended_is_made_once() -> None:
    async with bench(hook(), retries=(0, 0)) as it:
        for count in (1, 2, 3):
            await it.hand.answer(500 if count < 3 else 200)
            await true(lambda: not it.deliveries or it.hand.under_way)
            for _ in range(20):
                await asyncio.sleep(0)
            assert it.hand.under_way == (count < 3)
    assert len(it.hand.attempts) == 3


# Old addresses


@pytest.mark.parametrize("statuses", [[410], [500, 500, 500], [200]], ids=str)
async def test_what_becomes_of_the_old_address_does_not_concern_the_new_one(
    statuses: list[int],
) -> None:
    async with bench(hook(), retries=(0, 0)) as it:
        await it.hand.answer(*statuses[:-1])
        last = await it.hand.next()
        await it.set(hook(NEW))
        last.answer.set_result(answering(statuses[-1]))
        await it.hand.answer(500, 500, 200)  # it has all its attempts
        await it.move(COMPLETED)
        await it.hand.answer(200)
        assert await it.failures() == {"c1": ""}
    assert it.hand.urls == [OLD] * len(statuses) + [NEW] * 4
    assert len({attempt.id for attempt in it.hand.attempts}) == 2


# Marks


class Slow(InMemoryTaskStore):
    """Saves webhooks when it is let go on."""

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
async def test_a_set_like_the_one_that_has_failed_is_active_whoever_is_first(order: str) -> None:
    store = Slow()
    async with bench(hook(), store=store, retries=()) as it:
        first, saves = await it.hand.next(), []
        store.gate.clear()
        store.reached.clear()
        saves.append(asyncio.create_task(it.set(hook())))  # holds the place that others wait for
        await store.reached.wait()
        for name in order.split(", "):
            if name == "set":
                saves.append(asyncio.create_task(it.set(hook())))
            else:
                first.answer.set_result(answering(500))
            for _ in range(3):
                await asyncio.sleep(0)
        store.gate.set()
        await asyncio.gather(*saves)
        await true(lambda: not it.deliveries)
        assert await it.failures() == {"c1": ""}
        await it.move(COMPLETED)
        assert (await it.hand.next()).id != first.id
    assert not any(webhook.failure for webhook in await store.webhooks("t"))


async def test_the_mark_is_made_of_a_webhook_that_its_store_gives_back_changed() -> None:
    class Changing(DictStore):
        async def get_push_config(self, task_id: str) -> Any:
            kept = a2a.TaskPushNotificationConfig()
            kept.CopyFrom(self.configs[task_id])
            kept.ClearField("token")
            return kept

    ended, store = asyncio.Event(), Changing()
    loop = asyncio.get_running_loop()

    def answer(delivery: Delivery) -> Reply:
        asyncio.run_coroutine_threadsafe(ended.wait(), loop).result(PATIENCE)
        return Reply(500)

    with receiving(answer) as receiver:
        async with serving(GIVEN, "0.3", task_store=store, push_notifications=QUICK) as peer:
            params = Hooks(peer.wire).sending("work", hook={**HOOK, "url": receiver.url})
            task = (await peer.ask("send", params)).task["id"]
            ended.set()
            await true(lambda: "status 500" in store.configs[task].tenant)
            _, found = await ask(peer, "push get", task)
            assert (found["status"], found["reason"]) == ("failed", "status 500")
    assert len(receiver) == 1


async def test_nothing_is_told_behind_what_is_missing_when_the_mark_was_not_saved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Once(DictStore):
        async def save_push_config(self, task_id: str, config: Any) -> None:
            if task_id in self.configs:
                raise OSError(TOKEN)
            await super().save_push_config(task_id, config)

    gate, modules = Gate(), dict[str, object]()
    modules["work"] = Does(gate)
    with receiving(script(Reply(500))) as receiver:
        async with serving(modules, task_store=Once(), push_notifications=QUICK) as peer:
            params = Hooks(peer.wire).sending("work", hook={**HOOK, "url": receiver.url})
            wish = {**params["configuration"], "returnImmediately": True}
            task = (await peer.ask("send", {**params, "configuration": wish})).task["id"]
            await true(lambda: "not saved" in caplog.text)
            gate.opened.set()
            await peer.until(task, "completed")
            assert peer.served.push
            assert not peer.served.setup.tasks.store.backlog.pending
            (shown,) = (await ask(peer, "push list", task))[1]["configs"]
    assert receiver.states == ["submitted"]
    assert shown["id"] == "c1"
    assert TOKEN not in caplog.text


async def test_nothing_is_told_behind_what_is_missing_while_the_mark_is_being_saved() -> None:
    store = Slow()
    async with bench(hook(), store=store, retries=()) as it:
        store.gate.clear()
        await it.hand.answer(500)
        await it.move(INPUT_REQUIRED)
        store.gate.set()
        await true(lambda: not it.deliveries)
        await it.move(COMPLETED)
        assert await it.failures() == {"c1": "status 500"}
    assert len(it.hand.attempts) == 1


# Answers that are refused


async def test_a_set_beside_an_answer_that_its_store_refuses_stays() -> None:
    class Full(DictStore):
        def __init__(self) -> None:
            super().__init__()
            self.reached, self.gate = asyncio.Event(), asyncio.Event()

        async def save(self, given: Any) -> None:
            if given.task.status.state == WORKING and given.version > 3:
                self.reached.set()
                await self.gate.wait()
                raise OSError
            await super().save(given)

    store = Full()
    async with serving(GIVEN, task_store=store, push_notifications=QUICK) as peer:
        first = Hooks(peer.wire).sending("pay", hook={"id": "c1", "url": OLD})
        task = (await peer.ask("send", first)).task["id"]
        part = peer.part(text="yes")
        params = Hooks(peer.wire).sending("pay", part, hook={"id": "c1", "url": NEW}, taskId=task)
        answer = asyncio.create_task(peer.ask("send", params))
        await store.reached.wait()
        assert (await ask(peer, "push set", task, id="c1", url=LATER))[0] is None
        store.gate.set()
        assert (await answer).code == -32603
        assert await hooks_of(peer, task) == [{"taskId": task, "id": "c1", "url": LATER}]


async def test_an_answer_that_its_store_refuses_replaces_no_webhook() -> None:
    class Full(DictStore):
        is_full = True

        async def save(self, given: Any) -> None:
            if self.is_full and given.task.status.state == WORKING and given.version > 3:
                raise OSError
            await super().save(given)

    store = Full()
    async with serving(GIVEN, task_store=store, push_notifications=QUICK) as peer:
        hooks = Hooks(peer.wire)
        first = hooks.sending("pay", hook={"id": "c1", "url": OLD})
        task = (await peer.ask("send", first)).task["id"]
        part = peer.part(text="yes")
        answer = hooks.sending("pay", part, hook={"id": "c1", "url": NEW}, taskId=task)
        assert (await peer.ask("send", answer)).code == -32603
        assert await hooks_of(peer, task) == [{"taskId": task, "id": "c1", "url": OLD}]
        store.is_full = False
        assert (await peer.ask("send", answer)).state == "completed"
        assert await hooks_of(peer, task) == [{"taskId": task, "id": "c1", "url": NEW}]


@pytest.mark.parametrize("word", ["yes", "no", "perhaps"])
async def test_each_of_two_answers_brings_its_webhook(word: str) -> None:
    async with serving(GIVEN, push_notifications=QUICK) as peer:
        hooks, part = Hooks(peer.wire), peer.part(text=word)
        task = (await peer.send("pay")).task["id"]
        answers = [
            hooks.sending("pay", part, hook={"id": name, "url": OLD}, taskId=task)
            for name in ("c1", "c2")
        ]
        found = await asyncio.gather(*(peer.ask("send", answer) for answer in answers))
        assert [answer.error for answer in found] == [None, None]
        assert {hook["id"] for hook in await hooks_of(peer, task)} == {"c1", "c2"}
