"""The conversation that modules see, and modules that ask for more input."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from apcore_a2a_core import InputRequiredError
from apcore_a2a_core.data import Message, Part, Role, SendMessageRequest, Task
from apcore_a2a_server import InMemoryTaskStore, Limits
from apcore_a2a_server.engine.clients import Caller, Connection
from apcore_a2a_server.engine.handler import Request
from apcore_a2a_server.modules import Conversation
from pydantic import BaseModel

from .checking_client import Json, state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Peer,
    StreamModule,
    SyncActionModule,
    content_of,
    contents,
    echo,
    registry_of,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .test_custom_stores import DictStore

pytestmark = pytest.mark.anyio


class Listener:
    """An action that records the conversations it was called in."""

    def __init__(self) -> None:
        self.conversations: list[Conversation] = []
        self.data: list[Json] = []

    async def __call__(self, inputs: Inputs, context: Any) -> Inputs:
        self.conversations.append(context.services)
        self.data.append(context.data)
        return {"history": texts(context.services.history)}


def texts(history: Any) -> list[Any]:
    """Return the role and the first content of each message."""
    roles = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}
    return [f"{roles[entry['role']]}: {content_of(entry['parts'][0])}" for entry in history]


async def say(peer: Peer, text: str, skill: str | None = "work", **members: Any) -> Json:
    """Send a message with the ids in *members* and return its task."""
    params = peer.wire.params(skill or "work", peer.part(text=text), **members)
    if skill is None:
        del params["metadata"]
    return (await peer.ask("send", params)).task


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_module_sees_the_earlier_messages_but_not_the_current_one(dialect: str) -> None:
    listener = Listener()
    async with serving({"work": ActionModule(listener)}, dialect) as peer:
        first = await say(peer, "one")
        assert contents(first) == [{"history": []}]
        for number, text in enumerate(["two", "three"], 1):
            task = await say(peer, text, contextId=first["contextId"])
            earlier = ["user: one", "user: two"][:number]
            assert contents(task) == [{"history": earlier}]
            assert task["contextId"] == first["contextId"]
        assert contents(await say(peer, "else")) == [{"history": []}]
        conversation, data = listener.conversations[1], listener.data[1]
        assert conversation.task_id != first["id"]
        assert data["ext.a2a.context_id"] == conversation.context_id == first["contextId"]
        assert data["ext.a2a.task_id"] == conversation.task_id
        assert data["ext.a2a.history"] == conversation.history
        (message,) = conversation.history
        assert message["role"] == "ROLE_USER"
        assert message["parts"] == [{"text": "one"}]
        assert message["contextId"] == first["contextId"]


async def test_a_synchronous_module_sees_the_conversation() -> None:
    conversations: list[Any] = []

    def listen(inputs: Inputs, context: Any) -> Inputs:
        conversations.append(
            (texts(context.services.history), texts(context.data["ext.a2a.history"]))
        )
        return {}

    async with serving({"work": SyncActionModule(listen)}) as peer:
        await say(peer, "one", contextId="c")
        await say(peer, "two", contextId="c")
    assert conversations == [([], []), (["user: one"], ["user: one"])]


async def test_a_nested_module_sees_the_same_conversation() -> None:
    listener = Listener()

    async def call_inner(inputs: Inputs, context: Any) -> Any:
        return await context.executor.call_async("inner", {}, context)

    async with serving({"work": ActionModule(call_inner), "inner": ActionModule(listener)}) as peer:
        await say(peer, "one", contextId="c")
        assert contents(await say(peer, "two", contextId="c")) == [{"history": ["user: one"]}]


async def test_a_streaming_module_sees_the_conversation() -> None:
    async def source(inputs: Inputs, context: Any) -> Any:
        yield {"history": texts(context.services.history)}

    async with serving({"work": StreamModule(source)}) as peer:
        async with peer.stream("work", peer.part(text="one"), contextId="c") as stream:
            await stream.rest()
        async with peer.stream("work", peer.part(text="two"), contextId="c") as stream:
            frames = await stream.rest()
        assert frames[2].parts == [{"history": ["user: one"]}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_module_sees_the_parts_of_a_message_besides_its_input(dialect: str) -> None:
    listener = Listener()
    async with serving({"work": ActionModule(listener)}, dialect) as peer:
        other_parts = [peer.part(data={"n": 2**60}), peer.part(text="second")]
        await peer.send("work", peer.part(data={"a": 1}), *other_parts)
        (conversation,) = listener.conversations
        assert conversation.parts == [{"data": {"n": 2**60}}, {"text": "second"}]
        assert listener.data[0]["ext.a2a.parts"] == conversation.parts


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_conversation_has_approvals_and_answers_in_order(dialect: str) -> None:
    listener = Listener()
    modules = {
        "pay": ActionModule(listener, annotations=NEEDS_APPROVAL),
        "work": ActionModule(listener),
    }
    async with serving(modules, dialect) as peer:
        paused = await say(peer, "pay it", "pay")
        context_id = paused["contextId"]
        await say(peer, "hello", contextId=context_id)
        question = "agent: Approval required for module pay\ntext: pay it"
        assert texts(listener.conversations[0].history) == ["user: pay it", question]
        answered = await say(peer, "yes", None, contextId=context_id, taskId=paused["id"])
        assert (answered["id"], state_of(answered)) == (paused["id"], "completed")
        expected = ["user: pay it", question, "user: hello", "user: yes"]
        assert texts(listener.conversations[1].history) == expected


async def test_a_conversation_belongs_to_its_principal() -> None:
    listener = Listener()
    async with serving({"work": ActionModule(listener)}) as peer:

        async def send(owner: str, text: str) -> Task:
            message = Message(
                message_id="m", context_id="c", role=Role.ROLE_USER, parts=[Part(text=text)]
            )
            request = SendMessageRequest(message=message)
            request.metadata["skillId"] = "work"
            with Connection() as connection:
                caller = Caller(owner, connection=connection)
                return await peer.agent.handler.send(Request(request, caller))

        for owner, text in (("ann", "a1"), ("bob", "b1"), ("ann", "a2"), ("bob", "b2")):
            assert (await send(owner, text)).context_id == "c"
        conversations = [texts(conversation.history) for conversation in listener.conversations]
        assert conversations == [[], [], ["user: a1"], ["user: b1"]]


@pytest.mark.parametrize("store_class", [InMemoryTaskStore, DictStore])
async def test_a_conversation_keeps_its_latest_messages(store_class: Any) -> None:
    listener = Listener()
    task_store = store_class(max_history=3) if store_class is InMemoryTaskStore else store_class()
    async with serving(
        {"work": ActionModule(listener)}, task_store=task_store, limits=Limits(max_history=3)
    ) as peer:
        for number in range(6):
            await say(peer, str(number), contextId="c")
    assert texts(listener.conversations[-1].history) == ["user: 2", "user: 3", "user: 4"]


async def test_a_conversation_keeps_a_hundred_messages_by_default() -> None:
    listener = Listener()
    async with serving({"work": ActionModule(listener)}) as peer:
        for number in range(102):
            await say(peer, str(number), contextId="c")
    history = texts(listener.conversations[-1].history)
    assert (len(history), history[0], history[-1]) == (100, "user: 1", "user: 100")


async def test_a_task_keeps_its_latest_messages() -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, limits=Limits(max_history=4)) as peer:
        task = await say(peer, "start")
        for number in range(5):
            task = await say(peer, f"hm {number}", None, taskId=task["id"])
        history = texts(task["history"])
        assert history[1::2] == ["user: hm 3", "user: hm 4"]
        assert len(history) == 4
        assert state_of(await say(peer, "yes", None, taskId=task["id"])) == "completed"


async def test_a_conversation_continues_after_a_restart_with_the_same_store() -> None:
    store, listener = DictStore(), Listener()
    async with serving({"work": ActionModule(listener)}, task_store=store) as peer:
        await say(peer, "one", contextId="c")
    async with serving({"work": ActionModule(listener)}, task_store=store) as peer:
        await say(peer, "two", contextId="c")
    assert texts(listener.conversations[-1].history) == ["user: one"]


class OtherExecutor:
    """An executor without our steps, whose tasks are stored before it is called."""

    def __init__(self, module: Any) -> None:
        self.registry = registry_of({"work": ActionModule(echo)})
        self.module = module

    def validate(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        return SimpleNamespace(valid=True, checks=[], errors=[])

    async def call_async(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        return await self.module(inputs, context)

    async def stream(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        yield await self.module(inputs, context)


async def test_the_history_of_any_executor_has_only_earlier_messages() -> None:
    listener = Listener()
    async with serving(OtherExecutor(listener)) as peer:
        await say(peer, "one", contextId="c")
        await say(peer, "two", contextId="c")
    histories = [texts(conversation.history) for conversation in listener.conversations]
    assert histories == [[], ["user: one"]]


async def test_a_conversation_expires() -> None:
    listener = Listener()
    async with serving({"work": ActionModule(listener)}, task_ttl=0.1) as peer:
        await say(peer, "one", contextId="c")
        await asyncio.sleep(0.15)
        await say(peer, "two", contextId="c")
    assert listener.conversations[-1].history == []


# Modules that ask for more input


class Booking(BaseModel):
    city: str
    day: str | None = None


async def book(inputs: Inputs, context: Any) -> Inputs:
    if not inputs.get("day"):
        context.services.ask(f"Which day in {inputs['city']}?", {"days": ["Monday", "Friday"]})
    return {"booked": inputs, "history": texts(context.services.history)}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_module_asks_for_input_and_continues_with_the_next_message(dialect: str) -> None:
    async with serving({"book": ActionModule(book, input_schema=Booking)}, dialect) as peer:
        task = (await peer.send("book", peer.part(data={"city": "Oslo"}))).task
        assert state_of(task) == "input-required"
        text, data = (content_of(part) for part in task["status"]["message"]["parts"])
        assert text == "Which day in Oslo?"
        pending_input = data["input"]
        assert (pending_input["skill"], pending_input["data"]) == (
            "book",
            {"days": ["Monday", "Friday"]},
        )
        assert {*pending_input} == {"id", "skill", "data", "expiresAt"}
        assert pending_input["expiresAt"].endswith("Z")
        params = peer.wire.params("book", peer.part(data={"day": "Friday"}), taskId=task["id"])
        answered = (await peer.ask("send", {"message": params["message"]})).task
        assert answered["id"] == task["id"]
        (output,) = contents(answered)
        assert output["booked"] == {"city": "Oslo", "day": "Friday"}
        assert output["history"][-2] == "agent: Which day in Oslo?"
        assert len(answered["history"]) == 3


async def test_in_0_3_more_input_reaches_the_task_by_its_context_alone() -> None:
    async with serving({"book": ActionModule(book, input_schema=Booking)}, "0.3") as peer:
        task = (await peer.send("book", peer.part(data={"city": "Oslo"}))).task
        params = peer.wire.params(
            "book", peer.part(data={"day": "Friday"}), contextId=task["contextId"]
        )
        answered = (await peer.ask("send", {"message": params["message"]})).task
        assert (answered["id"], state_of(answered)) == (task["id"], "completed")


@pytest.mark.parametrize("dialect", ["1.0", "REST"])
async def test_in_1_0_a_message_that_names_only_a_context_starts_a_new_task(dialect: str) -> None:
    listener = Listener()
    async with serving(
        {"pay": ActionModule(listener, annotations=NEEDS_APPROVAL)}, dialect
    ) as peer:
        paused = await say(peer, "pay it", "pay")
        other_task = await say(peer, "yes", "pay", contextId=paused["contextId"])
        assert other_task["id"] != paused["id"]
        assert other_task["contextId"] == paused["contextId"]
        assert state_of(await peer.get(paused["id"])) == "input-required"
        assert not listener.conversations


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_invalid_answer_is_refused_and_the_task_stays_paused(dialect: str) -> None:
    async with serving({"book": ActionModule(book, input_schema=Booking)}, dialect) as peer:
        task = (await peer.send("book", peer.part(data={"city": "Oslo"}))).task
        for wrong, code in (
            (peer.part(data={"day": 5}), -32602),
            (peer.part(data=[1]), -32602),
            (peer.part(raw="aGk="), -32005),
        ):
            params = peer.wire.params("book", wrong, taskId=task["id"])
            assert (await peer.ask("send", params)).code == code
        assert await peer.get(task["id"]) == task
        valid_answer = peer.wire.params(
            "book", peer.part(data={"day": "Monday"}), taskId=task["id"]
        )
        assert (await peer.ask("send", valid_answer)).state == "completed"


async def test_a_module_may_ask_repeatedly() -> None:
    async def count(inputs: Inputs, context: Any) -> Inputs:
        if len(inputs) < 3:
            context.services.ask(f"{len(inputs)} of 3")
        return inputs

    async with serving({"work": ActionModule(count)}) as peer:
        task = (await peer.send("work", peer.part(data={"a": 1}))).task
        ids = set()
        for key in ("b", "c"):
            assert state_of(task) == "input-required"
            ids.add(content_of(task["status"]["message"]["parts"][1])["input"]["id"])
            params = peer.wire.params("work", peer.part(data={key: 1}), taskId=task["id"])
            task = (await peer.ask("send", params)).task
        assert contents(task) == [{"a": 1, "b": 1, "c": 1}]
        assert len(ids) == 2


async def test_the_stream_after_an_answer_replaces_the_artifact() -> None:
    async def source(inputs: Inputs, context: Any) -> Any:
        yield {"day": inputs.get("day")}
        if not inputs.get("day"):
            raise InputRequiredError("Which day?")

    async with serving({"work": StreamModule(source)}) as peer:
        async with peer.stream("work", peer.part(data={"city": "Oslo"})) as stream:
            frames = await stream.rest()
        assert (frames[-1].state, frames[-1].status_text) == ("input-required", "Which day?")
        task_id = frames[0].body["id"]
        async with peer.stream("work", peer.part(data={"day": "Friday"}), taskId=task_id) as stream:
            frames = await stream.rest()
        assert [str(frame) for frame in frames] == [
            "status working",
            "artifact",
            "status completed",
        ]
        assert contents(await peer.get(task_id)) == [{"day": "Friday"}]


@pytest.mark.parametrize("data", [object(), {1, 2}, float("nan")])
async def test_a_question_with_data_that_cannot_be_sent_fails_the_task(data: Any) -> None:
    async def ask(inputs: Inputs, context: Any) -> Any:
        context.services.ask("Which?", data)

    async with serving({"work": ActionModule(ask)}) as peer:
        assert state_of(await say(peer, "hi")) == "failed"
        await wait_until(lambda: not peer.agent.engine.runs)


async def test_a_question_may_have_data_with_large_integers() -> None:
    async def ask(inputs: Inputs, context: Any) -> Any:
        context.services.ask("Which?", {"x": 2**80})

    async with serving({"work": ActionModule(ask)}) as peer:
        task = await say(peer, "hi")
        assert state_of(task) == "input-required"
        assert content_of(task["status"]["message"]["parts"][1])["input"]["data"] == {"x": 2**80}
        await wait_until(lambda: not peer.agent.engine.runs)


async def test_more_input_needs_approval_again() -> None:
    paid: list[Inputs] = []

    async def pay(inputs: Inputs, context: Any) -> Inputs:
        if "to" not in inputs:
            context.services.ask("To whom?")
        paid.append(inputs)
        return inputs

    async with serving({"work": ActionModule(pay, annotations=NEEDS_APPROVAL)}) as peer:
        task = (await peer.send("work", peer.part(data={"amount": 5}))).task
        task = await say(peer, "yes", None, taskId=task["id"])
        assert content_of(task["status"]["message"]["parts"][0]) == "To whom?"
        params = peer.wire.params("work", peer.part(data={"to": "Eve"}), taskId=task["id"])
        task = (await peer.ask("send", params)).task
        assert "Approval required" in content_of(task["status"]["message"]["parts"][0])
        assert not paid
        await say(peer, "yes", None, taskId=task["id"])
        assert paid == [{"amount": 5, "to": "Eve"}]


# Timeouts and answers of pending input


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_unanswered_question_fails_its_task(dialect: str) -> None:
    modules = {
        "work": ActionModule(echo, annotations=NEEDS_APPROVAL),
        "book": ActionModule(book, input_schema=Booking),
    }
    async with serving(modules, dialect, input_timeout=0.6) as peer:
        before = asyncio.all_tasks()
        paused = await say(peer, "pay it")
        booking = (await peer.send("book", peer.part(data={"city": "Oslo"}))).task
        async with peer.subscribe(paused["id"]) as stream:
            assert [frame.state for frame in await stream.rest()] == ["input-required", "failed"]
        for task, subject in ((paused, "Approval"), (booking, "The question")):
            expired = await peer.get(task["id"])
            while state_of(expired) == "input-required":
                await asyncio.sleep(0.02)
                expired = await peer.get(task["id"])
            text = content_of(expired["status"]["message"]["parts"][0])
            assert text == f"{subject} expired: no answer arrived in time"
            assert state_of(expired) == "failed"
        late_answer = await peer.send("work", peer.part(text="yes"), taskId=paused["id"])
        assert late_answer.code == -32004
        await wait_until(lambda: asyncio.all_tasks() == before)


async def test_an_unclear_answer_does_not_extend_the_timeout() -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules, input_timeout=1.5) as peer:
        task = await say(peer, "pay it")
        await asyncio.sleep(0.75)
        for _ in range(3):
            task = await say(peer, "hm", None, taskId=task["id"])
            assert state_of(task) == "input-required"
        await asyncio.sleep(1)  # longer than the remaining time, shorter than the timeout
        assert await peer.state(task["id"]) == "failed"


async def test_a_run_may_outlast_the_input_timeout_after_an_answer() -> None:
    async def slow(inputs: Inputs, context: Any) -> Inputs:
        await asyncio.sleep(1.2)
        return inputs

    modules = {"work": ActionModule(slow, annotations=NEEDS_APPROVAL)}
    async with serving(modules, input_timeout=1) as peer:
        task = await say(peer, "pay it")
        assert state_of(await say(peer, "yes", None, taskId=task["id"])) == "completed"


async def test_a_task_of_an_earlier_process_expires_when_it_is_answered_too_late() -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    store = DictStore()
    async with serving(modules, task_store=store, input_timeout=0.1) as peer:
        task = await say(peer, "pay it")
    await asyncio.sleep(0.15)
    async with serving(modules, task_store=store) as peer:
        assert await peer.state(task["id"]) == "input-required"
        expired = await say(peer, "yes", None, taskId=task["id"])
        assert state_of(expired) == "failed"
        assert "expired" in content_of(expired["status"]["message"]["parts"][0])


async def test_an_answer_to_an_earlier_question_is_ignored() -> None:
    payments: list[Inputs] = []

    async def pay(inputs: Inputs, context: Any) -> Inputs:
        payments.append(inputs)
        return {}

    async def pay_twice(inputs: Inputs, context: Any) -> Inputs:
        for amount in (1, 1000):
            await context.executor.call_async("pay", {"amount": amount}, context)
        return {}

    modules = {
        "outer": ActionModule(pay_twice),
        "pay": ActionModule(pay, annotations=NEEDS_APPROVAL),
    }
    async with serving(modules) as peer:
        task = (await peer.send("outer")).task
        first = content_of(task["status"]["message"]["parts"][1])["approval"]["id"]

        async def answer(approval_id: str) -> Json:
            data = peer.part(data={"approved": True, "approvalId": approval_id, "comment": "fine"})
            params = peer.wire.params("outer", data, taskId=task["id"])
            return (await peer.ask("send", params)).task

        second = await answer(first)
        approval = content_of(second["status"]["message"]["parts"][1])["approval"]
        assert approval["arguments"] == {"amount": 1000}
        assert state_of(await answer(first)) == "input-required"
        assert {"amount": 1000} not in payments
        assert state_of(await answer(approval["id"])) == "completed"


async def test_an_approval_request_shows_arguments_in_readable_form() -> None:
    modules = {"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}
    async with serving(modules) as peer:
        arguments = {
            "file_name": "a\x1b[31m\nb",
            "force": True,
            "owner": None,
            "tags": ["x", 1],
            "long": "y" * 300,
            **{f"k{n}": n for n in range(30)},
        }
        task = (await peer.send("work", peer.part(data=arguments))).task
        text, data = (content_of(part) for part in task["status"]["message"]["parts"])
        lines = text.splitlines()
        assert lines[:5] == [
            "Approval required for module work",
            "file name: a[31m\\nb",
            "force: yes",
            "owner: none",
            'tags: ["x", 1]',
        ]
        assert lines[5] == f"long: {'y' * 200}…"
        assert lines[-1] == "… and 15 more"
        assert data["approval"]["arguments"] == arguments
