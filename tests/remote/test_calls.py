"""Calls of remote skills through one and two agents: results, streams, cancellation, errors."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from apcore import Context, Executor, Registry
from apcore.errors import ModuleNotFoundError, ModuleTimeoutError
from apcore_a2a_client import (
    InvalidParamsError,
    Part,
    SkillNotFoundError,
    Task,
    TaskArtifactUpdateEvent,
    TaskFailedError,
    TaskStatusUpdateEvent,
)
from apcore_a2a_core import File, Progress, Prompt, Usage
from apcore_a2a_remote import RemoteAgent, RemoteFailedError, RemoteInputError
from pydantic import BaseModel

from tests.server.inloop import ActionModule, Gate, StreamModule, echo
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.modules import Inputs
from tests.serving import PATIENCE

from .agents import CHAINS, chain, serving

pytestmark = pytest.mark.anyio


def skill_of(names: str, skill: str = "work") -> str:
    """Return the id of a skill at the first agent of a chain."""
    return f"remote.{'.'.join(names)}.{skill}"


class City(BaseModel):
    city: str
    days: int = 1


class Forecast:
    description = "Tells the weather."
    input_schema = City
    output_schema = City
    display: ClassVar = {"a2a": {"text_field": "city"}}

    def execute(self, inputs: Inputs, context: Any) -> Inputs:
        return inputs


@pytest.mark.parametrize("names", CHAINS)
async def test_a_remote_skill_keeps_its_schemas_and_text_field(names: str) -> None:
    async with chain({"work": Forecast()}, names) as agents:
        skill = skill_of(names)
        output = await agents[0].client.call(skill, {"city": "Bonn", "days": 2})
        assert output == ["Bonn", {"days": 2}]
        with pytest.raises(InvalidParamsError) as refused:
            await agents[0].client.call(skill, {"city": 5})
        assert [error["field"] for error in refused.value.errors] == ["city"]
        skill_details = [
            next(iter(card.capabilities.extensions)).params["skills"][name]
            for card, name in (
                (await agents[0].client.agent_card, skill),
                (await agents[-1].client.agent_card, "work"),
            )
        ]
        for member in ("inputSchema", "outputSchema", "textField"):
            assert skill_details[0][member] == skill_details[1][member]


@pytest.mark.parametrize("names", CHAINS)
async def test_chunks_are_passed_on_one_by_one(names: str) -> None:
    steps = [asyncio.Event() for _ in range(4)]

    async def count(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        for number, step in enumerate(steps):
            await step.wait()
            yield {"number": number}

    async with chain({"work": StreamModule(count)}, names) as agents:
        numbers = []
        steps[0].set()
        async for value in agents[0].client.stream(skill_of(names), {"a": 1}):
            numbers.append(value["number"])
            if value["number"] < 3:
                steps[value["number"] + 1].set()
        assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize("names", CHAINS)
async def test_a_text_skill_takes_and_streams_text(names: str) -> None:
    async def tell(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        for word in (inputs["text"], " and", " more"):
            yield {"text": word}

    teller = StreamModule(tell, input_schema=Prompt, display={"a2a": {"text_field": "text"}})
    async with chain({"work": teller}, names) as agents:
        client, skill = agents[0].client, skill_of(names)
        assert [text async for text in client.stream(skill, "Hello")] == ["Hello", " and", " more"]
        assert await client.call(skill, "Hello") == "Hello and more"


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("names", CHAINS)
async def test_a_cancel_reaches_the_remote_module(names: str, is_stream: bool) -> None:
    gate = Gate()
    async with chain({"work": ActionModule(gate)}, names) as agents:
        client, skill = agents[0].client, skill_of(names)
        if is_stream:
            stream = client.stream_message({"a": 1}, skill=skill)
            first = await anext(stream)
            assert isinstance(first, Task)
            task = first
            next_event = asyncio.ensure_future(anext(stream))
        else:
            task = await client.send_message({"a": 1}, skill=skill, blocking=False)
        await gate.reached.wait()
        canceled = await client.cancel_task(task.id)
        assert canceled.status.state == "canceled"
        await gate.canceled.wait()
        if is_stream:
            await next_event
            await stream.aclose()
        for agent in agents[1:]:
            assert await states(agent.client) == ["canceled"]


async def states(client: Any) -> list[str]:
    return [str(task.status.state) async for task in client.iter_tasks()]


async def test_a_disconnected_caller_cancels_the_remote_task() -> None:
    gate = Gate()
    async with chain({"work": ActionModule(gate)}, "c") as (gateway, remote):
        stream = gateway.client.stream_message({"a": 1}, skill="remote.c.work")
        await anext(stream)
        await gate.reached.wait()
        await stream.aclose()
        await gate.canceled.wait()
        assert await states(remote.client) == ["canceled"]


async def test_a_timeout_cancels_the_remote_task() -> None:
    gate = Gate()
    async with serving({"work": ActionModule(gate)}) as remote:
        registry = Registry()
        async with RemoteAgent(remote.url, name="c", timeout=0.2) as agent:
            await agent.register(registry)
            with pytest.raises(ModuleTimeoutError):
                await Executor(registry).call_async("remote.c.work", {})
            await gate.canceled.wait()
            assert await states(remote.client) == ["canceled"]


@pytest.mark.parametrize("names", CHAINS)
async def test_a_remote_error_is_logged_and_its_text_is_not_in_the_task(
    names: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(inputs: Inputs, context: Any) -> Any:
        raise RuntimeError("secret hunter2")

    async with chain({"work": ActionModule(fail)}, names) as agents:
        with pytest.raises(TaskFailedError) as failed:
            await agents[0].client.call(skill_of(names), {})
        data: Any = failed.value.data
        assert data["type"] == "RemoteFailedError"
        task = await agents[0].client.get_task(failed.value.task.id, history_length=10)
        assert "hunter2" not in str(task.to_dict())
    events = [getattr(record, "event", "") for record in caplog.records]
    assert "remote_call_failed" in events


async def test_fields_that_only_the_remote_agent_refuses_are_named() -> None:
    async with serving({"work": Forecast()}) as remote:
        registry = Registry()
        async with RemoteAgent(remote.url, name="c") as agent:
            await agent.register(registry)
            # as if the schema had changed since the card was fetched
            registry.get("remote.c.work").input_schema = Prompt
            with pytest.raises(RemoteInputError) as refused:
                await registry.get("remote.c.work").execute({"text": ""}, Context.create())
            fields = [error["field"] for error in refused.value.details["errors"]]
            assert fields == ["city"]


async def test_a_removed_skill_is_not_found() -> None:
    async with serving({"work": ActionModule(echo)}) as remote:
        registry = Registry()
        async with RemoteAgent(remote.url, name="c") as agent:
            await agent.register(registry)
            remote.registry.unregister("work")
            with pytest.raises(ModuleNotFoundError):
                await Executor(registry).call_async("remote.c.work", {})


async def test_an_agent_that_is_down_fails_its_calls() -> None:
    registry = Registry()
    async with serving({"work": ActionModule(echo)}) as remote:
        agent = RemoteAgent(remote.url, name="c", retries=0)
        await agent.register(registry)
    with pytest.raises(RemoteFailedError) as failed:
        await Executor(registry).call_async("remote.c.work", {})
    assert failed.value.retryable
    await agent.aclose()


@pytest.mark.parametrize("names", CHAINS)
async def test_files_usage_progress_and_metadata_pass_through(names: str) -> None:
    parts_received: list[Any] = []
    locales: list[Any] = []

    async def work(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        parts_received.extend(context.services.parts)
        locales.append(context.services.request_metadata["locale"])
        yield Progress("Reading", {"page": 1})
        yield Usage(10, 2)
        yield Usage(1, 1)
        context.services.metadata["model"] = "m-1"
        yield {"text": "Done", "table": File(b"a,b", name="table.csv", media_type="text/csv")}
        yield {"link": File(url="https://example.com/a.png", name="a.png")}

    worker = StreamModule(
        work, input_schema=Prompt, display={"a2a": {"text_field": "text", "files": True}}
    )
    png = Part(raw=b"\x89PNG\r\n\x1a\n", filename="a.png", media_type="image/png")
    async with chain({"work": worker}, names) as agents:
        events = [
            event
            async for event in agents[0].client.stream_message(
                [Part(text="See"), png], skill=skill_of(names), metadata={"locale": "de"}
            )
        ]
        (raw,) = [part for part in parts_received if "raw" in part]
        assert Part.from_dict(raw) == png
        assert locales == ["de"]
        progress = [e.status.message for e in events if isinstance(e, TaskStatusUpdateEvent)]
        assert [(m.parts[0].text, m.parts[1].data) for m in progress if m] == [
            ("Reading", {"page": 1})
        ]
        parts = [
            p for e in events if isinstance(e, TaskArtifactUpdateEvent) for p in e.artifact.parts
        ]
        assert [part.text for part in parts] == ["Done", None, None]
        table, link = parts[1:]
        assert (table.raw, table.filename, table.media_type) == (b"a,b", "table.csv", "text/csv")
        assert (link.url, link.filename) == ("https://example.com/a.png", "a.png")
        assert isinstance(events[0], Task)
        task = await agents[0].client.get_task(events[0].id)
        assert task.metadata["usage"] == {"inputTokens": 11, "outputTokens": 3}
        assert task.metadata["model"] == "m-1"


async def test_a_skill_that_is_not_exposed_can_be_called_only_by_local_modules() -> None:
    async def outer(inputs: Inputs, context: Any) -> Any:
        return await context.executor.call_async("remote.c.work", inputs, context)

    async with serving({"work": ActionModule(echo)}) as remote:
        agent = RemoteAgent(remote.url, name="c")
        async with serving({"outer": ActionModule(outer)}, agent) as gateway:
            assert [skill.id for skill in (await gateway.client.agent_card).skills] == ["outer"]
            assert await gateway.client.call("outer", {"a": 1}) == {"a": 1}
            with pytest.raises((SkillNotFoundError, TaskFailedError)):
                await gateway.client.call("remote.c.work", {"a": 1})
            assert await states(remote.client) == ["completed"]


async def test_a_program_without_a_server_calls_and_streams() -> None:
    async def count(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        for number in range(3):
            yield {"number": number}

    async with serving({"work": StreamModule(count)}) as remote:
        registry = Registry()
        async with RemoteAgent(remote.url, name="c") as agent:
            assert await agent.register(registry) == ["remote.c.work"]
            executor = Executor(registry)
            assert await executor.call_async("remote.c.work", {}) == {"number": 2}
            chunks = [chunk async for chunk in executor.stream("remote.c.work", {})]
            assert [chunk["number"] for chunk in chunks] == [0, 1, 2]
            assert agent.open_calls == 0


async def test_a_stream_that_is_closed_has_canceled_the_remote_task() -> None:
    async def count_slowly(inputs: Inputs, context: Any) -> AsyncIterator[Any]:
        yield {"number": 0}
        await asyncio.sleep(PATIENCE)

    async with serving({"work": StreamModule(count_slowly)}) as remote:
        registry = Registry()
        async with RemoteAgent(remote.url, name="c") as agent:
            await agent.register(registry)
            chunks = registry.get("remote.c.work").stream({}, Context.create())
            assert await anext(chunks) == {"number": 0}
            await chunks.aclose()
            assert agent.open_calls == 0
            assert await states(remote.client) == ["canceled"]


async def test_the_trace_of_the_caller_continues_at_the_remote_agent() -> None:
    trace_ids: list[str] = []

    async def record_trace(inputs: Inputs, context: Any) -> Any:
        trace_ids.append(context.trace_id)
        return {}

    trace = "0af7651916cd43dd8448eb211c80319c"
    async with chain({"work": ActionModule(record_trace)}, "bc") as agents:
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        await agents[0].client.call(skill_of("bc"), {}, headers=headers)
    assert trace_ids == [trace]
