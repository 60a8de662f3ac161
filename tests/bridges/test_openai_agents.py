"""Agents of the OpenAI Agents SDK as skills."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, SQLiteSession, function_tool
from apcore_a2a_bridges import bridge
from apcore_a2a_bridges.openai_agents import OpenAIAgent
from apcore_a2a_client import Part
from apcore_a2a_server import create_app
from pydantic import BaseModel

from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.inloop import listening
from tests.server.principals import HeaderAuth

from .acceptance import Acceptance, Script, client_of, serving_agent
from .openai_model import AnsweringModel, call_of, texts_of

pytestmark = pytest.mark.anyio


def agent_of(script: Script, **options: Any) -> Agent[Any]:
    """Return an agent whose model follows the script."""
    model = AnsweringModel(lambda items: script.say(*texts_of(items)))
    return Agent(**{"name": "support", "model": model, **options})


class TestAcceptance(Acceptance):
    def agent(self, script: Script) -> Any:
        return agent_of(script)


@function_tool(needs_approval=True)  # type: ignore[untyped-decorator]  # not installed here
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def paying_agent(*amounts: int) -> Agent[Any]:
    """Return an agent that pays amounts, and then answers with the results of its tools."""

    async def answer(items: Any) -> AsyncIterator[Any]:
        results = [item["output"] for item in items if item.get("type") == "function_call_output"]
        if results:
            yield " and ".join(map(str, results))
            return
        for number, amount in enumerate(amounts):
            yield call_of("pay", f'{{"amount": {amount}}}', f"call-{number}")

    return Agent(name="shop", model=AnsweringModel(answer), tools=[pay])


async def test_the_bridge_is_found_by_the_type() -> None:
    module = bridge(paying_agent())
    assert isinstance(module, OpenAIAgent)
    assert module.module_id == "shop"


@pytest.mark.parametrize(
    ("answer", "expected"), [("yes", "paid 5"), ("no", "The user has denied this call.")]
)
async def test_a_tool_that_needs_approval_runs_only_after_a_yes(answer: str, expected: str) -> None:
    async with serving_agent(paying_agent(5)) as url, client_of(url) as client:
        paused = await client.send_message("Buy it")
        assert paused.status.state == "input-required"
        assert "May the agent call pay?" in str(paused.status.message)
        unclear = await client.reply(paused, "Well")
        assert unclear.status.state == "input-required"
        task = await client.reply(paused, answer)
    assert task.value == expected
    assert task.metadata["usage"] == {"inputTokens": 14, "outputTokens": 6}


async def test_each_of_several_calls_needs_its_own_answer(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    async with serving_agent(paying_agent(5, 6), task_store=store) as url, client_of(url) as client:
        paused = await client.send_message("Buy it")
        paused_again = await client.reply(paused, "yes")
        assert "'amount': 6" in str(paused_again.status.message)
    # another server continues from the stored state
    async with serving_agent(paying_agent(5, 6), task_store=store) as url, client_of(url) as client:
        task = await client.reply(paused_again, "no")
    assert task.value == "paid 5 and The user has denied this call."


async def test_callers_of_one_conversation_have_separate_sessions(tmp_path: Path) -> None:
    script = Script()
    path = tmp_path / "sessions.db"
    options: dict[str, Any] = {
        "session": lambda id_: SQLiteSession(id_, path),
        "auth": HeaderAuth(),
    }
    async with serving_agent(agent_of(script), **options) as url:
        async with client_of(url, "ada") as client:
            first = await client.send_message("My name is Ada")
            await client.send_message("And now?", context_id=first.context_id)
            assert script.prompts[-1] == ["My name is Ada", "You said: My name is Ada", "And now?"]
        async with client_of(url, "eve") as client:
            await client.send_message("Who am I?", context_id=first.context_id)
    assert script.prompts[-1] == ["Who am I?"]


class Weather(BaseModel):
    city: str
    degrees: float


async def test_a_typed_output_is_data() -> None:
    async def answer(items: Any) -> AsyncIterator[Any]:
        yield '{"city": "Bern", '
        yield '"degrees": 3.5}'

    agent = Agent(name="weather", model=AnsweringModel(answer), output_type=Weather)
    assert {*bridge(agent).output_schema.model_fields} == {"city", "degrees"}
    async with serving_agent(agent) as url, client_of(url) as client:
        assert await client.call(None, "Bern?") == {"city": "Bern", "degrees": 3.5}


async def test_files_reach_the_model() -> None:
    script = Script()
    agent = agent_of(script)
    parts = [
        "What are they?",
        Part(raw=b"\x89PNG", filename="a.png", media_type="image/png"),
        Part(raw=b"a,b", filename="a.csv", media_type="text/csv"),
        Part(url="https://example.com/b.pdf", media_type="application/pdf"),
    ]
    async with serving_agent(agent) as url, client_of(url) as client:
        await client.send_message(parts)
    ((message,),) = agent.model.inputs
    assert message["content"] == [
        {"type": "input_text", "text": "What are they?"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "auto"},
        {"type": "input_file", "file_data": "data:text/csv;base64,YSxi", "filename": "a.csv"},
        {"type": "input_file", "file_url": "https://example.com/b.pdf"},
    ]


async def test_past_messages_without_text_are_left_out() -> None:
    script = Script()
    picture = Part(raw=b"\x89PNG", filename="a.png", media_type="image/png")
    async with serving_agent(agent_of(script)) as url, client_of(url) as client:
        first = await client.send_message([picture])
        await client.send_message("And now?", context_id=first.context_id)
    assert "" not in script.prompts[-1]
    assert script.prompts[-1][-1] == "And now?"


async def test_the_example_is_served() -> None:
    path = Path(__file__).parents[2] / "examples/bridges/openai-agents/agent.py"
    app = create_app(f"{path}:agent", allowed_hosts=["*"])
    async with listening(app) as url, client_of(url) as client:
        assert await client.call("hello", "Hi") == "Hello from the Agents SDK."
