"""Functions, generators and plain objects as agents."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from apcore import Context, Executor, Registry
from apcore_a2a_bridges import File, Turn, Usage, bridge
from apcore_a2a_bridges.detection import AgentConfigError
from apcore_a2a_client import A2AServerError
from apcore_a2a_core.schema import resolved
from pydantic import BaseModel
from typing_extensions import TypedDict

from tests.server.inloop import anyio_backend as anyio_backend
from tests.serving import PATIENCE

from .acceptance import Acceptance, Script, client_of, serving_agent

pytestmark = pytest.mark.anyio


class TestAsyncGenerator(Acceptance):
    """An asynchronous generator function passes the acceptance tests of framework bridges."""

    def agent(self, script: Script) -> Any:
        async def talk(text: str, turn: Turn) -> AsyncIterator[Any]:
            async for piece in script.say(*(m.text for m in turn.messages), text):
                yield piece
            yield Usage(Script.input_tokens, Script.output_tokens)

        return talk


async def answer_of(agent: Any, message: Any = "Hi", **options: Any) -> Any:
    """Serve an agent, send it a message, and return the value of the task."""
    async with serving_agent(agent, **options) as url, client_of(url) as client:
        return (await client.send_message(message)).value


async def outcome_of(agent: Any, text: str = "Hi") -> Any:
    """Call an agent as a module of apcore, which validates the output."""
    registry = Registry()
    registry.register("agent", bridge(agent))
    return await Executor(registry).call_async("agent", {"text": text})


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


async def whisper(text: str) -> str:
    return text.lower()


def letters(word: str) -> Iterator[str]:
    yield from word


class Exclaimer:
    """Adds an exclamation mark."""

    def __call__(self, text: str) -> str:
        return f"{text}!"

    def reverse(self, text: str) -> str:
        return text[::-1]


@pytest.mark.parametrize(
    ("function", "expected", "name"),
    [
        (shout, "HI", "shout"),
        (whisper, "hi", "whisper"),
        (letters, "Hi", "letters"),
        (Exclaimer(), "Hi!", "Exclaimer"),
        (Exclaimer().reverse, "iH", "reverse"),
        (lambda text: text * 2, "HiHi", "agent"),
        (lambda text, times=3: text * times, "HiHiHi", "agent"),
    ],
)
async def test_any_callable_is_an_agent(function: Any, expected: str, name: str) -> None:
    assert bridge(function).name == name
    assert await answer_of(function) == expected


async def test_a_single_text_parameter_can_be_sent_by_its_name() -> None:
    async with serving_agent(letters) as url, client_of(url) as client:
        assert (await client.send_message({"word": "ab"})).value == "ab"


async def test_typed_parameters_become_the_inputs_of_the_skill() -> None:
    class Total(BaseModel):
        total: int
        day: date

    def add(a: int, day: date, b: int = 2) -> Total:
        """Add two integers.

        Args:
            a: The first one.
            day: The day of the addition.
            b: The second one.
        """
        return Total(total=a + b, day=day)

    module = bridge(add)
    assert module.input_schema.model_json_schema()["properties"]["a"]["description"]
    assert await answer_of(add, {"a": 1, "day": "2026-01-31"}) == {"total": 3, "day": "2026-01-31"}
    async with serving_agent(add) as url, client_of(url) as client:
        with pytest.raises(A2AServerError):
            await client.send_message({"a": "one", "day": "2026-01-31"})


async def test_an_input_mapper_makes_the_typed_inputs_which_are_validated() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    def double(inputs: dict[str, Any], turn: Turn) -> Any:
        return {"a": inputs["a"] * 2, "b": str(inputs["b"])}

    async def spoil(inputs: dict[str, Any], turn: Turn) -> Any:
        return {"a": "one"}

    agent = bridge(add, input_mapper=double)
    assert await answer_of(agent, {"a": 1, "b": 2}) == {"result": 4}
    async with serving_agent(bridge(add, input_mapper=spoil)) as url, client_of(url) as client:
        assert (await client.send_message({"a": 1, "b": 2})).status.state == "failed"


async def test_the_type_of_the_result_is_the_output_schema() -> None:
    class Point(TypedDict):
        x: int

    def to_point(x: int, y: int) -> Point:
        return {"x": x + y}

    def count(a: int, b: int) -> int:
        return a + b

    schema = bridge(to_point).output_schema.model_json_schema()
    assert resolved(schema, schema)["required"] == ["x"]
    assert await answer_of(to_point, {"x": 1, "y": 2}) == {"x": 3}
    assert await answer_of(count, {"a": 1, "b": 2}) == {"result": 3}


async def test_a_result_that_is_not_always_a_value_of_json_has_an_open_output_schema() -> None:
    def find(text: str) -> str | None:
        return text if text == "Hi" else None

    def count(text: str) -> int | None:
        return len(text)

    def choose(text: str) -> Literal["yes", "no"]:
        return "yes"

    def to_bytes(text: str) -> bytes:
        return text.encode()

    def to_file(text: str) -> File:
        return File(text.encode())

    assert await outcome_of(find) == {"text": "Hi"}
    assert await outcome_of(find, "Ho") == {}
    assert await outcome_of(count) == {"result": 2}
    assert await outcome_of(choose) == {"text": "yes"}
    assert await outcome_of(to_bytes) == {"files": [File(b"Hi")]}
    assert await outcome_of(to_file) == {"files": [File(b"Hi")]}


@pytest.mark.parametrize("kind", [threading.Event, Callable[[], str]])
def test_a_function_with_inputs_that_have_no_json_schema_is_refused_by_name(kind: Any) -> None:
    def wait(event: Any) -> str:
        return "a"

    wait.__annotations__["event"] = kind
    with pytest.raises(AgentConfigError, match=r"wait can't be a skill: .* parameters \(event\)"):
        bridge(wait)


@dataclass
class Place:
    city: str


@dataclass
class Trip:
    start: Place
    stops: list[Place]


@dataclass
class Picture:
    title: str
    image: File


async def test_a_dataclass_is_the_output_schema() -> None:
    def plan(text: str) -> Trip:
        return Trip(Place(text), [Place("Bern")])

    schema = bridge(plan).output_schema.model_json_schema()
    assert resolved(schema, schema)["required"] == ["start", "stops"]
    assert await answer_of(plan, "Rome") == {"start": {"city": "Rome"}, "stops": [{"city": "Bern"}]}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Picture, Picture("A", File(b"x")), {"title": "A", "image": b"x"}),
        (File, File(b"x"), b"x"),
        (bytes, b"x", b"x"),
        (str | None, "a", "a"),
        (Literal["a", "b"], "a", "a"),
        (Place | None, Place("Rome"), {"city": "Rome"}),
        (Place | None, None, {}),
    ],
)
async def test_values_that_are_not_always_data_need_no_output_schema(
    kind: Any, value: Any, expected: Any
) -> None:
    def answer(text: str) -> Any:
        return value

    answer.__annotations__["return"] = kind
    assert await answer_of(answer) == expected


async def test_a_function_with_parameters_for_the_turn_and_the_context_gets_them() -> None:
    def describe_turn(text: str, turn: Turn, context: Context[Any]) -> str:
        return f"{text} {turn.context is context} {bool(turn.task_id)}"

    assert await answer_of(describe_turn) == "Hi True True"


async def test_a_context_whose_annotation_cannot_be_evaluated_is_not_an_input() -> None:
    # `Missing` stands for a name that is imported for type checkers only
    def describe_turn(text: str, context: "Context[Missing]") -> str:  # type: ignore[name-defined]  # noqa: F821
        return f"{text} {bool(context.trace_id)}"

    assert await answer_of(describe_turn) == "Hi True"


async def test_positional_only_parameters_get_the_text_the_turn_and_the_inputs() -> None:
    def after_turn(turn: Turn, text: str, /) -> str:
        return f"{text} {bool(turn.task_id)}"

    def before_turn(text: str, turn: Turn, /) -> str:
        return after_turn(turn, text)

    def subtract(a: int, b: int, /, turn: Turn) -> int:
        return a - b

    assert await answer_of(after_turn) == "Hi True"
    assert await answer_of(before_turn) == "Hi True"
    assert await answer_of(subtract, {"a": 3, "b": 2}) == {"result": 1}


async def test_the_text_parameter_need_not_be_the_first_one() -> None:
    def after_turn(turn: Turn, text: str) -> str:
        return f"{text} {bool(turn.task_id)}"

    def keyword_only(turn: Turn, *, text: str) -> str:
        return f"{text} {bool(turn.task_id)}"

    def after_default(times=2, *, text: str) -> Any:  # type: ignore[no-untyped-def]  # part of the test
        return text * times

    assert await answer_of(after_turn) == "Hi True"
    assert await answer_of(keyword_only) == "Hi True"
    assert await answer_of(after_default) == "HiHi"


async def test_a_function_in_a_thread_can_see_that_it_is_canceled() -> None:
    started, ended = threading.Event(), threading.Event()

    def work(text: str, turn: Turn) -> str:
        started.set()
        while not turn.is_canceled:
            time.sleep(0.005)
        ended.set()
        return ""

    async with serving_agent(work) as url, client_of(url) as client:
        task = await client.send_message("Hi", blocking=False)
        await asyncio.to_thread(started.wait, PATIENCE)
        await client.cancel_task(task.id)
        assert await asyncio.to_thread(ended.wait, PATIENCE)


async def test_a_generator_is_closed_together_with_its_turn() -> None:
    closed: list[str] = []

    async def talk(text: str) -> AsyncIterator[str]:
        try:
            yield text
            yield text
        finally:
            closed.append("talk")

    def letters(text: str) -> Iterator[str]:
        try:
            yield from text
        finally:
            closed.append("letters")

    class Streaming(Adapter):
        async def stream(self, user_input: str) -> AsyncIterator[str]:
            try:
                yield user_input
                yield user_input
            finally:
                closed.append("stream")

        async def cancel(self, **kwargs: Any) -> None:
            closed.append("cancel")

    for agent in (talk, letters, Streaming()):
        chunks = bridge(agent).stream({"text": "Hi"}, Context.create())
        await anext(chunks)
        await chunks.aclose()
    assert closed == ["talk", "letters", "stream", "cancel"]


async def test_a_generator_that_blocks_is_closed_after_the_step_that_was_canceled() -> None:
    started, may_end, closed = threading.Event(), threading.Event(), threading.Event()
    errors: list[BaseException | None] = []

    def letters(text: str) -> Iterator[str]:
        try:
            started.set()
            may_end.wait(PATIENCE)
            yield text
        finally:
            closed.set()

    agent = bridge(letters, after=lambda turn, output, error: errors.append(error))
    task = asyncio.create_task(agent.execute({"text": "Hi"}, Context.create()))
    await asyncio.to_thread(started.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    assert await asyncio.to_thread(closed.wait, PATIENCE)
    assert errors == []


async def test_functions_that_block_run_at_the_same_time() -> None:
    barrier = threading.Barrier(20, timeout=PATIENCE)

    def wait(text: str) -> str:
        barrier.wait()
        return text

    async with serving_agent(wait) as url, client_of(url) as client:
        tasks = await asyncio.gather(*(client.send_message(str(n)) for n in range(20)))
    assert [task.value for task in tasks] == [str(n) for n in range(20)]


class Adapter:
    """An adapter of a2a-adapter."""

    def __init__(self) -> None:
        self.closed = False
        self.canceled = asyncio.Event()
        self.started = asyncio.Event()

    async def invoke(self, user_input: str, context_id: str | None = None, **kwargs: Any) -> str:
        if user_input == "wait":
            self.started.set()
            await asyncio.Event().wait()
        return f"{user_input} in {bool(context_id)}"

    async def cancel(self, **kwargs: Any) -> None:
        self.canceled.set()

    async def close(self) -> None:
        self.closed = True

    def get_metadata(self) -> Any:
        return SimpleNamespace(name="Old Adapter", description="Adapts.", version="3.1.0")


async def test_an_object_with_only_invoke_is_an_agent() -> None:
    class MinimalAgent:
        """Has only one method."""

        async def invoke(self, user_input: str) -> str:
            return user_input

    assert await answer_of(MinimalAgent()) == "Hi"
    assert bridge(MinimalAgent()).description == "Has only one method."


async def test_an_awaitable_that_invoke_returns_is_awaited() -> None:
    class WrappedAgent:
        def invoke(self, user_input: str) -> Any:
            return whisper(user_input)

    assert await answer_of(WrappedAgent()) == "hi"


async def test_the_methods_of_an_adapter_are_used() -> None:
    adapter = Adapter()
    async with serving_agent(adapter) as url, client_of(url) as client:
        card = await client.agent_card
        assert (await client.send_message("Hi")).value == "Hi in True"
        task = await client.send_message("wait", blocking=False)
        await asyncio.wait_for(adapter.started.wait(), PATIENCE)
        await client.cancel_task(task.id)
        await asyncio.wait_for(adapter.canceled.wait(), PATIENCE)
    assert (card.name, card.description, card.version) == ("Old Adapter", "Adapts.", "3.1.0")
    assert adapter.closed


async def test_the_stream_of_an_adapter_is_used_if_it_has_one() -> None:
    class Streaming(Adapter):
        async def stream(self, user_input: str, context_id: str | None = None) -> Any:
            for letter in user_input:
                yield letter

    class Abstract(Adapter):
        async def stream(self, user_input: str, context_id: str | None = None) -> Any:
            raise NotImplementedError
            yield ""

    async with serving_agent(Streaming()) as url, client_of(url) as client:
        pieces = [piece async for piece in client.stream("old_adapter", "abc")]
    assert pieces == ["a", "b", "c"]
    assert await answer_of(Abstract()) == "Hi in True"


async def test_a_stream_that_is_not_implemented_for_one_input_leaves_other_turns_alone() -> None:
    class Partial(Adapter):
        async def stream(self, user_input: str) -> AsyncIterator[str]:
            if user_input == "no":
                raise NotImplementedError
            for letter in user_input:
                yield letter

    module = bridge(Partial())
    chunks = module.stream({"text": "abc"}, Context.create())
    first = await anext(chunks)
    assert await module.execute({"text": "no"}, Context.create()) == {"text": "no in True"}
    assert [first, *[chunk async for chunk in chunks]] == [{"text": letter} for letter in "abc"]
    assert await module.execute({"text": "abc"}, Context.create()) == {"text": "abc"}
