"""Questions and approvals of remote skills, through one and two agents."""

from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

import pytest
from apcore import Executor, Registry
from apcore_a2a_client import InputRequired, Message, Part, Task
from apcore_a2a_core import EXTENSION_URI
from apcore_a2a_remote import RemoteAgent, RemoteQuestion

from tests.client.raw import CUT, Request, Script, Step, raw, rpc, task
from tests.client.raw import agent as scripted
from tests.server.inloop import NEEDS_APPROVAL, ActionModule, echo
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs

from .agents import CHAINS, Agent, Asker, chain, serving

pytestmark = pytest.mark.anyio

WAITS = ["stream", "poll"]


def skill_of(names: str) -> str:
    return f"remote.{'.'.join(names)}.work"


async def ask(agent: Agent, names: str, inputs: Inputs) -> Task:
    """Call the skill; return the task that waits for an answer."""
    with pytest.raises(InputRequired) as asked:
        await agent.client.call(skill_of(names), inputs)
    task: Task = asked.value.task
    return task


def question_of(task: Task) -> tuple[str, Any]:
    """Return the text of a question, and its data."""
    assert task.status.message
    text, data = task.status.message.parts
    return text.text or "", data.data


async def states(agents: list[Agent]) -> list[list[str]]:
    return [
        [str(task.status.state) async for task in agent.client.iter_tasks()] for agent in agents
    ]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("names", CHAINS)
async def test_a_remote_question_pauses_the_local_task_with_its_text_and_data(
    names: str, wait: Any
) -> None:
    asker = Asker(
        data={"calendar": "work"},
        field="day",
        choices=["Friday", "Sunday"],
        schema={"type": "string"},
    )
    async with chain({"work": asker}, names, wait=wait) as agents:
        task = await ask(agents[0], names, {"a": 1})
        text, data = question_of(task)
        assert text == "Which day?\n1. Friday\n2. Sunday"
        question = data["input"]
        assert (question["field"], question["choices"]) == ("day", ["Friday", "Sunday"])
        assert (question["data"], question["schema"]) == ({"calendar": "work"}, {"type": "string"})
        task = await agents[0].client.reply(task, "2")
        assert task.status.state == "completed"
        assert task.value == {"inputs": {"a": 1, "day": "Sunday"}, "answer": [{"text": "2"}]}
        assert await states(agents) == [["completed"]] * len(agents)


@pytest.mark.parametrize("names", CHAINS)
async def test_an_answer_is_passed_on_unchanged(names: str) -> None:
    asker = Asker()
    parts = [Part(data={"day": "Friday"}), Part(raw=b"%PDF-1.4", filename="a.pdf"), Part(text="ok")]
    async with chain({"work": asker}, names) as agents:
        task = await ask(agents[0], names, {})
        task = await agents[0].client.reply(task, Message(tuple(parts)))
        assert task.status.state == "completed"
    assert [Part.from_dict(part) for part in asker.answers[0]] == parts


@pytest.mark.parametrize("names", CHAINS)
async def test_the_question_is_asked_again_after_an_answer_that_does_not_fit(names: str) -> None:
    asker = Asker(field="day", schema={"type": "integer"})
    async with chain({"work": asker}, names) as agents:
        task = await ask(agents[0], names, {})
        task = await agents[0].client.reply(task, "soon")
        assert task.status.state == "input-required"
        assert question_of(task)[1]["input"]["problem"]
        task = await agents[0].client.reply(task, "5")
        assert (task.status.state, task.value["inputs"]) == ("completed", {"day": 5})


@pytest.mark.parametrize("answer", ["yes", "no"])
@pytest.mark.parametrize("names", CHAINS)
async def test_a_remote_approval_pauses_the_local_task_until_the_caller_answers(
    names: str, answer: str
) -> None:
    calls: list[Inputs] = []

    async def work(inputs: Inputs, context: Any) -> Any:
        calls.append(inputs)
        return inputs

    async with chain({"work": ActionModule(work, annotations=NEEDS_APPROVAL)}, names) as agents:
        task = await ask(agents[0], names, {"path": "a.txt"})
        text, data = question_of(task)
        assert text.splitlines()[0] == "Approval required for module work"
        assert data["approval"]["arguments"] == {"path": "a.txt"}
        task = await agents[0].client.reply(task, answer)
        expected = "completed" if answer == "yes" else "rejected"
        assert task.status.state == expected
        assert await states(agents) == [[expected]] * len(agents)
        assert calls == ([{"path": "a.txt"}] if answer == "yes" else [])


@pytest.mark.parametrize("names", CHAINS)
async def test_canceling_a_paused_task_ends_the_remote_task(names: str) -> None:
    asker = Asker()
    async with chain({"work": asker}, names) as agents:
        task = await ask(agents[0], names, {})
        assert await states(agents) == [["input-required"]] * len(agents)
        await agents[0].client.cancel_task(task.id)
        await asker.abandoned.wait()
        assert await states(agents) == [["canceled"]] * len(agents)


async def test_an_expired_question_ends_the_remote_task() -> None:
    asker = Asker()
    async with serving({"work": asker}) as remote:
        agent = RemoteAgent(remote.url, name="c", expose=True)
        async with serving({}, agent, input_timeout=0.2) as gateway:
            await ask(gateway, "c", {})
            await asker.abandoned.wait()
            assert await states([gateway, remote]) == [["failed"], ["canceled"]]


async def test_with_local_approval_the_task_pauses_before_the_agent_is_called() -> None:
    async with serving({"work": ActionModule(echo, annotations=NEEDS_APPROVAL)}) as remote:
        agent = RemoteAgent(remote.url, name="c", expose=True, approve="local")
        async with serving({}, agent) as gateway:
            task = await ask(gateway, "c", {"a": 1})
            assert question_of(task)[1]["approval"]["skill"] == "remote.c.work"
            assert await states([remote]) == [[]]
            task = await gateway.client.reply(task, "yes")
            assert (task.status.state, task.value) == ("completed", {"a": 1})


async def test_a_module_that_calls_two_remote_skills_gets_the_answer_to_the_second() -> None:
    asker = Asker()

    async def outer(inputs: Inputs, context: Any) -> Any:
        first = await context.executor.call_async("remote.c.echo", {"n": 1}, context)
        second = await context.executor.call_async("remote.c.work", {"n": 2}, context)
        return {"first": first, "second": second}

    async with serving({"work": asker, "echo": ActionModule(echo)}) as remote:
        agent = RemoteAgent(remote.url, name="c")
        async with serving({"outer": ActionModule(outer)}, agent) as gateway:
            with pytest.raises(InputRequired) as asked:
                await gateway.client.call("outer", {})
            task = await gateway.client.reply(asked.value.task, "Friday")
            assert task.status.state == "completed"
            assert task.value["first"] == {"n": 1}
            assert task.value["second"]["answer"] == [{"text": "Friday"}]


async def test_a_program_without_a_server_gets_the_question_and_answers_it() -> None:
    async with serving({"work": Asker(field="day")}) as remote:
        registry = Registry()
        async with RemoteAgent(remote.url, name="c") as agent:
            await agent.register(registry)
            with pytest.raises(RemoteQuestion, match="Which day") as asked:
                await Executor(registry).call_async("remote.c.work", {"a": 1})
            task = await agent.reply(asked.value, "Friday")
            assert task.value["inputs"] == {"a": 1, "day": "Friday"}


async def test_the_stream_of_an_answer_has_the_output() -> None:
    async with chain({"work": Asker()}, "bc") as agents:
        client = agents[0].client
        async with aclosing(client.stream_message({}, skill=skill_of("bc"))) as events:
            task, *_ = [event async for event in events]
        assert isinstance(task, Task)
        answer = client.stream_message("Friday", task_id=task.id, context_id=task.context_id)
        async with aclosing(answer) as events:
            kinds = [type(event).__name__ async for event in events]
        assert "TaskArtifactUpdateEvent" in kinds


async def test_a_remote_task_that_requires_sign_in_pauses_the_local_task_with_its_message() -> None:
    answers: list[Any] = []

    def script(request: Request) -> Iterable[Step]:
        message = request.json["params"]["message"]
        if "taskId" in message:
            answers.append(message["parts"])
            return rpc(request, result={"task": task()})
        prompt = {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": "Sign in first"}]}
        status = {"state": "TASK_STATE_AUTH_REQUIRED", "message": prompt}
        return rpc(request, result={"task": task(status=status)})

    with raw(scripted(script, skills=[{"id": "work", "name": "Work"}])) as server:
        remote = RemoteAgent(server.url, name="c", expose=True)
        async with serving({}, remote) as gateway:
            paused = await gateway.client.send_message("hello", skill=skill_of("c"))
            assert paused.status.state == "input-required"
            assert paused.status.message
            assert paused.status.message.parts[0].text == "Sign in first"
            ended = await gateway.client.reply(paused, "done")
            assert ended.status.state == "completed"
    assert answers == [[{"text": "done"}]]


async def test_a_remote_question_with_an_empty_list_of_choices_keeps_its_text() -> None:
    def script(request: Request) -> Iterable[Step]:
        if "taskId" in request.json["params"]["message"]:
            return rpc(request, result={"task": task()})
        parts = [{"text": "Which day?"}, {"data": {"input": {"field": "day", "choices": []}}}]
        question = {"messageId": "m-1", "role": "ROLE_AGENT", "parts": parts}
        status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": question}
        return rpc(request, result={"task": task(status=status)})

    with raw(scripted(script, skills=[{"id": "work", "name": "Work"}])) as server:
        remote = RemoteAgent(server.url, name="c", expose=True)
        async with serving({}, remote) as gateway:
            paused = await gateway.client.send_message("hello", skill=skill_of("c"))
            assert paused.status.state == "input-required"
            text, data = question_of(paused)
            assert text == "Which day?"
            assert data["input"]["field"] == "day"
            assert "choices" not in data["input"]
            ended = await gateway.client.reply(paused, "Friday")
            assert ended.status.state == "completed"


async def test_a_message_instead_of_a_task_is_the_result() -> None:
    def script(request: Request) -> Iterable[Step]:
        message = {"messageId": "m-1", "role": "ROLE_AGENT", "parts": [{"text": "Hello"}]}
        return rpc(request, result={"message": message})

    with raw(scripted(script, skills=[{"id": "work", "name": "Work"}])) as server:
        for wait in WAITS:
            options: dict[str, Any] = {"wait": wait}
            async with RemoteAgent(server.url, name="c", **options) as remote:
                registry = Registry()
                await remote.register(registry)
                executor = Executor(registry)
                output = await executor.call_async(skill_of("c"), {"text": "hi"})
                assert output == {"text": "Hello"}


async def test_a_remote_task_whose_answer_is_lost_is_canceled() -> None:
    methods: list[str] = []

    def script(request: Request) -> Iterable[Step]:
        methods.append(request.json["method"])
        if methods[-1] == "CancelTask":
            return rpc(request, result=task(state="TASK_STATE_CANCELED"))
        if "taskId" in request.json["params"]["message"]:
            return [CUT]
        return rpc(request, result={"task": task(state="TASK_STATE_INPUT_REQUIRED")})

    with raw(scripted(script, skills=[{"id": "work", "name": "Work"}])) as server:
        remote = RemoteAgent(server.url, name="c", expose=True)
        async with serving({}, remote) as gateway:
            paused = await gateway.client.send_message("hello", skill=skill_of("c"))
            ended = await gateway.client.reply(paused, "done")
            assert ended.status.state == "failed"
    assert methods == ["SendStreamingMessage", "SendStreamingMessage", "CancelTask"]


GATED = {"inputSchema": {"type": "object"}, "annotations": {"requires_approval": True}}
"""Details of a skill that needs approval."""


def approval_request(number: int) -> dict[str, Any]:
    """Return a task that waits for the approval of a call of `work` without inputs."""
    data = {"approval": {"id": f"a-{number}", "skill": "work", "arguments": {}}}
    message = {"messageId": f"m-{number}", "role": "ROLE_AGENT", "parts": [{"data": data}]}
    return task(status={"state": "TASK_STATE_INPUT_REQUIRED", "message": message})


async def call_approved_here(script: Script, wait: Any) -> Any:
    """Call a skill of a scripted agent that asks for the approval that was given here."""
    extensions = [{"uri": EXTENSION_URI, "params": {"skills": {"work": GATED}}}]
    members = {
        "skills": [{"id": "work", "name": "Work"}],
        "capabilities": {"streaming": True, "extensions": extensions},
    }
    with raw(scripted(script, **members)) as server:
        async with RemoteAgent(server.url, name="c", approve="local", wait=wait) as remote:
            registry = Registry()
            await remote.register(registry)
            return await Executor(registry).call_async(skill_of("c"), {})


async def test_an_approval_is_confirmed_once_to_an_agent_that_is_polled() -> None:
    """The task shows its request for a while after the approval has arrived."""
    methods: list[str] = []

    def script(request: Request) -> Iterable[Step]:
        methods.append(request.json["method"])
        if methods[-1] == "SendMessage":
            return rpc(request, result={"task": approval_request(1)})
        return rpc(request, result=task() if methods.count("GetTask") > 1 else approval_request(1))

    assert await call_approved_here(script, "poll") == {}
    assert methods == ["SendMessage", "SendMessage", "GetTask", "GetTask"]


@pytest.mark.parametrize("wait", WAITS)
async def test_an_agent_that_asks_for_approval_again_is_not_answered_again(wait: Any) -> None:
    sent: list[Any] = []

    def script(request: Request) -> Iterable[Step]:
        if request.json["method"] == "GetTask":
            return rpc(request, result=approval_request(len(sent)))
        sent.append(request.json["params"]["message"]["parts"])
        return rpc(request, result={"task": approval_request(len(sent))})

    with pytest.raises(RemoteQuestion):
        await call_approved_here(script, wait)
    assert sent[1:] == [[{"data": {"approved": True, "approvalId": "a-1"}}]]
