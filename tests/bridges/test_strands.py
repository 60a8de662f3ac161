"""Agents of Strands as skills."""

import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_bridges import bridge
from apcore_a2a_bridges.strands import StrandsAgent
from apcore_a2a_client import Part
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models import Model

from tests.server.inloop import anyio_backend as anyio_backend

from .acceptance import Acceptance, Script, client_of, serving_agent

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


class Llm(Model):  # type: ignore[misc]  # not installed for mypy
    """Streams text and uses of tools, which a function of the messages yields."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        reason = "end_turn"
        is_open = False
        async for piece in self._answer(messages):
            if isinstance(piece, dict):
                reason = "tool_use"
                use = {"name": piece["name"], "toolUseId": piece["name"]}
                yield {"contentBlockStart": {"start": {"toolUse": use}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": piece["input"]}}}}
                yield {"contentBlockStop": {}}
                continue
            if not is_open:
                is_open = True
                yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": piece}}}
        if is_open:
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}
        usage = {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def scripted_agent(script: Script) -> Any:
    def answer(messages: Any) -> AsyncIterator[str]:
        blocks = [block for message in messages for block in message["content"]]
        return script.say(*(block["text"] for block in blocks if "text" in block))

    return Agent(model=Llm(answer), name="talker", description="Talks.")


class TestSingleAgent(Acceptance):
    """An agent of Strands has one turn at a time."""

    concurrency = 1

    def agent(self, script: Script) -> Any:
        return scripted_agent(script)


class TestFunction(Acceptance):
    def agent(self, script: Script) -> Any:
        return StrandsAgent(lambda: scripted_agent(script))


deletions: list[str] = []


@tool  # type: ignore[untyped-decorator]  # not installed for mypy
def delete(key: str) -> str:
    """Delete an object.

    Args:
        key: Its key.
    """
    deletions.append(key)
    return "deleted"


def deletion_agent() -> Any:
    def approve(event: BeforeToolCallEvent) -> None:
        for name in ("sure", "really"):
            if event.interrupt(name, reason=f"Are you {name}?") != "y":
                event.cancel_tool = "no"

    async def answer(messages: Any) -> AsyncIterator[Any]:
        results = [b["toolResult"] for m in messages for b in m["content"] if "toolResult" in b]
        if results:
            yield f"It was {results[-1]['status']}"
        else:
            yield {"name": "delete", "input": '{"key": "a"}'}

    return StrandsAgent(
        lambda: Agent(model=Llm(answer), tools=[delete], hooks=[approve], name="objects")
    )


@pytest.mark.parametrize(("second", "deleted"), [("y", ["a"]), ("n", [])])
async def test_an_interrupt_asks_and_another_server_can_pass_on_the_answer(
    tmp_path: Path, second: str, deleted: list[str]
) -> None:
    deletions.clear()
    store = f"sqlite:///{tmp_path / 'agent.db'}"
    async with serving_agent(deletion_agent(), task_store=store) as url, client_of(url) as client:
        picture = Part(raw=PNG, media_type="image/png")
        task = await client.send_message([Part(text="Delete a"), picture])
    assert task.status.state == "input-required"
    assert "Are you sure?" in str(task.status.message)
    async with serving_agent(deletion_agent(), task_store=store) as url, client_of(url) as client:
        task = await client.reply(task, "y")
    assert "Are you really?" in str(task.status.message)
    async with serving_agent(deletion_agent(), task_store=store) as url, client_of(url) as client:
        task = await client.reply(task, second)
    assert task.status.state == "completed"
    assert deletions == deleted


async def test_a_conversation_continues_after_a_canceled_question() -> None:
    async with serving_agent(deletion_agent()) as url, client_of(url) as client:
        task = await client.send_message("Delete a")
        await client.cancel_task(task.id)
        task = await client.send_message("Delete b", context_id=task.context_id)
    assert task.status.state == "input-required"


async def test_files_of_supported_types_reach_the_model() -> None:
    received: list[Any] = []

    async def answer(messages: Any) -> AsyncIterator[Any]:
        received.extend(messages[-1]["content"])
        yield "Seen"

    parts = [
        Part(text="Look"),
        Part(raw=PNG, filename="dot.png", media_type="image/png"),
        Part(raw=b"a,b", filename="a.b.csv", media_type="text/csv"),
        Part(raw=b"c", filename="\u00c4_b  (1).csv", media_type="text/csv"),
        Part(raw=b"d", filename="d.txt", media_type="Text/Plain; charset=utf-8"),
        Part(raw=b"ID3", filename="a.mp3", media_type="audio/mpeg"),
        Part(url="https://example.com/b.csv", media_type="text/csv"),
    ]
    async with serving_agent(Agent(model=Llm(answer))) as url, client_of(url) as client:
        assert (await client.send_message(parts)).value == "Seen"
    assert received == [
        {"text": "Look"},
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"document": {"format": "csv", "name": "a-b-csv", "source": {"bytes": b"a,b"}}},
        {"document": {"format": "csv", "name": "-b (1)-csv", "source": {"bytes": b"c"}}},
        {"document": {"format": "txt", "name": "d-txt", "source": {"bytes": b"d"}}},
        {"text": "https://example.com/b.csv"},
    ]


async def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving_agent(scripted_agent(Script())) as url, client_of(url) as client:
        await client.send_message("Hello")
    assert capsys.readouterr().out == ""


def test_the_example_is_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    path = Path(__file__).parents[2] / "examples/bridges/strands/agent.py"
    agent = bridge(runpy.run_path(str(path))["agent"])
    assert (agent.name, agent.description) == ("assistant", "Answers questions.")


def test_the_skill_has_the_name_and_description_of_the_agent() -> None:
    agent = bridge(scripted_agent(Script()))
    assert (agent.name, agent.description) == ("talker", "Talks.")
