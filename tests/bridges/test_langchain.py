"""Runnables of LangChain as skills."""

import runpy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_bridges import File, bridge
from apcore_a2a_bridges.langchain import LangChainAgent
from apcore_a2a_client import InvalidParamsError, Part
from apcore_a2a_remote import as_langchain_tool
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from pydantic import BaseModel

from tests.server.inloop import anyio_backend as anyio_backend

from .acceptance import Acceptance, Script, client_of, serving_agent
from .forecast import forecast_tool
from .langchain_model import MessagesModel, ScriptedModel

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples/bridges/langchain/agent.py"


class TestModel(Acceptance):
    def agent(self, script: Script) -> Any:
        return ScriptedModel(script=script)


class TestChain(Acceptance):
    cancels = False  # LangChain does not always close the generators inside a sequence

    def agent(self, script: Script) -> Any:
        prompt = ChatPromptTemplate([("placeholder", "{history}"), ("human", "{text}")])
        return prompt | ScriptedModel(script=script) | StrOutputParser()


async def answer_to(runnable: Any, message: Any, **options: Any) -> Any:
    """Serve a runnable, send it a message, and return the value of the task."""
    async with serving_agent(runnable, **options) as url, client_of(url) as client:
        return (await client.send_message(message)).value


def test_the_bridge_is_found_by_the_type() -> None:
    assert isinstance(bridge(ScriptedModel(script=Script())), LangChainAgent)


async def test_all_inputs_of_a_prompt_are_required() -> None:
    prompt = ChatPromptTemplate([("human", "{greeting}, {name}!")])
    chain = prompt | ScriptedModel(script=Script())
    async with serving_agent(chain, name="greeter") as url, client_of(url) as client:
        answer = await client.call("greeter", {"greeting": "Hello", "name": "Ada"})
        assert answer == "You said: Hello, Ada!"
        with pytest.raises(InvalidParamsError):
            await client.call("greeter", {"greeting": "Hello"})


async def test_an_input_called_text_does_not_replace_the_others() -> None:
    prompt = ChatPromptTemplate([("human", "{text} in {language}")])
    chain = prompt | ScriptedModel(script=Script())
    async with serving_agent(chain, name="translator") as url, client_of(url) as client:
        answer = await client.call("translator", {"text": "tea", "language": "Tamil"})
    assert answer == "You said: tea in Tamil"


async def test_an_output_that_is_not_text_is_data() -> None:
    async def answer(texts: Any) -> Any:
        yield '{"city": '
        yield '"Bern"}'

    script = Script()
    script.answer_by(answer)
    chain = ScriptedModel(script=script) | JsonOutputParser()
    assert await answer_to(chain, "Where?") == {"city": "Bern"}


async def test_an_output_key_selects_a_member_of_the_output() -> None:
    split = RunnableLambda(lambda text: {"first": text[:1], "rest": text[1:]})
    assert await answer_to(split, "Hello", output_key="rest") == "ello"


async def test_an_input_mapper_makes_the_input() -> None:
    echo = RunnableLambda(lambda inputs: f"got {inputs['question']}")
    options = {"input_mapper": lambda inputs, turn: {"question": inputs["question"].upper()}}
    assert await answer_to(echo, "why", **options) == "got WHY"


async def test_files_reach_the_model() -> None:
    received: list[Any] = []

    class RecordingModel(ScriptedModel):
        async def _astream(self, messages: Any, *args: Any, **options: Any) -> Any:
            received.extend(messages[-1].content)
            async for chunk in super()._astream(messages, *args, **options):
                yield chunk

    model = RecordingModel(script=Script())
    await answer_to(model, ["Look", Part(raw=b"\x89PNG", filename="a.png", media_type="image/png")])
    assert [block["type"] for block in received] == ["text", "image"]
    assert (received[1]["base64"], received[1]["mime_type"]) == ("iVBORw==", "image/png")


async def test_files_of_a_model_are_sent_and_its_thoughts_are_not() -> None:
    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        blocks = [
            {"type": "reasoning", "reasoning": "Hm."},
            {"type": "text", "text": "A dot:"},
            {"type": "image", "base64": "iVBORw==", "mime_type": "image/png"},
            {"type": "file", "url": "https://files.example/a.pdf", "extras": {"filename": "a.pdf"}},
        ]
        return AIMessage(content_blocks=blocks)

    async with serving_agent(MessagesModel(answer=answer)) as url, client_of(url) as client:
        task = await client.send_message("Draw")
    text, picture, link = (part for artifact in task.artifacts for part in artifact.parts)
    assert text.text == "A dot:"
    assert (picture.raw, picture.media_type) == (b"\x89PNG", "image/png")
    assert (link.url, link.filename) == ("https://files.example/a.pdf", "a.pdf")


class Place(BaseModel):
    city: str


@dataclass
class Route:
    stops: tuple[Place, ...]


async def test_an_only_input_that_is_a_model_is_typed() -> None:
    class Trip(BaseModel):
        place: Place

    async def describe(trip: Trip) -> str:
        return f"To {trip['place']['city']}"  # type: ignore[index]  # LangChain passes dicts

    runnable = RunnableLambda(describe).with_types(input_type=Trip)
    assert await answer_to(runnable, {"place": {"city": "Bern"}}) == "To Bern"


class Node(BaseModel):
    name: str
    children: "list[Node]" = []


async def test_an_input_that_contains_itself_is_typed() -> None:
    def count(node: Any) -> int:
        return 1 + sum(map(count, node["children"]))

    runnable = RunnableLambda(count).with_types(input_type=Node)
    tree = {"name": "a", "children": [{"name": "b", "children": []}]}
    async with serving_agent(runnable, name="count") as url, client_of(url) as client:
        assert (await client.send_message(tree)).value == {"result": 2}
        with pytest.raises(InvalidParamsError):
            await client.send_message({"name": "a", "children": [{"name": 1}]})


async def test_files_in_dataclasses_stay_files() -> None:
    @dataclass
    class Drawing:
        title: str
        picture: File

    draw = RunnableLambda(lambda text: Drawing(text, File(b"\x89PNG", media_type="image/png")))
    async with serving_agent(draw) as url, client_of(url) as client:
        task = await client.send_message("A dot")
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    assert [part.raw for part in parts if part.raw] == [b"\x89PNG"]


async def test_a_text_that_part_in_drops_does_not_reach_the_model() -> None:
    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        return AIMessage(f"Got {messages[-1].content!r}")

    model = MessagesModel(answer=answer)
    assert await answer_to(model, "Hello", part_in=lambda part, turn: None) == "Got ''"


async def test_models_and_dataclasses_become_data() -> None:
    route = RunnableLambda(lambda text: {"route": Route((Place(city=text), Place(city="Bern")))})
    assert await answer_to(route, "Rome") == {
        "route": {"stops": [{"city": "Rome"}, {"city": "Bern"}]}
    }


async def test_data_and_links_reach_the_model() -> None:
    received: list[Any] = []

    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        received.extend(messages[-1].content)
        return AIMessage("Seen")

    parts = [Part(data={"n": 1}), Part(url="https://files.example/a.mp3", media_type="audio/mp3")]
    await answer_to(MessagesModel(answer=answer), ["Look", *parts])
    assert [block["type"] for block in received] == ["text", "text", "audio"]
    assert (received[1]["text"], received[2]["url"]) == ('{"n": 1}', "https://files.example/a.mp3")


class Conversation(BaseModel):
    messages: list[Any]
    tone: str


async def test_a_runnable_that_takes_messages_and_more_gets_the_conversation() -> None:
    def describe(inputs: dict[str, Any]) -> str:
        return f"{inputs['tone']} of {len(inputs['messages'])}"

    runnable = RunnableLambda(describe).with_types(input_type=Conversation)
    async with serving_agent(runnable, name="talk") as url, client_of(url) as client:
        first = await client.send_message("calm")
        second = await client.send_message("sad", context_id=first.context_id)
    assert (first.value, second.value) == ("calm of 1", "sad of 3")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # LangChain deprecates its memory
async def test_a_runnable_with_a_memory_gets_only_the_new_message() -> None:
    counts: list[int] = []
    memories: dict[str, InMemoryChatMessageHistory] = {}

    def answer(inputs: dict[str, Any]) -> AIMessage:
        counts.append(len(inputs["messages"]))
        return AIMessage("Noted")

    remembering = RunnableWithMessageHistory(
        RunnableLambda(answer),
        lambda session_id: memories.setdefault(session_id, InMemoryChatMessageHistory()),
        input_messages_key="messages",
    )
    async with serving_agent(remembering, name="memory") as url, client_of(url) as client:
        first = await client.send_message("calm")
        await client.send_message("sad", context_id=first.context_id)
    assert counts == [1, 3]


async def test_the_example_runs() -> None:
    chain = runpy.run_path(str(EXAMPLE))["chain"]
    assert await answer_to(chain, "Hello") == "Hello! I am a chain."


async def test_a_module_is_a_tool_of_langchain() -> None:
    tool = forecast_tool(as_langchain_tool)
    assert await tool.ainvoke({"city": "Bonn"}) == {"city": "Bonn", "by": "ada"}
    call = {"name": tool.name, "args": {"city": "Bonn"}, "id": "1", "type": "tool_call"}
    message = await tool.ainvoke(call)
    assert message.tool_call_id == "1"
    assert "Bonn" in message.content
