"""Graphs of LangGraph and agents of LangChain's `create_agent` as skills."""

import inspect
import runpy
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from apcore_a2a_bridges import File, Progress, Turn, bridge
from apcore_a2a_bridges.langgraph import CheckpointError, part_out
from apcore_a2a_client import A2AServerError, Part, Task, TaskStatusUpdateEvent
from apcore_a2a_core.schema import resolved
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config, get_stream_writer
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import get_runtime
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from tests.facade.processes import process
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.principals import HeaderAuth

from .acceptance import Acceptance, Script, client_of, serving_agent, task_of
from .langchain_model import MessagesModel, ScriptedModel

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples/bridges/langgraph/agent.py"


def graph_of(state: Any, checkpointer: Any = None, /, **nodes: Any) -> Any:
    """Return a graph whose nodes run one after the other."""
    graph = StateGraph(state)
    previous = START
    for name, node in nodes.items():
        graph = graph.add_node(name, node).add_edge(previous, name)
        previous = name
    return graph.compile(checkpointer)


def talking_graph(script: Script, checkpointer: Any = None) -> Any:
    """Return a graph that lets a model answer."""
    return graph_of(MessagesState, checkpointer, talk=node_of(script))


def node_of(script: Script) -> Any:
    """Return a node that lets a model answer."""
    model = ScriptedModel(script=script)

    async def talk(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return talk


def text_of(message: Any) -> str:
    """Return the texts of a message of A2A."""
    return "".join(part.text or "" for part in message.parts)


class TestGraph(Acceptance):
    """A graph without a checkpointer gets the messages of the conversation."""

    def agent(self, script: Script) -> Any:
        return talking_graph(script)


class TestGraphWithMemory(Acceptance):
    """A graph with a checkpointer remembers the conversation itself."""

    def agent(self, script: Script) -> Any:
        return talking_graph(script, InMemorySaver())


class TestCreateAgent(Acceptance):
    """An agent of LangChain is a graph."""

    def agent(self, script: Script) -> Any:
        return create_agent(ScriptedModel(script=script), name="assistant")


class Day(TypedDict):
    city: str
    day: Annotated[list[str], lambda old, new: old + new]


class Order(TypedDict):
    cups: int
    tea: str


class Price(TypedDict):
    cents: int


def ask_day_and_time(state: Day) -> Any:
    day = interrupt("For which day?")
    hour = interrupt({"question": f"At what time on {day}?", "hours": [7, 8]})
    return {"day": [str(day), str(hour["hour"])]}


async def answer_to(agent: Any, message: Any = "Hello", **options: Any) -> Task:
    """Serve an agent, send it a message, and return the task."""
    async with serving_agent(agent, **options) as url, client_of(url) as client:
        return await client.send_message(message)


async def test_a_graph_asks_twice_and_gets_answers_in_text_and_data() -> None:
    graph = graph_of(Day, InMemorySaver(), book=ask_day_and_time)
    async with serving_agent(graph) as url, client_of(url) as client:
        task = await client.send_message({"city": "Rome", "day": []})
        assert (task.status.state, text_of(task.status.message)) == (
            "input-required",
            "For which day?",
        )
        task = await client.reply(task, "Friday")
        assert text_of(task.status.message) == "At what time on Friday?"
        assert "hours" in str(task.status)
        task = await client.reply(task, {"hour": 7})
    assert task.value == {"city": "Rome", "day": ["Friday", "7"]}


async def test_parallel_interrupts_are_asked_one_after_the_other() -> None:
    class Answers(TypedDict):
        text: str
        got: Annotated[list[str], lambda old, new: old + new]

    def asking_node(question: str) -> Callable[[Any], Any]:
        return lambda state: {"got": [f"{question} {interrupt(question)}"]}

    graph = StateGraph(Answers)
    for name in ("one", "two"):
        graph = graph.add_node(name, asking_node(name)).add_edge(START, name)
    compiled = graph.compile(InMemorySaver())
    async with serving_agent(compiled) as url, client_of(url) as client:
        task = await client.send_message({"text": "Hi", "got": []})
        first = text_of(task.status.message)
        task = await client.reply(task, f"A-{first}")
        second = text_of(task.status.message)
        task = await client.reply(task, f"A-{second}")
    assert {first, second} == {"one", "two"}
    assert sorted(task.value["got"]) == ["one A-one", "two A-two"]


async def test_an_interrupt_in_a_subgraph_is_asked_and_answered() -> None:
    inner = graph_of(Day, None, book=ask_day_and_time)
    graph = graph_of(Day, InMemorySaver(), inner=inner)
    async with serving_agent(graph) as url, client_of(url) as client:
        task = await client.send_message({"city": "Rome", "day": []})
        task = await client.reply(task, "Friday")
        task = await client.reply(task, {"hour": 7})
    assert task.value["day"][-2:] == ["Friday", "7"]


async def test_an_interrupt_without_a_checkpointer_fails_the_task_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = await answer_to(graph_of(Day, None, book=ask_day_and_time), {"city": "Rome", "day": []})
    assert task.status.state == "failed"
    assert "no checkpointer" in caplog.text


async def test_an_answer_to_a_lost_interrupt_fails_the_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saver = InMemorySaver()
    graph = graph_of(Day, saver, book=ask_day_and_time)
    async with serving_agent(graph) as url, client_of(url) as client:
        task = await client.send_message({"city": "Rome", "day": []})
        saver.storage.clear()
        task = await client.reply(task, "Friday")
    assert task.status.state == "failed"
    assert "no longer has the interrupt" in caplog.text


async def test_a_new_message_after_a_canceled_question_starts_a_new_run() -> None:
    requests: list[str] = []

    async def talk(state: MessagesState) -> Any:
        requests.append(state["messages"][-1].text)
        return {"messages": [AIMessage(f"You like {interrupt('What do you like?')}")]}

    graph = graph_of(MessagesState, InMemorySaver(), talk=talk)
    async with serving_agent(graph) as url, client_of(url) as client:
        first = await client.send_message("one")
        await client.cancel_task(first.id)
        second = await client.send_message("two", context_id=first.context_id)
        assert text_of(second.status.message) == "What do you like?"
        second = await client.reply(second, "tea")
    assert requests == ["one", "two", "two"]  # the node runs again after the reply
    assert second.value == "You like tea"


SERVER = """
import sys
from pathlib import Path
from apcore_a2a_bridges import serve_agent
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

class State(TypedDict):
    city: str
    day: str

def count(state):
    with Path("counted").open("a") as file:
        file.write(state["city"] + " ")

def ask(state):
    return {"day": f"{interrupt('For which day?')} in {state['city']}"}

graph = StateGraph(State).add_node(count).add_node(ask)
graph = graph.add_edge(START, "count").add_edge("count", "ask").compile()

def open_checkpointer():
    return AsyncSqliteSaver.from_conn_string("threads.sqlite")

serve_agent(graph, port=0, task_store="sqlite:///tasks.sqlite", checkpointer=open_checkpointer)
"""


@pytest.mark.process
def test_another_process_resumes_the_graph_after_a_kill(tmp_path: Path) -> None:
    from apcore_a2a_client import SyncA2AClient

    command = [sys.executable, "-c", SERVER]
    with process(command, tmp_path) as first, SyncA2AClient(first.url) as client:
        task = client.send_message({"city": "Rome", "day": ""})
        assert text_of(task.status.message) == "For which day?"
        first.kill()
    with process(command, tmp_path) as second, SyncA2AClient(second.url) as client:
        task = client.reply(client.get_task(task.id), "Friday")
    assert task.value == {"city": "Rome", "day": "Friday in Rome"}
    assert (tmp_path / "counted").read_text() == "Rome "  # the node `count` does not run again


@tool  # type: ignore[untyped-decorator]  # not installed here
def wipe(disk: str) -> str:
    """Wipe a disk."""
    wiped.append(disk)
    return f"wiped {disk}"


wiped: list[str] = []


def wipe_then_report(messages: Sequence[BaseMessage]) -> AIMessage:
    """Answer a message with the call of a tool, and the result of the call with a text."""
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AIMessage(f"Done: {last.content}")
    calls: Any = [{"name": "wipe", "args": {"disk": last.text}, "id": f"call-{len(messages)}"}]
    return AIMessage("Let me see.", tool_calls=calls)


has_interrupt_modes = "interrupt_mode" in inspect.signature(HumanInTheLoopMiddleware).parameters
MODES = ["batched", *(["per_call"] if has_interrupt_modes else [])]  # older releases have one mode


def careful_agent(mode: Any = "batched", decisions: Any = True) -> Any:
    """Return an agent whose tool needs a decision."""
    modes = {} if mode == "batched" else {"interrupt_mode": mode}
    middleware = HumanInTheLoopMiddleware({"wipe": decisions}, **modes)
    model = MessagesModel(answer=wipe_then_report)
    return create_agent(model, [wipe], middleware=[middleware], checkpointer=InMemorySaver())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("answers", "is_run"), [(["yes"], True), (["no"], False), (["perhaps", "yes"], True)]
)
async def test_a_tool_runs_only_if_its_user_says_yes(
    mode: str, answers: Sequence[str], is_run: bool
) -> None:
    wiped.clear()
    async with serving_agent(careful_agent(mode)) as url, client_of(url) as client:
        task = await client.send_message("sda")
        for answer in answers:
            assert task.status.state == "input-required"
            assert "sda" in str(task.status)
            assert wiped == []
            task = await client.reply(task, answer)
    assert task.status.state == "completed"
    assert wiped == (["sda"] if is_run else [])
    assert ("Done: wiped sda" if is_run else "User rejected") in task.value


@pytest.mark.parametrize("mode", MODES)
async def test_the_users_answer_is_the_result_of_a_tool_call(mode: str) -> None:
    agent = careful_agent(mode, {"allowed_decisions": ["respond"]})
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("sda")
        task = await client.reply(task, "it was wiped by hand")
    assert "Done: it was wiped by hand" in task.value


async def test_a_decision_other_than_yes_or_no_is_given_as_data() -> None:
    wiped.clear()
    agent = careful_agent("batched", {"allowed_decisions": ["edit", "reject"]})
    edit = {"type": "edit", "edited_action": {"name": "wipe", "args": {"disk": "sdb"}}}
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("sda")
        task = await client.reply(task, {"decisions": [edit]})
    assert wiped == ["sdb"]


async def test_a_canceled_approval_leaves_no_call_of_a_tool_without_a_result() -> None:
    received: list[list[str]] = []

    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        received.append([message.type for message in messages])
        return wipe_then_report(messages) if len(received) == 1 else AIMessage("Fine")

    middleware = HumanInTheLoopMiddleware({"wipe": True})
    model = MessagesModel(answer=answer)
    agent = create_agent(model, [wipe], middleware=[middleware], checkpointer=InMemorySaver())
    async with serving_agent(agent) as url, client_of(url) as client:
        task = await client.send_message("sda")
        await client.cancel_task(task.id)
        task = await client.send_message("Never mind", context_id=task.context_id)
    assert task.value == "Fine"
    assert received[-1] == ["human", "ai", "tool", "human"]


async def test_a_typed_graph_has_typed_inputs_and_output() -> None:
    calls: list[Any] = []

    class Both(Order, Price):
        secret: str

    def price(state: Order) -> Any:
        calls.append(state)
        return {"cents": state["cups"] * 250, "secret": "margin"}

    graph = StateGraph(Both, input_schema=Order, output_schema=Price)
    compiled = graph.add_node(price).add_edge(START, "price").compile()
    schema = bridge(compiled).input_schema.model_json_schema()
    assert set(resolved(schema, schema)["required"]) == {"cups", "tea"}
    async with serving_agent(compiled) as url, client_of(url) as client:
        assert (await client.send_message({"cups": 2, "tea": "green"})).value == {"cents": 500}
        with pytest.raises(A2AServerError):
            await client.send_message({"cups": "two", "tea": "green"})
        assert len((await client.list_tasks()).tasks) == 1
    assert len(calls) == 1


async def test_a_state_may_be_a_typed_dict_of_typing_or_a_model() -> None:
    class OldOrder(typing.TypedDict):
        cups: int

    class OrderModel(BaseModel):
        cups: int

    for state in (OldOrder, OrderModel):

        def double(order: Any) -> Any:
            return {"cups": 2 * (order["cups"] if isinstance(order, dict) else order.cups)}

        graph = graph_of(state, None, double=double)
        async with serving_agent(graph) as url, client_of(url) as client:
            assert (await client.send_message({"cups": 2})).value == {"cups": 4}
            with pytest.raises(A2AServerError):
                await client.send_message({"cups": "two"})


async def test_an_entrypoint_is_an_agent() -> None:
    @entrypoint(checkpointer=InMemorySaver())  # type: ignore[untyped-decorator]  # not installed here
    async def greet(text: str) -> str:
        return f"{interrupt('Who are you?')}: {text}"

    @entrypoint()  # type: ignore[untyped-decorator]  # not installed here
    async def price(order: Order) -> Price:
        return {"cents": order["cups"] * 250}

    async with serving_agent(greet) as url, client_of(url) as client:
        task = await client.send_message("Hello")
        assert (await client.reply(task, "Ada")).value == "Ada: Hello"
    async with serving_agent(price) as url, client_of(url) as client:
        assert (await client.send_message({"cups": 2, "tea": "green"})).value == {"cents": 500}


async def test_a_typed_graph_with_one_text_input_takes_the_text_of_the_user() -> None:
    class Topic(TypedDict):
        topic: str

    def shout(state: Topic) -> Any:
        return {"topic": state["topic"].upper()}

    graph = graph_of(Topic, None, shout=shout)
    assert (await answer_to(graph, "tea")).value == {"topic": "TEA"}
    assert (await answer_to(graph, "tea", output_key="topic")).value == "TEA"
    assert (await answer_to(graph, "tea", input_key="topic", output_key="topic")).value == "TEA"
    task = await answer_to(graph, "tea", input_mapper=lambda i, turn: {"topic": "x"})
    assert task.value == {"topic": "X"}


async def test_only_messages_of_the_named_nodes_are_sent_and_each_only_once() -> None:
    script = Script()
    model = ScriptedModel(script=script)

    async def plan(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke([HumanMessage("plan")])]}

    async def write(state: MessagesState) -> Any:
        answer = await model.ainvoke([HumanMessage("text")])
        return {"messages": [AIMessage(answer.content)]}  # a copy, with another id

    inner = graph_of(MessagesState, None, write=write)
    graph = graph_of(MessagesState, None, plan=plan, writer=inner)
    assert (await answer_to(graph)).value == "You said: plan\n\nYou said: text"
    assert (await answer_to(graph, nodes=["writer"])).value == "You said: text"
    assert (await answer_to(graph, nodes=["plan"])).value == "You said: plan"


async def test_a_message_whose_stream_begins_empty_begins_a_new_paragraph() -> None:
    async def plan(texts: Any) -> Any:
        for piece in ("", "First"):
            yield piece

    script = Script()
    script.answer_by(plan)
    graph = graph_of(MessagesState, None, plan=node_of(script), write=node_of(script))
    assert (await answer_to(graph)).value == "First\n\nFirst"


@pytest.mark.parametrize("message", [("ai", "Hello"), {"role": "assistant", "content": "Hello"}])
async def test_messages_without_a_reducer_are_sent_as_the_node_returns_them(message: Any) -> None:
    class State(TypedDict):
        messages: list[Any]

    graph = graph_of(State, None, talk=lambda state: {"messages": [message]})
    assert (await answer_to(graph)).value == "Hello"


async def test_messages_that_are_tuples_are_sent_at_the_end() -> None:
    graph = graph_of(MessagesState, None, talk=lambda state: {"messages": [("ai", "Hello")]})
    assert (await answer_to(graph)).value == "Hello"


PNG, CSV, MP3 = b"\x89PNG\r\n\x1a\n" + bytes(range(256)), b"a,b\n1,2\n", b"ID3" + bytes(40)


async def test_files_are_received_and_sent_with_their_media_types() -> None:
    received: list[Any] = []

    async def copy(state: MessagesState) -> Any:
        content = state["messages"][-1].content
        received.extend(content)
        return {"messages": [AIMessage(content[1:])]}

    files = {"a.png": (PNG, "image/png"), "b.csv": (CSV, "text/csv"), "c.mp3": (MP3, "audio/mpeg")}
    parts = [Part(raw=data, filename=name, media_type=kind) for name, (data, kind) in files.items()]
    url = Part(url="https://example.com/d.pdf", media_type="application/pdf")
    graph = graph_of(MessagesState, InMemorySaver(), copy=copy)
    task = await answer_to(graph, [Part(text="Look"), *parts, url])
    (artifact,) = task.artifacts
    sent = {part.filename: (part.raw, part.media_type) for part in artifact.parts if part.raw}
    assert sent == files
    assert [p.url for p in artifact.parts if p.url] == ["https://example.com/d.pdf"]
    assert [block["type"] for block in received] == ["text", "image", "file", "audio", "file"]


async def test_the_custom_stream_is_progress_and_may_have_files() -> None:
    async def work(state: MessagesState) -> Any:
        write = get_stream_writer()
        write("Searching")
        write({"status": "Found", "count": 3})
        write(File(PNG, name="a.png"))
        return {"messages": [AIMessage("Done")]}

    graph = graph_of(MessagesState, None, work=work)
    async with serving_agent(graph) as url, client_of(url) as client:
        events = [event async for event in client.stream_message("Hello")]
        task = await client.get_task(task_of(events[0]).id)
    updates = [
        e.status for e in events if isinstance(e, TaskStatusUpdateEvent) and e.status.message
    ]
    assert [text_of(status.message) for status in updates] == ["Searching", "Found"]
    assert [bool(part.raw) for part in task.artifacts[0].parts] == [True, False]
    assert "Searching" not in str(task.history)


async def test_a_custom_conversion_of_events_replaces_the_bridges_own() -> None:
    async def work(state: MessagesState) -> Any:
        get_stream_writer()("token")
        return {"messages": [AIMessage("Done")]}

    def convert(event: Any, turn: Turn) -> Any:
        mode, item = event
        if mode == "custom":
            return f"[{item}] "
        return Progress(next(iter(item))) if mode == "updates" else part_out(event, turn)

    graph = graph_of(MessagesState, None, work=work)
    assert (await answer_to(graph, part_out=convert)).value == "[token] Done"


async def test_a_structured_response_is_data() -> None:
    class Weather(BaseModel):
        degrees: int

    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        calls: Any = [{"name": "Weather", "args": {"degrees": 21}, "id": "1"}]
        return AIMessage("", tool_calls=calls)

    agent = create_agent(MessagesModel(answer=answer), response_format=ToolStrategy(Weather))
    assert (await answer_to(agent)).value == {"degrees": 21}
    assert (await answer_to(agent, output_key="structured_response")).value == {"degrees": 21}


async def test_config_and_context_come_from_the_turn() -> None:
    class User(TypedDict):
        name: str

    async def describe_turn(state: MessagesState) -> Any:
        user: Any = get_runtime(User).context
        configurable = get_config()["configurable"]
        text = f"{user['name']} {configurable['lang']} {bool(configurable['thread_id'])}"
        return {"messages": [AIMessage(text)]}

    graph = StateGraph(MessagesState, context_schema=User).add_node("tell", describe_turn)
    compiled = graph.add_edge(START, "tell").compile()
    options: Any = {
        "auth": HeaderAuth(),
        "run_config": lambda turn: {"configurable": {"lang": "it"}},
        "context": lambda turn: {"name": turn.principal},
    }
    async with serving_agent(compiled, **options) as url, client_of(url, "ada") as client:
        answer = (await client.send_message("Hi")).value
    assert answer.endswith("ada it True")


async def test_a_context_may_be_empty() -> None:
    class User(BaseModel):
        name: str = "Ada"

    async def greet(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"Hello, {get_runtime(User).context.name}")]}

    graph = StateGraph(MessagesState, context_schema=User).add_node(greet)
    compiled = graph.add_edge(START, "greet").compile()
    assert (await answer_to(compiled, context={})).value == "Hello, Ada"


async def test_a_graph_runs_again_after_its_checkpointer_was_closed() -> None:
    opened: list[Any] = []

    def saver() -> Any:
        opened.append(InMemorySaver())
        return opened[-1]

    agent = bridge(talking_graph(Script()), checkpointer=saver)
    for _ in range(2):
        assert (await answer_to(agent)).value == "You said: Hello"
    assert len(opened) == 2


def test_the_error_of_a_lost_checkpoint_has_a_code() -> None:
    assert CheckpointError("It is lost").code == "CHECKPOINT_MISSING"


async def test_the_example_runs() -> None:
    graph = runpy.run_path(str(EXAMPLE))["graph"]
    assert bridge(graph).module_id == "assistant"
    assert (await answer_to(graph)).value == "Hello! I am a graph."
