"""The trace of a task that waits for an approval and calls another agent."""

from typing import Any

import httpx
import pytest
from apcore_a2a_remote import RemoteAgent

from tests.server.inloop import NEEDS_APPROVAL, ActionModule, anyio_backend, echo

from .agents import Agent, serving

__all__ = ["anyio_backend"]

pytestmark = pytest.mark.anyio


async def trace_of(agent: Agent, task_id: str) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(f"{agent.url}/apcore/tasks/{task_id}/trace")
    trace: dict[str, Any] = response.json()
    return trace


async def test_a_trace_has_an_approval_and_a_nested_and_a_remote_call() -> None:
    async def plan(inputs: Any, context: Any) -> Any:
        executor = front.app.state.agent.setup.executor
        await executor.call_async("pay", inputs, context)
        return await executor.call_async("remote.b.work", inputs, context)

    modules = {
        "plan": ActionModule(plan),
        "pay": ActionModule(echo, annotations=NEEDS_APPROVAL),
    }
    async with (
        serving({"work": ActionModule(echo)}) as behind,
        serving(modules, RemoteAgent(behind.url, name="b")) as front,
    ):
        paused = await front.client.send_message({"text": "x"}, skill="plan")
        task = await front.client.reply(paused, {"approved": True})
        trace = await trace_of(front, task.id)
        (inner,) = (await behind.client.list_tasks()).tasks
        inner_trace = await trace_of(behind, inner.id)
    names = {span["id"]: span["name"] for span in trace["spans"]}
    assert [
        (span["kind"], span["name"], span["status"], names.get(span["parentId"]))
        for span in trace["spans"]
        if span["kind"] not in ("check", "queue")
    ] == [
        ("module", "plan", "ok", None),
        ("wait", "approval", "ok", None),
        ("module", "plan", "ok", None),
        ("call", "pay", "ok", "plan"),
        ("remote", "remote.b.work", "ok", "plan"),
    ]
    assert trace["state"] == "completed"
    assert inner_trace["traceId"] == trace["traceId"]
    assert ("module", "work") in [(span["kind"], span["name"]) for span in inner_trace["spans"]]


async def test_the_trace_shows_an_exposed_remote_skill_as_a_remote_call() -> None:
    async with (
        serving({"work": ActionModule(echo)}) as behind,
        serving({}, RemoteAgent(behind.url, name="b", expose=True)) as front,
    ):
        task = await front.client.send_message({"text": "x"}, skill="remote.b.work")
        trace = await trace_of(front, task.id)
    assert [(span["kind"], span["name"]) for span in trace["spans"]][-1] == (
        "remote",
        "remote.b.work",
    )
