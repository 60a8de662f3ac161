"""The services of modules: `context.services`, and `on_abandoned`."""

import asyncio
from collections.abc import AsyncIterator
from threading import Lock
from typing import Any

import pytest
from apcore import Identity, ModuleAnnotations, ModuleError
from apcore_a2a_core import (
    ApprovalRequired,
    InputRequiredError,
    Progress,
    Prompt,
    Reply,
    Services,
    Usage,
)
from apcore_a2a_core.data import Message, Task, TaskStatus
from apcore_a2a_core.records import TaskRecord
from apcore_a2a_core.states import WORKING
from apcore_a2a_server.engine.call import Call, Resumption, pack, unpack
from apcore_a2a_server.engine.clients import Caller
from apcore_a2a_server.modules import Conversation
from apcore_a2a_server.trace_context import Trace
from msgspec.structs import replace

from .checking_client import Json, state_of
from .inloop import (
    DIALECTS,
    NEEDS_APPROVAL,
    ActionModule,
    Gate,
    Peer,
    StreamModule,
    SyncActionModule,
    content_of,
    contents,
    echo,
    metadata_of,
    registry_of,
    serving,
    wait_until,
)
from .inloop import anyio_backend as anyio_backend
from .modules import Inputs
from .principals import ADA, HeaderAuth

pytestmark = pytest.mark.anyio

REPEATABLE = ModuleAnnotations(idempotent=True)


async def answer(peer: Peer, task: Json, *parts: Json, **members: Any) -> Json:
    """Answer the question of a task; return the task."""
    params = peer.wire.params("work", *parts, taskId=task["id"])
    del params["metadata"]
    return (await peer.ask("send", {**params, **members})).task


def question_of(task: Json) -> Json:
    """Return the data part of a paused task's question."""
    question: Json = content_of(task["status"]["message"]["parts"][1])
    return question


class AskingModule:
    """A module that asks for a name, keeps a state, and records its runs and abandoned tasks."""

    description = "Asks for a name."
    input_schema = output_schema = None

    def __init__(self) -> None:
        self.runs: list[tuple[Any, Any, str]] = []
        self.principal = ""
        self.abandoned: list[tuple[Inputs, Any, str, str]] = []

    async def execute(self, inputs: Inputs, context: Any) -> Inputs:
        services: Services = context.services
        self.principal = services.principal
        self.runs.append((services.state, services.answer, services.message_id))
        if services.answer is None:
            services.ask("Your name?", state={"session": 7})
        return {"hello": inputs["name"]}

    async def on_abandoned(self, inputs: Inputs, context: Any) -> None:
        services: Services = context.services
        self.abandoned.append((inputs, services.state, services.task_id, services.principal))


def test_questions_and_requests_for_approval_are_raised_as_errors() -> None:
    services: Services = Conversation("t1", "c1")
    with pytest.raises(InputRequiredError) as asked:
        services.ask("Which?", ["a", "b"], state=5)
    assert (asked.value.code, asked.value.message) == ("INPUT_REQUIRED", "Which?")
    assert asked.value.details == {"data": ["a", "b"], "state": 5}
    with pytest.raises(ApprovalRequired, match=r"Sure\?"):
        services.approve("Sure?")


async def test_progress_reported_outside_of_a_task_is_ignored() -> None:
    await Conversation("t1", "c1").progress("Reading")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_module_sees_the_metadata_of_the_request_and_of_its_message(dialect: str) -> None:
    calls: list[Any] = []

    async def record_metadata(inputs: Inputs, context: Any) -> Inputs:
        calls.append((context.services.request_metadata, context.services.message_id))
        with pytest.raises(TypeError):
            context.services.request_metadata["a"] = 2
        assert context.data["ext.a2a.request_metadata"] == context.services.request_metadata
        return {}

    async with serving({"work": ActionModule(record_metadata)}, dialect) as peer:
        params = peer.wire.params("work", peer.part(data={}), metadata={"b": "message"})
        params["metadata"] |= {"a": 1, "b": "request"}
        params["message"]["messageId"] = "m-17"
        headers = {"Authorization": "Bearer hidden"}
        task = (await peer.ask("send", params, headers)).task
        assert state_of(task) == "completed"
    assert calls == [({"skillId": "work", "a": 1, "b": "message"}, "m-17")]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_run_has_the_answer_and_the_state_of_its_question(dialect: str) -> None:
    module = AskingModule()
    async with serving({"work": module}, dialect) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        assert "session" not in str(task)
        assert "session" not in str(await peer.get(task["id"]))
        task = await answer(peer, task, peer.part(data={"name": "Ann"}))
        assert contents(task) == [{"hello": "Ann"}]
        assert "session" not in str(task)
    (first_state, first_answer, _), (state, parts, _) = module.runs
    assert (first_state, first_answer) == (None, None)
    assert (state, [content_of(part) for part in parts]) == ({"session": 7}, [{"name": "Ann"}])


@pytest.mark.parametrize(
    "error",
    [
        InputRequiredError("Which?", [1], state=2),
        ModuleError("INPUT_REQUIRED", "Which?", {"data": [1], "state": 2}),
    ],
)
@pytest.mark.parametrize("kind", [ActionModule, SyncActionModule, StreamModule])
async def test_a_module_may_raise_its_question(error: Exception, kind: Any) -> None:
    states: list[Any] = []

    def run(inputs: Inputs, context: Any) -> Inputs:
        states.append(context.services.state)
        if "a" not in inputs:
            raise error
        return {"a": inputs["a"]}

    async def run_later(inputs: Inputs, context: Any) -> Inputs:
        return run(inputs, context)

    async def stream(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        yield run(inputs, context)

    actions: dict[Any, Any] = {ActionModule: run_later, SyncActionModule: run, StreamModule: stream}
    async with serving({"work": kind(actions[kind])}) as peer:
        params = peer.wire.params("work", peer.part(data={}))
        async with peer.streaming("stream", params) as events:
            frames = await events.rest()
        assert (frames[-1].state, frames[-1].status_text) == ("input-required", "Which?")
        task = await peer.get(frames[0].body["id"])
        assert question_of(task)["input"]["data"] == [1]
        part = peer.part(data={"a": 1})
        async with peer.stream("work", part, taskId=task["id"]) as events:
            assert (await events.rest())[-1].state == "completed"
    assert states == [None, 2]


async def test_an_outer_module_can_catch_the_question_of_an_inner_one() -> None:
    async def inner(inputs: Inputs, context: Any) -> Inputs:
        raise InputRequiredError("Which?")

    async def outer(inputs: Inputs, context: Any) -> Inputs:
        try:
            return dict(await context.executor.call_async("inner", {}, context))
        except InputRequiredError as question:
            return {"caught": question.message, "module_error": isinstance(question, ModuleError)}

    async with serving({"work": ActionModule(outer), "inner": ActionModule(inner)}) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
    assert contents(task) == [{"caught": "Which?", "module_error": True}]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("text", "verdict"), [("yes", True), ("No.", False)])
async def test_a_module_sees_whether_its_call_was_approved(
    dialect: str, text: str, verdict: bool
) -> None:
    async def act(inputs: Inputs, context: Any) -> Inputs:
        services: Services = context.services
        if services.approved is None:
            services.approve("Delete it?", {"path": "x"}, state="tool 5")
        return {"approved": services.approved, "state": services.state, "inputs": inputs}

    async with serving({"work": ActionModule(act)}, dialect) as peer:
        task = (await peer.send("work", peer.part(data={"n": 1}))).task
        approval = question_of(task)["approval"]
        assert (approval["arguments"], approval["decidedBy"]) == ({"path": "x"}, "client")
        unclear = await answer(peer, task, peer.part(text="perhaps"))
        assert state_of(unclear) == "input-required"
        assert question_of(unclear)["approval"]["id"] == approval["id"]
        task = await answer(peer, task, peer.part(text=text))
        assert contents(task) == [{"approved": verdict, "state": "tool 5", "inputs": {"n": 1}}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_metadata_set_by_a_module_is_in_its_task_and_its_last_status(
    dialect: str,
) -> None:
    async def count(inputs: Inputs, context: Any) -> AsyncIterator[Inputs]:
        yield {"n": 1}
        context.services.metadata["usage"] = {"tokens": 2**60}

    async with serving({"work": StreamModule(count)}, dialect) as peer:
        async with peer.stream("work", peer.part(data={})) as stream:
            frames = await stream.rest()
        assert frames[-1].body["metadata"] == {"usage": {"tokens": 2**60}}
        assert not any("usage" in str(frame.body) for frame in frames[:-1])
        task = await peer.get(frames[-1].body["taskId"])
        assert metadata_of(task) == {"skillId": "work", "usage": {"tokens": 2**60}}


async def report_usage(inputs: Inputs, context: Any) -> Inputs:
    context.services.metadata["usage"] = Usage(900, 40) + Usage(100, 10)
    return {"text": "Done"}


async def report_usage_in_stream(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
    yield Usage(input_tokens=900)
    yield {"text": "Do"}
    yield Usage(100, output_tokens=50)
    yield {"text": "ne"}


async def report_usage_in_metadata_and_stream(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
    context.services.metadata["usage"] = {"inputTokens": 1000, "outputTokens": 20}
    yield {"text": "Done"}
    yield Usage(output_tokens=30)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "module",
    [
        ActionModule(report_usage),
        StreamModule(report_usage_in_stream),
        StreamModule(report_usage_in_metadata_and_stream),
    ],
)
async def test_the_usage_of_a_module_is_summed_in_the_metadata(dialect: str, module: Any) -> None:
    async with serving({"work": module}, dialect) as peer:
        async with peer.stream("work", peer.part(data={})) as stream:
            frames = await stream.rest()
        usage = {"inputTokens": 1000, "outputTokens": 50}
        assert frames[-1].body["metadata"] == {"usage": usage}
        assert "Tokens" not in str([frame.body for frame in frames[:-1]])
        task = await peer.get(frames[-1].body["taskId"])
        assert metadata_of(task) == {"skillId": "work", "usage": usage}
        assert "Tokens" not in str(task["artifacts"])


class OtherExecutor:
    """An executor of another project, which passes on what a module yields."""

    def __init__(self, module: Any) -> None:
        self.registry = registry_of({"work": module})

    async def call_async(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        return await self.registry.get(module_id).execute(inputs, context)

    def stream(self, module_id: str, inputs: Any = None, context: Any = None) -> Any:
        return self.registry.get(module_id).stream(inputs, context)

    def validate(self, module_id: str, inputs: Any = None, context: Any = None) -> None:
        return None


async def test_progress_and_usage_of_other_executors_are_accepted() -> None:
    async def work(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        yield Progress("Reading")
        yield {"text": "Done"}
        yield Usage(3, 4)

    async with serving(OtherExecutor(StreamModule(work))) as peer:
        async with peer.stream("work", peer.part(data={})) as stream:
            frames = await stream.rest()
        progress = [frame for frame in frames if "progress" in str(frame.body.get("metadata"))]
        assert [frame.status_text for frame in progress] == ["Reading"]
        task = await peer.get(frames[-1].body["taskId"])
        assert contents(task) == [{"text": "Done"}]
        assert task["metadata"]["usage"] == {"inputTokens": 3, "outputTokens": 4}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("first", "second", "total"),
    [
        (Usage(5, 2), Usage(7), {"inputTokens": 12, "outputTokens": 2}),
        (
            Usage(5, 2),
            {"inputTokens": 7, "cost": 0.1},
            {"inputTokens": 12, "outputTokens": 2, "cost": 0.1},
        ),
        ({"inputTokens": "many"}, Usage(7, 1), {"inputTokens": 7, "outputTokens": 1}),
        (Usage(5, 2), "free", "free"),
    ],
    ids=["usage", "more members", "no number", "text"],
)
async def test_the_usage_of_all_runs_of_a_task_is_summed(
    dialect: str, first: Any, second: Any, total: Any
) -> None:
    async def act(inputs: Inputs, context: Any) -> Inputs:
        services: Services = context.services
        services.metadata["usage"] = first if services.answer is None else second
        if services.answer is None:
            services.ask("Which?")
        return {}

    async with serving({"work": ActionModule(act)}, dialect) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        task = await answer(peer, task, peer.part(text="That"))
        assert task["metadata"]["usage"] == total


async def test_usage_before_and_after_an_approval_is_summed() -> None:
    async def act(inputs: Inputs, context: Any) -> Inputs:
        services: Services = context.services
        services.metadata["usage"] = Usage(5, 2)
        if services.approved is None:
            services.approve("Sure?")
        return {}

    async with serving({"work": ActionModule(act)}) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        task = await answer(peer, task, peer.part(text="yes"))
        assert task["metadata"]["usage"] == {"inputTokens": 10, "outputTokens": 4}


@pytest.mark.parametrize("ends", ["asks", "fails"])
async def test_metadata_is_kept_when_a_module_pauses_or_fails(ends: str) -> None:
    async def set_cost(inputs: Inputs, context: Any) -> Inputs:
        context.services.metadata["cost"] = 3
        if ends == "asks":
            context.services.ask("Which?")
        raise ValueError

    async with serving({"work": ActionModule(set_cost)}) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        assert state_of(task) == {"asks": "input-required", "fails": "failed"}[ends]
        assert task["metadata"]["cost"] == 3


@pytest.mark.parametrize(
    "metadata",
    [{"skillId": "other"}, {"apcore": {}}, {"text": "x" * 70_000}, {"object": object()}],
    ids=["skillId", "apcore", "large", "object"],
)
async def test_metadata_that_cannot_be_set_fails_the_task(metadata: Any) -> None:
    async def act(inputs: Inputs, context: Any) -> Inputs:
        context.services.metadata.update(metadata)
        return {}

    async with serving({"work": ActionModule(act)}) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        assert state_of(task) == "failed"
        assert "can't be sent" in content_of(task["status"]["message"]["parts"][0])
        assert metadata_of(task) == {"skillId": "work"}


async def report(inputs: Inputs, context: Any) -> Inputs:
    await context.services.progress("Reading", {"page": 1})
    await context.services.progress("Writing")
    return {"done": True}


def report_in_thread(inputs: Inputs, context: Any) -> Inputs:
    context.services.progress("Reading", {"page": 1})
    asyncio.run(report_writing(context))
    return {"done": True}


async def report_writing(context: Any) -> None:
    await context.services.progress("Writing")


async def report_in_stream(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
    yield Progress("Reading", {"page": 1})
    yield Progress("Writing")
    yield {"done": True}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "module",
    [ActionModule(report), SyncActionModule(report_in_thread), StreamModule(report_in_stream)],
)
async def test_progress_is_an_event_that_is_not_in_the_history(dialect: str, module: Any) -> None:
    async with serving({"work": module}, dialect) as peer:
        async with peer.stream("work", peer.part(data={})) as stream:
            frames = await stream.rest()
        progress = [frame for frame in frames if "progress" in str(frame.body.get("metadata"))]
        assert [frame.status_text for frame in progress] == ["Reading", "Writing"]
        assert content_of(progress[0].body["status"]["message"]["parts"][1]) == {"page": 1}
        assert {frame.state for frame in progress} == {"working"}
        assert [frame.id for frame in frames] == [*range(1, 1 + len(frames))]
        task = await peer.get(frames[-1].body["taskId"])
        assert contents(task) == [{"done": True}]
        assert len(task["history"]) == 1
        # later readers get the same events again
        async with peer.subscribe(task["id"], last=2) as stream:
            assert [frame.id for frame in await stream.rest()] == [*range(3, 1 + len(frames))]


async def test_progress_reported_after_the_end_of_the_task_is_ignored() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}) as peer:
        task_id = await peer.start()
        await gate.reached.wait()
        await peer.ask("cancel", {"id": task_id})
        (context,) = gate.contexts
        await context.services.progress("Too late")
        assert await peer.state(task_id) == "canceled"


@pytest.mark.parametrize("data", [object(), "x" * 70_000])
async def test_progress_with_data_that_cannot_be_sent_fails_the_task(data: Any) -> None:
    async def act(inputs: Inputs, context: Any) -> Inputs:
        await context.services.progress("Reading", data)
        return {}

    async with serving({"work": ActionModule(act)}) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
        assert state_of(task) == "failed"


async def test_progress_events_count_as_memory_of_the_task() -> None:
    gate = Gate()

    async def report_at_length(inputs: Inputs, context: Any) -> Inputs:
        for _ in range(10):
            await context.services.progress("x" * 5000)
        return await gate(inputs, context)

    async with serving({"work": ActionModule(report_at_length)}) as peer:
        await peer.start()
        await gate.reached.wait()
        assert peer.agent.engine._setup.tasks.kept_bytes > 50_000
        gate.opened.set()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_module_learns_that_its_paused_task_was_canceled(dialect: str) -> None:
    module = AskingModule()
    async with serving({"work": module}, dialect, auth=HeaderAuth()) as peer:
        peer.client.headers.update(ADA)
        task = (await peer.send("work", peer.part(data={"n": 1}))).task
        await peer.ask("cancel", {"id": task["id"]})
        await wait_until(lambda: module.abandoned)
        (call,) = module.abandoned
        assert call == ({"n": 1}, {"session": 7}, task["id"], module.principal)
        assert "ada" in module.principal


async def test_a_module_learns_of_a_cancellation_that_took_the_task_for_working() -> None:
    module = AskingModule()
    async with serving({"work": module}) as peer:
        task = (await peer.send("work", peer.part(data={"n": 1}))).task
        paused_record = await peer.agent.setup.tasks.get(task["id"])
        assert paused_record is not None
        earlier_task = replace(paused_record.task, status=TaskStatus(state=WORKING))
        await peer.agent.engine.cancel(TaskRecord(earlier_task))
        assert state_of((await peer.ask("get", {"id": task["id"]})).task) == "canceled"
        await wait_until(lambda: module.abandoned)


async def test_a_module_learns_that_no_answer_came_in_time() -> None:
    module = AskingModule()
    async with serving({"work": module}, input_timeout=0.1, auth=HeaderAuth()) as peer:
        peer.client.headers.update(ADA)
        task = (await peer.send("work", peer.part(data={"n": 1}))).task
        await peer.until(task["id"], "failed")
        await wait_until(lambda: module.abandoned)
        (call,) = module.abandoned
        assert call == ({"n": 1}, {"session": 7}, task["id"], module.principal)
        assert "ada" in module.principal


async def test_a_synchronous_on_abandoned_is_called_after_a_refused_approval() -> None:
    abandoned: list[Any] = []

    def on_abandoned(inputs: Inputs, context: Any) -> None:
        abandoned.append(inputs)
        raise SystemExit(1)  # it must not end the server

    async def act(inputs: Inputs, context: Any) -> Inputs:
        return dict(await context.executor.call_async("inner", {}, context))

    modules = {
        "work": ActionModule(act, on_abandoned=on_abandoned),
        "inner": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    async with serving(modules) as peer:
        task = (await peer.send("work", peer.part(data={"n": 1}))).task
        assert state_of(await answer(peer, task, peer.part(text="no"))) == "rejected"
        await wait_until(lambda: abandoned)
        assert abandoned == [{"n": 1}]
        assert state_of((await peer.send("work", peer.part(data={}))).task) == "input-required"


async def test_an_answered_task_is_not_abandoned() -> None:
    module = AskingModule()
    async with serving({"work": module}) as peer:
        task = (await peer.send("work", peer.part(data={"n": 1}))).task
        await answer(peer, task, peer.part(data={"name": "Ann"}))
        await wait_until(lambda: not peer.agent.engine.runs)
        assert not module.abandoned


async def test_a_module_with_the_schemas_prompt_and_reply_takes_and_returns_text() -> None:
    class Echo:
        description = "Says it again."
        input_schema, output_schema = Prompt, Reply

        def execute(self, inputs: Inputs, context: Any) -> Inputs:
            return {"text": inputs["text"] * 2}

    async with serving({"work": Echo()}) as peer:
        card = (await peer.client.get("/.well-known/agent-card.json")).json()
        (skill,) = card["skills"]
        assert "text/plain" in skill["inputModes"]
        assert "text/plain" in skill["outputModes"]
        (extension,) = card["capabilities"]["extensions"]
        assert extension["params"]["skills"]["work"]["textField"] == "text"
        task = (await peer.send("work", peer.part(text="ho"))).task
        assert task["artifacts"][0]["parts"] == [{"text": "hoho", "mediaType": "text/plain"}]


async def test_the_state_of_a_question_survives_a_restart(tmp_path: Any) -> None:
    store, module = f"sqlite:///{tmp_path / 'tasks.db'}", AskingModule()
    async with serving({"work": module}, task_store=store) as peer:
        task = (await peer.send("work", peer.part(data={}))).task
    async with serving({"work": module}, task_store=store) as peer:
        task = await answer(peer, task, peer.part(data={"name": "Ann"}))
        assert contents(task) == [{"hello": "Ann"}]
    assert [state for state, *_ in module.runs] == [None, {"session": 7}]


@pytest.mark.parametrize("attribute", [{1, 2}, Lock()], ids=["set", "lock"])
async def test_a_call_whose_identity_is_not_json_is_not_packed(attribute: Any) -> None:
    async with serving({"work": ActionModule(echo, annotations=REPEATABLE)}) as peer:
        setup = peer.agent.setup
        caller = Caller("ada", Identity("ada", attrs={"own": attribute}))
        call = Call(setup.skills.get("work"), {}, Message(message_id="m-1"), caller)
        assert pack(call, setup.converter) is None


async def test_a_packed_call_keeps_its_message_metadata_answer_and_trace() -> None:
    async with serving({"work": ActionModule(echo, annotations=REPEATABLE)}) as peer:
        setup = peer.agent.setup
        skill, message = setup.skills.get("work"), Message(message_id="m-1", task_id="t")
        resumption = Resumption([{"text": "Ann"}], True, {"session": 7})
        call = Call(
            skill,
            {"a": 1},
            message,
            Caller(""),
            metadata={"b": 2},
            resumption=resumption,
            wants_text=True,
            trace=Trace("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00", "a=1,b=2"),
        )
        packed = pack(call, setup.converter)
        assert packed is not None
        repeated = unpack(packed, skill, TaskRecord(Task(id="t")), setup.converter)
    assert repeated.message.message_id == "m-1"
    assert (repeated.metadata, repeated.resumption) == ({"b": 2}, resumption)
    assert repeated.wants_text
    assert repeated.trace == call.trace
