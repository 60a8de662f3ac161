"""The base class of all bridges: inputs, outputs and callbacks of an agent."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from apcore import Context, Executor, Registry
from apcore_a2a_bridges import Agent, File, Progress, Turn, Usage, bridge
from apcore_a2a_bridges.agent import text_model
from apcore_a2a_client import A2AServerError, InputRequired, Part, Task, TaskFailedError
from pydantic import BaseModel

from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.principals import HeaderAuth
from tests.serving import PATIENCE

from .acceptance import client_of, serving_agent, task_of

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


class AnsweringAgent(Agent):
    """Answers with the values that a function of the turn yields."""

    def __init__(self, source: Any, **options: Any) -> None:
        super().__init__(**options)
        self._source = source

    def run(self, turn: Turn) -> AsyncIterator[Any]:
        chunks: AsyncIterator[Any] = self._source(turn)
        return chunks


async def ask(agent: Any, message: Any = "Hello", **options: Any) -> Task:
    """Serve an agent, send it a message, and return the task."""
    async with serving_agent(agent, **options) as url, client_of(url) as client:
        return await client.send_message(message)


async def run_in_program(agent: Agent, inputs: dict[str, Any]) -> Any:
    """Call an agent as a module of a program without A2A."""
    registry = Registry()
    registry.register("agent", agent)
    return await Executor(registry).call_async("agent", inputs)


async def test_the_answer_has_all_chunks_that_the_agent_yields() -> None:
    async def talk(turn: Turn) -> AsyncIterator[Any]:
        yield "Here it is: "
        yield {"n": 2**70}
        yield File(PNG, name="dot.png")
        yield File(url="https://example.com/table.csv", name="table.csv")
        yield turn.text

    task = await ask(AnsweringAgent(talk))
    (artifact,) = task.artifacts
    text, data, picture, link = artifact.parts
    assert text.text == "Here it is: Hello"
    assert data.data == {"n": 2**70}
    assert (picture.raw, picture.filename, picture.media_type) == (PNG, "dot.png", "image/png")
    assert (link.url, link.media_type) == ("https://example.com/table.csv", "text/csv")


async def test_progress_is_in_streams_and_not_in_the_history() -> None:
    async def work(turn: Turn) -> AsyncIterator[Any]:
        yield Progress("Reading", {"pages": 3})
        yield Usage(5, 1)
        yield "Done"
        yield Usage(1, 1)

    async with serving_agent(AnsweringAgent(work)) as url, client_of(url) as client:
        events = [event async for event in client.stream_message("Go")]
        task = await client.get_task(task_of(events[0]).id)
    assert "Reading" in str(events)
    assert "Reading" not in str(task)
    assert task.metadata["usage"] == {"inputTokens": 6, "outputTokens": 2}
    assert task.value == "Done"


async def test_files_of_a_message_reach_the_agent_as_they_were_sent() -> None:
    received_files: list[File] = []

    async def count_files(turn: Turn) -> AsyncIterator[Any]:
        received_files.extend(turn.files)
        yield str(len(turn.files))

    parts = [
        Part(raw=PNG, filename="dot.png", media_type="image/png"),
        Part(url="https://example.com/a.mp3", filename="a.mp3", media_type="audio/mpeg"),
    ]
    async with serving_agent(AnsweringAgent(count_files)) as url, client_of(url) as client:
        assert (await client.send_message([Part(text="Look"), *parts])).value == "2"
        assert (await client.send_message(parts)).value == "2"
    first, second = received_files[:2]
    assert (first.data, first.name, first.media_type) == (PNG, "dot.png", "image/png")
    assert (second.url, second.media_type) == ("https://example.com/a.mp3", "audio/mpeg")


async def test_each_question_of_a_run_is_answered_by_text_or_data() -> None:
    async def book(turn: Turn) -> AsyncIterator[Any]:
        answers = [*(turn.state or []), *([] if turn.answer is None else [turn.answer])]
        if not answers:
            turn.ask("For which day?", choices=["Friday", "Saturday"], state=answers)
        if len(answers) == 1:
            turn.ask("For whom?", {"fields": ["name"]}, state=answers)
        yield {"answers": answers}

    async with serving_agent(AnsweringAgent(book)) as url, client_of(url) as client:
        task = await client.send_message("A table")
        assert task.status.state == "input-required"
        task = await client.reply(task, "2")
        assert "For whom?" in str(task.status.message)
        assert "Friday" not in str(task.status.message)
        task = await client.reply(task, {"name": "Ada"})
    assert task.value == {"answers": ["Saturday", {"name": "Ada"}]}


@pytest.mark.parametrize(("answer", "expected"), [("yes", "wiped"), ("no", "kept")])
async def test_yes_or_no_ends_an_approval(answer: str, expected: str) -> None:
    abandoned_states: list[Any] = []

    class DiskAgent(Agent):
        """Wipes a disk."""

        async def run(self, turn: Turn) -> AsyncIterator[Any]:
            if turn.approved is None:
                turn.approve("Wipe the disk?", {"disk": "a"}, state={"step": 1})
            yield "wiped" if turn.approved else "kept"

        async def abandoned(self, turn: Turn) -> None:
            abandoned_states.append(turn.state)

    async with serving_agent(DiskAgent()) as url, client_of(url) as client:
        task = await client.send_message("Wipe")
        assert (task.status.state, "disk" in str(task.status)) == ("input-required", True)
        task = await client.reply(task, answer)
    assert task.value == expected
    assert not abandoned_states


async def test_an_agent_is_notified_once_of_a_canceled_question() -> None:
    abandoned_turns: asyncio.Queue[Any] = asyncio.Queue()

    class QuestionAgent(Agent):
        """Asks forever."""

        async def run(self, turn: Turn) -> AsyncIterator[Any]:
            turn.ask("Well?", state={"remote": 7})
            yield ""

        async def abandoned(self, turn: Turn) -> None:
            abandoned_turns.put_nowait((turn.state, turn.principal))

    async with (
        serving_agent(QuestionAgent(), auth=HeaderAuth()) as url,
        client_of(url, "ada") as client,
    ):
        task = await client.send_message("Hi")
        await client.cancel_task(task.id)
        state, principal = await asyncio.wait_for(abandoned_turns.get(), PATIENCE)
        assert abandoned_turns.empty()
    assert state == {"remote": 7}
    assert principal.endswith("ada")


async def test_sessions_belong_to_a_principal_and_a_conversation() -> None:
    sessions: list[str] = []

    async def record_session(turn: Turn) -> AsyncIterator[Any]:
        sessions.append(turn.session_id)
        yield "ok"

    async with serving_agent(AnsweringAgent(record_session), auth=HeaderAuth()) as url:
        for principal in ("ada", "eve", "ada"):
            async with client_of(url, principal) as client:
                await client.send_message("Hi", context_id="shared")
    assert sessions[0] == sessions[2] != sessions[1]
    assert all(session.endswith("/shared") for session in sessions)


async def test_the_session_of_an_anonymous_caller_is_not_that_of_a_principal() -> None:
    sessions: list[str] = []

    async def record_session(turn: Turn) -> AsyncIterator[Any]:
        sessions.append(turn.session_id)
        yield "ok"

    async with (
        serving_agent(AnsweringAgent(record_session), auth=HeaderAuth()) as url,
        client_of(url, "ada") as client,
    ):
        await client.send_message("Hi", context_id="c")
    async with serving_agent(AnsweringAgent(record_session)) as url, client_of(url) as client:
        await client.send_message("Hi", context_id=sessions[0])
    assert sessions[1] != sessions[0]


async def test_an_input_mapper_replaces_the_input_and_its_error_fails_the_task() -> None:
    async def say(turn: Turn) -> AsyncIterator[Any]:
        yield str(await agent.mapped_input(turn))

    def mapper(inputs: dict[str, Any], turn: Turn) -> Any:
        if inputs["text"] == "bad":
            raise KeyError("no topic")
        return {"topic": inputs["text"], "context": turn.context_id != ""}

    agent = AnsweringAgent(say, input_mapper=mapper)
    async with serving_agent(agent) as url, client_of(url) as client:
        assert (await client.send_message("tea")).value == "{'topic': 'tea', 'context': True}"
        assert (await client.send_message("bad")).status.state == "failed"


async def test_an_input_key_names_the_member_for_text() -> None:
    async def say(turn: Turn) -> AsyncIterator[Any]:
        yield {"inputs": turn.inputs, "text": turn.text}

    async with (
        serving_agent(AnsweringAgent(say, input_key="topic")) as url,
        client_of(url) as client,
    ):
        assert (await client.send_message("tea")).artifacts[0].parts[1].data == {
            "inputs": {"topic": "tea"}
        }
        task = await client.send_message({"topic": "tea", "tone": "dry"})
        assert task.artifacts[0].parts[1].data["inputs"] == {"topic": "tea", "tone": "dry"}
        with pytest.raises(A2AServerError):
            await client.send_message({"tone": "dry"})


async def test_callbacks_see_and_change_a_turn() -> None:
    log: list[Any] = []

    async def talk(turn: Turn) -> AsyncIterator[Any]:
        yield turn.text
        yield "secret"
        yield "end"

    def before(turn: Turn) -> None:
        turn.text = turn.text.upper()

    def on_event(turn: Turn, event: Any, chunk: Any) -> Any:
        return None if chunk == "secret" else f"<{chunk}>"

    async def after(turn: Turn, output: Any, error: Any) -> None:
        turn.metadata["length"] = len(output["text"])
        log.append((output, error))

    agent = AnsweringAgent(talk, before=before, on_event=on_event, after=after)
    task = await ask(agent)
    assert task.value == "<HELLO><end>"
    assert task.metadata["length"] == 12
    assert log == [({"text": "<HELLO><end>"}, None)]


@pytest.mark.parametrize("callback", ["before", "on_event"])
async def test_a_callback_that_raises_fails_the_task(callback: str) -> None:
    errors: list[Any] = []

    async def talk(turn: Turn) -> AsyncIterator[Any]:
        yield "Hi"

    def refuse(*_: Any) -> None:
        raise PermissionError("not today")

    def after(turn: Turn, output: Any, error: Any) -> None:
        errors.append((output, type(error)))

    task = await ask(AnsweringAgent(talk, after=after, **{callback: refuse}))
    assert task.status.state == "failed"
    assert "not today" not in str(task)
    assert errors == [(None, PermissionError)]


async def test_part_converters_change_or_drop_parts_of_messages_and_of_answers() -> None:
    async def talk(turn: Turn) -> AsyncIterator[Any]:
        yield await agent.contents(turn)

    def part_in(part: Any, turn: Turn) -> Any:
        return None if "data" in part else part

    def part_out(event: Any, turn: Turn) -> Any:
        return [f"{len(event)} part: ", None, event[0]["text"]]

    agent = AnsweringAgent(talk, part_in=part_in, part_out=part_out)
    assert (await ask(agent, [Part(text="Hi"), Part(data={"n": 1})])).value == "1 part: Hi"


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"input_mapper": lambda inputs, turn: f"Say {inputs['text']}"}, "Say Hi"),
        ({"input_mapper": lambda inputs, turn: {"said": inputs["text"]}}, '{"said": "Hi"}'),
    ],
)
async def test_the_mapped_inputs_are_the_first_part(options: Any, first: str) -> None:
    async def talk(turn: Turn) -> AsyncIterator[Any]:
        yield {"parts": await agent.contents(turn)}

    async def part_in(part: Any, turn: Turn) -> Any:  # callbacks may be asynchronous
        return part.get("text", part.get("data"))

    agent = AnsweringAgent(talk, part_in=part_in, **options)
    task = await ask(agent, [Part(text="Hi"), Part(data={"n": 1})])
    assert task.value["parts"] == [first, {"n": 1}]


async def test_approval_and_time_limit_are_options() -> None:
    async def talk(turn: Turn) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield ""

    agent = AnsweringAgent(talk, approval=True, timeout=0.2)
    async with serving_agent(agent) as url, client_of(url) as client:
        with pytest.raises(InputRequired) as paused:
            await client.call("answeringagent", "Go")
        task = await client.reply(paused.value.task, "yes")
    assert task.status.state == "failed"
    assert "time" in str(task.status.message).lower()
    with pytest.raises(ValueError, match="more than 0"):
        AnsweringAgent(talk, timeout=0)


async def test_a_typed_agent_refuses_inputs_of_other_types() -> None:
    calls: list[Any] = []

    class Order(BaseModel):
        item: str
        pieces: int

    class PriceAgent(Agent):
        """Prices an order."""

        input_schema = Order
        output_schema = Order

        async def run(self, turn: Turn) -> AsyncIterator[Any]:
            calls.append(turn.inputs)
            yield turn.inputs

    async with serving_agent(PriceAgent()) as url, client_of(url) as client:
        (skill,) = (await client.agent_card).skills
        assert skill.input_modes == ("application/json",)
        task = await client.send_message({"item": "cup", "pieces": 2})
        assert task.value == {"item": "cup", "pieces": 2}
        with pytest.raises(A2AServerError):
            await client.send_message({"item": "cup", "pieces": "two"})
    assert len(calls) == 1


async def test_a_typed_agent_gets_the_inputs_beside_its_text_too() -> None:
    class Note(BaseModel):
        text: str
        copies: int

    class MappingAgent(Agent):
        """Returns the input of its framework."""

        input_schema = Note

        async def run(self, turn: Turn) -> AsyncIterator[Any]:
            yield {"text": str(await self.mapped_input(turn))}

    async with serving_agent(MappingAgent()) as url, client_of(url) as client:
        task = await client.send_message({"text": "tea", "copies": 2})
    assert task.value == "{'text': 'tea', 'copies': 2}"


@pytest.mark.parametrize("name", ["riddle", "text"])
@pytest.mark.parametrize("as_json_schema", [False, True])
async def test_an_input_called_answer_is_kept_if_the_schema_declares_it(
    as_json_schema: bool, name: str
) -> None:
    guess_model = text_model(name, "answer")

    class Judge(Agent):
        """Judges a guess."""

        input_schema: Any = guess_model.model_json_schema() if as_json_schema else guess_model
        output_schema = guess_model

        async def run(self, turn: Turn) -> AsyncIterator[Any]:
            yield await self.mapped_input(turn)

    guess = {name: "What has keys?", "answer": "a piano"}
    assert (await ask(Judge(), guess)).value == guess


async def test_an_agent_runs_in_a_program_without_a2a() -> None:
    turns: list[Any] = []

    async def talk(turn: Turn) -> AsyncIterator[Any]:
        turns.append((turn.task_id, turn.history, turn.files, turn.answer, turn.principal))
        yield Progress("Working")
        yield Usage(1, 1)
        yield f"{turn.text}!"

    output = await run_in_program(AnsweringAgent(talk), {"text": "Hi"})
    assert output == {"text": "Hi!"}
    ((task_id, history, files, answer, principal),) = turns
    assert task_id
    assert (history, files, answer, principal) == ((), [], None, "")


async def test_progress_is_not_a_chunk_in_a_program_without_a2a() -> None:
    async def talk(turn: Turn) -> AsyncIterator[Any]:
        yield Progress("Working")
        yield "Hi"

    registry = Registry()
    registry.register("agent", AnsweringAgent(talk))
    context: Context[Any] = Context.create()
    chunks = [c async for c in Executor(registry).stream("agent", {"text": "x"}, context)]
    assert chunks == [{"text": "Hi"}]


async def test_an_agent_is_closed_when_its_module_is_unregistered_or_its_server_stops() -> None:
    closed = asyncio.Event()

    class ConnectedAgent(Agent):
        """Holds a connection."""

        async def run(self, turn: Turn) -> AsyncIterator[Any]:
            yield ""

        async def close(self) -> None:
            closed.set()

    registry = Registry()
    registry.register("agent", ConnectedAgent())
    registry.unregister("agent")
    await asyncio.wait_for(closed.wait(), PATIENCE)
    closed.clear()
    async with serving_agent(ConnectedAgent()):
        pass
    assert closed.is_set()


async def test_an_agent_may_be_closed_by_a_plain_function() -> None:
    closings: list[str] = []

    class PlainAgent(Agent):
        """Holds a file."""

        def close(self) -> Any:
            closings.append("closed")

    await asyncio.to_thread(PlainAgent().on_unload)
    PlainAgent().on_unload()
    await asyncio.sleep(0)
    assert closings == ["closed"] * 2


async def test_a_run_may_return_instead_of_yielding() -> None:
    class ReturningAgent(Agent):
        """Answers at once."""

        async def run(self, turn: Turn) -> Any:  # type: ignore[override]  # a coroutine
            return turn.text[::-1]

    assert (await ask(ReturningAgent())).value == "olleH"


async def test_the_name_and_examples_of_an_agent_are_on_its_card() -> None:
    async def talk(turn: Turn) -> AsyncIterator[Any]:
        yield ""

    agent = AnsweringAgent(
        talk, name="Weather Agent", description="Tells it.", examples=["Will it rain?"]
    )
    async with serving_agent(bridge(agent)) as url, client_of(url) as client:
        card = await client.agent_card
    (skill,) = card.skills
    assert (card.name, card.description) == ("Weather Agent", "Tells it.")
    assert (skill.id, skill.name) == ("weather_agent", "Weather Agent")
    assert "Will it rain?" in skill.examples[0]
    assert "text/plain" in skill.input_modes


async def test_the_error_of_a_failed_run_does_not_contain_its_cause() -> None:
    async def talk(turn: Turn) -> AsyncIterator[Any]:
        raise RuntimeError("boom")
        yield ""

    async with serving_agent(AnsweringAgent(talk)) as url, client_of(url) as client:
        with pytest.raises(TaskFailedError, match="Internal error") as caught:
            await client.call("answeringagent", "Go")
    assert "boom" not in str(caught.value)
