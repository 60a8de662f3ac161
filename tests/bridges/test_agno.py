"""Agents and teams of Agno as skills."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportUntypedBaseClass=false

import json
import runpy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.media import Image
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.team import Team
from agno.tools import tool
from agno.tools.function import ToolResult
from agno.tools.user_feedback import UserFeedbackTools
from apcore_a2a_bridges import bridge
from apcore_a2a_bridges.agno import TELEMETRY, AgnoAgent
from apcore_a2a_client import InvalidParamsError, Part, TaskStatusUpdateEvent
from pydantic import BaseModel

from tests.server.inloop import anyio_backend as anyio_backend

from .acceptance import Acceptance, Script, client_of, serving_agent, task_of

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def call_of(name: str, number: int = 0, **arguments: Any) -> ModelResponse:
    """Return a piece of an answer that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": f"call-{number}", "type": "function", "function": function}]
    return ModelResponse(role="assistant", tool_calls=calls)


@dataclass
class Llm(Model):  # type: ignore[misc]  # not installed here
    """A model that answers with text or responses, which a function of the messages yields."""

    id: str = "scripted"
    answer: Any = None

    async def ainvoke_stream(self, messages: Any, **options: Any) -> AsyncIterator[ModelResponse]:
        async for piece in self.answer(messages):
            is_text = isinstance(piece, str)
            yield ModelResponse(role="assistant", content=piece) if is_text else piece
        usage = MessageMetrics(input_tokens=7, output_tokens=3, total_tokens=10)
        yield ModelResponse(response_usage=usage)

    async def ainvoke(self, messages: Any, **options: Any) -> ModelResponse:
        pieces = [piece async for piece in self.answer(messages)]
        return ModelResponse(role="assistant", content="".join(pieces))

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise NotImplementedError


def answers_of(script: Script) -> Callable[[Any], AsyncIterator[str]]:
    """Return a function that yields the answer of a script to messages."""
    return lambda messages: script.say(*(str(m.content) for m in messages if m.role != "system"))


class TestAgent(Acceptance):
    """An agent without a database gets the messages of the conversation."""

    def agent(self, script: Script) -> Any:
        return Agent(name="support", model=Llm(answer=answers_of(script)))


class TestAgentWithMemory(Acceptance):
    """An agent with a database remembers the conversation itself."""

    def agent(self, script: Script) -> Any:
        model = Llm(answer=answers_of(script))
        return Agent(model=model, db=InMemoryDb(), add_history_to_context=True)


class TestTeam(Acceptance):
    def agent(self, script: Script) -> Any:
        member = Agent(name="member", model=Llm(answer=answers_of(Script())))
        return Team(name="team", members=[member], model=Llm(answer=answers_of(script)))


async def test_the_bridge_is_found_by_the_type() -> None:
    agent = bridge(Agent(name="Support Desk", description="Answers.", telemetry=True))
    assert isinstance(agent, AgnoAgent)
    assert (agent.module_id, agent.description) == ("support_desk", "Answers.")


payments: list[Any] = []


@tool(requires_confirmation=True)  # type: ignore[untyped-decorator]  # not installed here
def pay(amount: int) -> str:
    """Pay an amount."""
    payments.append(amount)
    return f"paid {amount}"


@tool(external_execution=True)  # type: ignore[untyped-decorator]  # not installed here
def measure(room: str) -> str:
    """Measure a room."""
    raise NotImplementedError


# not installed here
@tool(requires_user_input=True, user_input_fields=["seat"])  # type: ignore[untyped-decorator]
def book(day: str, seat: int) -> str:
    """Book a seat.

    Args:
        day: The day.
        seat: The number of the seat.
    """
    return f"{seat} on {day}"


@tool(requires_user_input=True)  # type: ignore[untyped-decorator]  # not installed here
def name(first: str, last: str) -> str:
    """Name a person."""
    return f"{first} {last}"


def shop_agent(*calls: ModelResponse, **options: Any) -> Agent:
    """Return an agent that calls tools at first, and then answers with their results."""

    async def answer(messages: Any) -> AsyncIterator[Any]:
        results = [str(m.content) for m in messages if m.role == "tool"]
        if results:
            yield " and ".join(results)
            return
        yield "Well, "
        if calls:
            merged = [call for response in calls for call in response.tool_calls]
            yield ModelResponse(role="assistant", tool_calls=merged)

    tools = [pay, measure, book, name, UserFeedbackTools()]
    return Agent(name="shop", model=Llm(answer=answer), tools=tools, **options)


@pytest.mark.parametrize(
    ("answer", "expected", "paid"),
    [("yes", "paid 5", [5]), ("no", "The user has denied this call.", [])],
)
async def test_a_tool_that_needs_confirmation_runs_only_after_a_yes(
    answer: str, expected: str, paid: list[int]
) -> None:
    payments.clear()
    async with serving_agent(shop_agent(call_of("pay", amount=5))) as url, client_of(url) as client:
        paused = await client.send_message("Buy it")
        assert paused.status.state == "input-required"
        assert "May the agent call pay?" in str(paused.status.message)
        unclear = await client.reply(paused, "Well")
        assert unclear.status.state == "input-required"
        task = await client.reply(paused, answer)
    assert expected in str(task.value)
    assert payments == paid
    assert task.metadata["usage"] == {"inputTokens": 14, "outputTokens": 6}


async def test_several_tools_that_need_answers_ask_one_after_the_other(tmp_path: Path) -> None:
    payments.clear()
    calls = [
        call_of("pay", 0, amount=5),
        call_of("measure", 1, room="attic"),
        call_of("book", 2, day="Friday"),
        call_of("name", 3),
    ]
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    task: Any = None
    questions: list[str] = []
    for message in ("Buy it", "yes", {"length": 4}, "12", {"first": "Ada", "last": "Lovelace"}):
        # each time, another server continues from the stored state
        agent = shop_agent(*calls)
        async with serving_agent(agent, task_store=store) as url, client_of(url) as client:
            is_first = task is None
            task = await (client.send_message(message) if is_first else client.reply(task, message))
            questions.append(str(task.status.message))
    assert "What is the result of measure?" in questions[1]
    assert "attic" in questions[1]
    assert "book needs: The number of the seat." in questions[2]
    assert "name needs: first, last" in questions[3]
    assert task.value == 'paid 5 and {"length": 4} and 12 on Friday and Ada Lovelace'
    assert payments == [5]


async def test_a_tool_with_several_questions_asks_one_after_the_other() -> None:
    question = {
        "question": "Which size?",
        "header": "Size",
        "options": [{"label": "Small"}, {"label": "Large"}],
        "multi_select": False,
    }
    multiple_choice = {**question, "question": "Which colors?", "multi_select": True}
    call = call_of("ask_user", questions=[question, multiple_choice])
    async with serving_agent(shop_agent(call)) as url, client_of(url) as client:
        paused = await client.send_message("Buy it")
        assert "Which size?" in str(paused.status.message)
        paused_again = await client.reply(paused, "Huge")
        assert paused_again.status.state == "input-required"
        paused = await client.reply(paused, "Large")
        assert "Which colors?" in str(paused.status.message)
        task = await client.reply(paused, "Small, Large")
    assert task.status.state == "completed"
    assert "Large" in str(task.value)


class Weather(BaseModel):
    city: str
    degrees: float


async def test_a_typed_output_is_data_and_a_typed_input_is_checked() -> None:
    async def answer(messages: Any) -> AsyncIterator[Any]:
        city = json.loads(messages[-1].content)["city"]
        yield f'{{"city": "{city}", '
        yield '"degrees": 3.5}'

    class Place(BaseModel):
        city: str

    model = Llm(answer=answer)
    agent = Agent(name="weather", model=model, input_schema=Place, output_schema=Weather)
    assert bridge(agent).output_schema is Weather
    async with serving_agent(agent) as url, client_of(url) as client:
        assert await client.call("weather", {"city": "Bern"}) == {"city": "Bern", "degrees": 3.5}
        with pytest.raises(InvalidParamsError):
            await client.call("weather", {"city": 5})


async def test_a_typed_input_reaches_the_model_without_the_other_parts() -> None:
    received: list[Any] = []

    async def answer(messages: Any) -> AsyncIterator[Any]:
        received.append(messages[-1])
        yield "Seen"

    class Place(BaseModel):
        city: str

    parts = [
        Part(data={"city": "Bern"}),
        Part(text="Now"),
        Part(data={"n": 1}),
        Part(raw=PNG, media_type="image/png"),
        Part(url="https://example.com/b.pdf", media_type="application/pdf"),
    ]
    agent = Agent(name="eyes", model=Llm(answer=answer), input_schema=Place)
    async with serving_agent(agent) as url, client_of(url) as client:
        await client.send_message(parts)
    (message,) = received
    assert json.loads(message.content) == {"city": "Bern"}


async def test_files_reach_the_model_with_their_media_types() -> None:
    received: list[Any] = []

    async def answer(messages: Any) -> AsyncIterator[Any]:
        received.append(messages[-1])
        yield "Seen"

    parts = [
        "What are they?",
        Part(raw=PNG, filename="a.png", media_type="image/png"),
        Part(raw=b"ID3", media_type="audio/mpeg"),
        Part(raw=b"a,b", filename="a.csv", media_type="text/csv"),
        Part(raw=b"?", filename="a.bin", media_type="application/x-unknown"),
        Part(url="https://example.com/b.pdf", media_type="application/pdf"),
    ]
    async with (
        serving_agent(Agent(name="eyes", model=Llm(answer=answer))) as url,
        client_of(url) as client,
    ):
        first = await client.send_message("Hello")
        await client.send_message(parts, context_id=first.context_id)
        await client.send_message(parts)
    for message in received[1:]:
        assert message.content == "What are they?\nhttps://example.com/b.pdf"
        ((image,), (audio,), (table, unknown_file)) = message.images, message.audio, message.files
        assert (image.content, image.mime_type) == (PNG, "image/png")
        assert (audio.content, audio.mime_type, audio.format) == (b"ID3", "audio/mpeg", "mpeg")
        assert (table.content, table.mime_type, table.filename) == (b"a,b", "text/csv", "a.csv")
        assert (unknown_file.content, unknown_file.mime_type) == (b"?", None)


async def test_files_made_by_tools_are_sent_and_calls_of_tools_are_reported(
    tmp_path: Path,
) -> None:
    path = tmp_path / "b.png"
    path.write_bytes(b"b")

    @tool  # type: ignore[untyped-decorator]  # not installed here
    def draw() -> ToolResult:
        """Draw."""
        image = Image(content=PNG, mime_type="image/png")
        stored_image = Image(filepath=path, mime_type="image/png")
        return ToolResult(content="drawn", images=[image, stored_image])

    async def answer(messages: Any) -> AsyncIterator[Any]:
        if any(m.role == "tool" for m in messages):
            yield "Here it is."
        else:
            yield call_of("draw")

    agent = Agent(name="artist", model=Llm(answer=answer), tools=[draw])
    async with serving_agent(agent) as url, client_of(url) as client:
        events = [event async for event in client.stream_message("Draw")]
        task = await client.get_task(task_of(events[0]).id)
    progress = [str(e.status.message) for e in events if isinstance(e, TaskStatusUpdateEvent)]
    assert any("Using draw" in text for text in progress)
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    assert [part.text for part in parts if part.text] == ["Here it is."]
    files = [(part.raw, part.media_type) for part in parts if part.raw]
    assert files == [(PNG, "image/png"), (b"b", "image/png")]


@pytest.mark.parametrize("db", [None, InMemoryDb()])
async def test_a_team_pauses_for_its_member_and_then_gives_its_own_answer(db: Any) -> None:
    async def delegate(messages: Any) -> AsyncIterator[Any]:
        results = [str(m.content) for m in messages if m.role == "tool"]
        if results:
            yield f"The member says: {results[-1]}"
        else:
            yield call_of("delegate_task_to_member", 9, member_id="shop", task="Buy it")

    payments.clear()
    team = Team(
        name="team",
        members=[shop_agent(call_of("pay", amount=5))],
        model=Llm(answer=delegate),
        db=db,
    )
    async with serving_agent(team) as url, client_of(url) as client:
        paused = await client.send_message("Buy it")
        assert "May the agent call pay?" in str(paused.status.message)
        task = await client.reply(paused, "yes")
    assert str(task.value).startswith("The member says: ")
    assert str(task.value).endswith("paid 5")
    assert payments == [5]


async def test_nothing_is_printed_and_no_telemetry_is_sent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(messages: Any) -> AsyncIterator[Any]:
        yield "Well, "
        raise ValueError("hunter2")

    monkeypatch.delenv(TELEMETRY, raising=False)
    agent = Agent(name="failing", model=Llm(answer=fail))
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("Hello")
    assert task.status.state == "failed"
    assert capsys.readouterr().out == ""
    assert agent.telemetry is False


def test_the_example_is_an_agent() -> None:
    path = Path(__file__).parents[2] / "examples/bridges/agno/agent.py"
    agent = bridge(runpy.run_path(str(path))["agent"])
    assert (agent.name, agent.description) == ("assistant", "Answers questions.")
