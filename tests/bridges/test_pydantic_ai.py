"""Agents of pydantic-ai as skills."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from apcore_a2a_bridges import bridge
from apcore_a2a_bridges.pydantic_ai import PydanticAIAgent
from apcore_a2a_client import InvalidParamsError, Part
from apcore_a2a_server import create_app
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, TextOutput
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import BinaryContent, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.inloop import listening

from .acceptance import Acceptance, Script, client_of, serving_agent

pytestmark = pytest.mark.anyio


def text_of(message: Any) -> str:
    """Return the texts of a message of pydantic-ai."""
    contents = [getattr(part, "content", "") for part in message.parts]
    return "".join(content for content in contents if isinstance(content, str))


def model_of(script: Script) -> FunctionModel:
    """Return a model that follows the script."""

    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[str]:
        async for piece in script.say(*map(text_of, messages)):
            yield piece

    return FunctionModel(stream_function=stream)


class TestAcceptance(Acceptance):
    usage: ClassVar[Any] = {
        "inputTokens": 50,
        "outputTokens": 4,
    }  # estimates of pydantic-ai's FunctionModel

    def agent(self, script: Script) -> Any:
        return Agent(model_of(script), name="support")


def tool_calling_model(*calls: tuple[str, dict[str, Any]]) -> FunctionModel:
    """Return a model that calls tools at first, and then answers with their results."""

    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        results = [p for p in messages[-1].parts if p.part_kind == "tool-return"]
        if results:
            yield " and ".join(f"{part.tool_name}: {part.content}" for part in results)
            return
        for number, (name, arguments) in enumerate(calls):
            text = json.dumps(arguments)
            yield {number: DeltaToolCall(name, text, tool_call_id=f"call-{number}")}

    return FunctionModel(stream_function=stream)


def shop_agent(*calls: tuple[str, dict[str, Any]]) -> Agent[None, Any]:
    """Return an agent with a tool that needs approval, and a deferred one."""
    agent = Agent(tool_calling_model(*calls), name="shop", output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)  # type: ignore[untyped-decorator]  # not installed here
    def pay(amount: int) -> str:
        return f"paid {amount}"

    @agent.tool_plain  # type: ignore[untyped-decorator]  # not installed here
    def measure(room: str) -> str:
        raise CallDeferred

    return agent


async def test_the_bridge_is_found_by_the_type() -> None:
    module = bridge(shop_agent())
    assert isinstance(module, PydanticAIAgent)
    assert module.module_id == "shop"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("yes", "pay: paid 5"), ("no", "pay: The user has denied this call.")],
)
async def test_a_tool_that_needs_approval_runs_only_after_a_yes(answer: str, expected: str) -> None:
    async with serving_agent(shop_agent(("pay", {"amount": 5}))) as url, client_of(url) as client:
        paused = await client.send_message("Buy it")
        assert paused.status.state == "input-required"
        assert "May the agent call pay?" in str(paused.status.message)
        unclear = await client.reply(paused, "Well")
        assert unclear.status.state == "input-required"
        task = await client.reply(paused, answer)
    assert task.value == expected


async def test_each_of_several_calls_needs_its_own_answer(tmp_path: Path) -> None:
    calls = ("pay", {"amount": 5}), ("measure", {"room": "attic"}), ("measure", {"room": "hall"})
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    async with (
        serving_agent(shop_agent(*calls), task_store=store) as url,
        client_of(url) as client,
    ):
        paused = await client.send_message("Buy it")
        paused_again = await client.reply(paused, "yes")
        assert "measure" in str(paused_again.status.message)
        assert "attic" in str(paused_again.status.message)
    # another server continues from the stored state
    async with (
        serving_agent(shop_agent(*calls), task_store=store) as url,
        client_of(url) as client,
    ):
        paused_again = await client.reply(paused_again, {"length": 4})
        assert "hall" in str(paused_again.status.message)
        task = await client.reply(paused_again, "3 m")
    assert task.value == "pay: paid 5 and measure: {'length': 4} and measure: 3 m"


async def test_tokens_of_all_runs_of_a_task_are_counted() -> None:
    async with serving_agent(shop_agent(("pay", {"amount": 5}))) as url, client_of(url) as client:
        paused = await client.send_message("Buy it")
        first = dict(paused.metadata["usage"])
        task = await client.reply(paused, "yes")
    assert task.metadata["usage"]["inputTokens"] > first["inputTokens"] > 0
    assert task.metadata["usage"]["outputTokens"] > first["outputTokens"] > 0


class Weather(BaseModel):
    city: str
    degrees: float


async def test_a_typed_output_is_data_with_a_schema() -> None:
    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        (tool,) = info.output_tools
        yield {0: DeltaToolCall(tool.name, '{"city": "Bern", "degrees": 3.5}')}

    model = FunctionModel(stream_function=stream)
    async with (
        serving_agent(Agent(model, name="weather", output_type=Weather)) as url,
        client_of(url) as client,
    ):
        async with httpx.AsyncClient() as http:
            card: Any = (await http.get(f"{url}/.well-known/agent-card.json")).json()
        (extension,) = card["capabilities"]["extensions"]
        schema = extension["params"]["skills"]["weather"]["outputSchema"]
        assert {*schema["properties"]} == {"city", "degrees"}
        assert await client.call(None, "Bern?") == {"city": "Bern", "degrees": 3.5}
        assert [c async for c in client.stream(None, "Bern?")] == [{"city": "Bern", "degrees": 3.5}]


async def test_one_of_several_types_of_output_is_data() -> None:
    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        weather_tool, _ = info.output_tools
        yield {0: DeltaToolCall(weather_tool.name, '{"city": "Bern", "degrees": 3.5}')}

    class Unknown(BaseModel):
        reason: str

    model = FunctionModel(stream_function=stream)
    agent = Agent(model, name="weather", output_type=[Weather, Unknown])
    async with serving_agent(agent) as url, client_of(url) as client:
        assert await client.call(None, "Bern?") == {"city": "Bern", "degrees": 3.5}


def shouted(text: str) -> str:
    """Return a text in capital letters."""
    return text.upper()


@pytest.mark.parametrize("output_type", [str | int, [str, shouted], [str, Weather]])
async def test_an_agent_with_several_kinds_of_output_can_answer_with_text(output_type: Any) -> None:
    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        yield "Sun"
        yield "ny"

    agent = Agent(FunctionModel(stream_function=stream), name="weather", output_type=output_type)
    async with serving_agent(agent) as url, client_of(url) as client:
        assert await client.call(None, "Bern?") == "Sunny"


async def test_the_text_of_an_output_function_is_the_answer() -> None:
    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        (tool,) = info.output_tools
        yield {0: DeltaToolCall(tool.name, '{"text": "sunny"}')}

    agent = Agent(FunctionModel(stream_function=stream), name="loud", output_type=[str, shouted])
    async with serving_agent(agent) as url, client_of(url) as client:
        assert await client.call(None, "Bern?") == "SUNNY"


async def test_a_text_that_a_function_converts_is_sent_once_converted() -> None:
    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        yield "sunny"

    output_type = TextOutput(shouted)
    agent = Agent(FunctionModel(stream_function=stream), name="loud", output_type=output_type)
    async with serving_agent(agent) as url, client_of(url) as client:
        assert await client.call(None, "Bern?") == "SUNNY"


async def test_past_messages_without_text_are_left_out() -> None:
    script = Script()
    picture = Part(raw=b"\x89PNG", filename="a.png", media_type="image/png")
    agent = Agent(model_of(script), name="support")
    async with serving_agent(agent) as url, client_of(url) as client:
        first = await client.send_message([picture])
        await client.send_message("And now?", context_id=first.context_id)
    assert "" not in script.prompts[-1]
    assert script.prompts[-1][-1] == "And now?"


async def test_files_reach_the_model_with_their_media_types() -> None:
    received: list[Any] = []
    picture = bytes(range(256))

    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[str]:
        (request,) = messages
        assert isinstance(request, ModelRequest)
        received.extend(p.content for p in request.parts if isinstance(p, UserPromptPart))
        yield "A picture."

    agent = Agent(FunctionModel(stream_function=stream), name="eyes")
    image = Part(raw=picture, filename="a.png", media_type="image/png")
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message(["What is it?", image])
    assert task.value == "A picture."
    ((text, content),) = received
    assert text == "What is it?"
    assert isinstance(content, BinaryContent)
    assert (content.data, content.media_type) == (picture, "image/png")


async def test_dependencies_come_from_the_turn() -> None:
    instructions: list[str | None] = []

    async def stream(messages: list[Any], info: AgentInfo) -> AsyncIterator[str]:
        instructions.append(messages[-1].instructions)
        yield "Hello"

    agent = Agent(FunctionModel(stream_function=stream), name="deps", deps_type=str)

    @agent.instructions  # type: ignore[untyped-decorator]  # not installed here
    def instruct(context: Any) -> str:
        return f"You talk to {context.deps}."

    received: list[str] = []

    def deps(turn: Any) -> str:
        received.append(turn.context_id)
        return str(turn.principal or "a stranger")

    async with serving_agent(agent, deps=deps) as url, client_of(url) as client:
        task = await client.send_message("Hello")
    assert received == [task.context_id]
    assert instructions == ["You talk to a stranger."]


async def test_an_input_of_the_wrong_type_is_refused() -> None:
    script = Script()
    agent = Agent(model_of(script), name="typed")
    async with serving_agent(agent, input_key="city") as url, client_of(url) as client:
        with pytest.raises(InvalidParamsError):
            await client.call("typed", {"city": 5})
        assert await client.call("typed", {"city": "Bern"}) == "You said: Bern"


async def test_the_example_is_served() -> None:
    path = Path(__file__).parents[2] / "examples/bridges/pydantic-ai/agent.py"
    app = create_app(f"{path}:agent", allowed_hosts=["*"])
    async with listening(app) as url, client_of(url) as client:
        assert await client.call("hello", "Hi") == "Hello from pydantic-ai."
