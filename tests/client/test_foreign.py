"""Both clients with agents built on other libraries."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from apcore_a2a_client import (
    A2AClient,
    A2AServerError,
    A2ATimeoutError,
    InputRequired,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskFailedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskState,
    UnsupportedOperationError,
)
from apcore_a2a_client.tasks import Event, apply_event

from tests.serving import PATIENCE

from .both import KINDS, connected_client
from .foreign import foreign_server

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.rotating("kind")]

UrlOf = Callable[[str], str]
COUNT_EVENTS = ["submitted", "working", "artifact", "artifact", "artifact", "completed"]
LONG_RUN = "slow 60"
"""Message whose run outlasts every test."""
GIVE_UP_TIME = 6
"""Seconds within which a client with a timeout of 2 s must have given up."""


@dataclass(frozen=True)
class Agent:
    """Agent and its capabilities.

    Attributes:
        server: Program in `servers/`.
        path: Path of its base URL on that server.
        binding: Binding and version of the first interface of its card.
        blocks: Whether a send waits for the task.
        messages: Whether it may answer with a message.
        lists: Whether it lists tasks.
        integers: Whether integers stay integers.
        count_events: Kinds of the events of the stream of `count 3`.
        chunks: Chunks of that stream.
        question: Text in the error when input is required: the agent's question if it is text.
        snapshot: Whether a subscription starts with the task.
    """

    server: str
    path: str = ""
    binding: tuple[str, str] = ("JSONRPC", "1.0")
    blocks: bool = True
    messages: bool = True
    lists: bool = True
    integers: bool = False
    count_events: tuple[str, ...] = tuple(COUNT_EVENTS)
    chunks: tuple[str, ...] = ("1", "2", "3")
    question: str = "Which one?"
    snapshot: bool = True


AGENTS = {
    "sdk1": Agent("sdk1", "/jsonrpc"),
    "sdk1 REST": Agent("sdk1", "/rest", ("HTTP+JSON", "1.0")),
    "sdk1 0.3": Agent("sdk1", "/v03", ("JSONRPC", "0.3"), lists=False),
    "sdk03": Agent(
        "sdk03",
        binding=("JSONRPC", "0.3.0"),
        lists=False,
        integers=True,
        snapshot=False,
    ),
    "fasta2a": Agent("fasta2a_agent", blocks=False, messages=False, lists=False, integers=True),
    "adk": Agent(
        "adk",
        messages=False,
        count_events=("submitted", *["working"] * 4, "artifact", "completed"),
        chunks=("3",),
        question="The task is input-required",
    ),
}
WITH_MESSAGES = [name for name, agent in AGENTS.items() if agent.messages]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def url_of() -> Iterator[UrlOf]:
    """Yield a function that returns the URL of a server, started at its first use."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(foreign_server(name)))


@dataclass(frozen=True)
class Case:
    """Agent, its URL, and the kind of client to test it with."""

    agent: Agent
    url: str
    kind: str

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[A2AClient]:
        async with (
            asyncio.timeout(PATIENCE),
            connected_client(self.url, self.kind, **options) as client,
        ):
            yield client


def case_of(name: str, url_of: UrlOf, kind: str) -> Case:
    agent = AGENTS[name]
    return Case(agent, url_of(agent.server) + agent.path, kind)


def agent_params(names: Iterable[str]) -> list[Any]:
    """Return parameters for these agents; only "sdk1" and "sdk1 REST" run by default."""
    marks = {"sdk1": pytest.mark.smoke, "sdk1 REST": pytest.mark.smoke}
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(params=agent_params(AGENTS))
def case(request: pytest.FixtureRequest, url_of: UrlOf) -> Case:
    """Return a case for any agent and the asynchronous client."""
    return case_of(request.param, url_of, "async")


@pytest.fixture(params=agent_params(AGENTS))
def any_case(request: pytest.FixtureRequest, url_of: UrlOf, kind: str) -> Case:
    """Return a case for any agent and either client."""
    return case_of(request.param, url_of, kind)


@pytest.fixture(params=agent_params(WITH_MESSAGES))
def message_case(request: pytest.FixtureRequest, url_of: UrlOf, kind: str) -> Case:
    """Return a case for an agent that may answer with a message, and either client."""
    return case_of(request.param, url_of, kind)


def kind_of(event: Event) -> str:
    """Return "message", "artifact", or the state of the task."""
    if isinstance(event, Message):
        return "message"
    return "artifact" if isinstance(event, TaskArtifactUpdateEvent) else event.status.state


async def long_running_task(client: A2AClient) -> Task:
    """Start a task that outlasts the test; return it once it is working."""
    task = await client.send_message(LONG_RUN, blocking=False)
    while (await client.get_task(task.id)).status.state != TaskState.WORKING:  # noqa: ASYNC110  # no event to await
        await asyncio.sleep(0.01)
    return task


async def test_the_card_describes_the_agent(any_case: Case) -> None:
    async with any_case.client() as client:
        card = await client.agent_card
    assert card.name == any_case.agent.server.removesuffix("_agent")
    assert card.description.startswith("An agent of ")
    first = card.supported_interfaces[0]
    assert (first.protocol_binding, first.protocol_version) == any_case.agent.binding
    assert card.capabilities.streaming
    assert not card.capabilities.push_notifications
    assert [skill.id for skill in card.skills] in (["echo"], ["adk"])


async def test_the_first_of_several_interfaces_is_used(url_of: UrlOf) -> None:
    async with A2AClient(url_of("sdk1")) as client:
        card = await client.get_card()
        assert len(card.supported_interfaces) == 3
        assert await client.call("echo", "echo hi") == "hi"
        assert (await client.list_tasks(page_size=1)).tasks  # 0.3 can't list tasks


@pytest.mark.parametrize("protocol", ["1.0", "0.3"])
async def test_the_protocol_can_be_chosen(url_of: UrlOf, protocol: str) -> None:
    async with A2AClient(url_of("sdk1"), protocol=protocol) as client:
        assert await client.call("echo", "echo hi") == "hi"
        if protocol == "0.3":
            with pytest.raises(UnsupportedOperationError):
                await client.list_tasks()


async def test_a_text_message_is_answered(any_case: Case) -> None:
    async with any_case.client() as client:
        sent = await client.send_message("echo hi")
        assert sent.id
        assert sent.context_id
        assert sent.status.state.is_settled == any_case.agent.blocks
        task = await client.wait(sent)
    assert (task.id, task.status.state, task.value) == (sent.id, "completed", "hi")
    assert [artifact.value for artifact in task.artifacts] == ["hi"]


DATA = {"text": "tëa", "list": [1.5, None, True, "x"], "object": {"deep": {"er": []}}}


async def test_a_data_message_is_answered(any_case: Case) -> None:
    async with any_case.client() as client:
        task = await client.wait(await client.send_message(DATA))
        assert task.value == DATA
        assert await client.call("echo", DATA) == DATA


async def test_numbers_have_the_types_that_the_agent_sends(case: Case) -> None:
    numbers = {"small": 5, "large": 2**53 - 1, "half": 0.5}
    async with case.client() as client:
        value = await client.call("echo", numbers)
    assert value == numbers
    number_type = int if case.agent.integers else float
    assert {type(value["small"]), type(value["large"])} == {number_type}


async def test_a_call_returns_the_value(any_case: Case) -> None:
    async with any_case.client() as client:
        assert await client.call("echo", "echo hi") == "hi"
        value = await client.call("echo", "count 3")
    assert value == "".join(any_case.agent.chunks)


async def test_a_call_may_outlast_the_timeout_of_one_request(any_case: Case) -> None:
    async with any_case.client(timeout=0.3) as client:
        assert await client.call("echo", "slow 0.7") == "done"


async def test_a_stream_has_all_events_in_order(any_case: Case) -> None:
    async with any_case.client() as client:
        events = [event async for event in client.stream_message("count 3")]
        task: Task | None = None
        for event in events:
            task = apply_event(task, event)
        assert task
        fetched = await client.get_task(task.id)
    assert tuple(map(kind_of, events)) == any_case.agent.count_events
    assert isinstance(events[0], Task)
    assert task.artifacts[0].parts == fetched.artifacts[0].parts
    assert task.status.state == fetched.status.state


async def test_a_stream_yields_the_chunks(any_case: Case) -> None:
    async with any_case.client() as client:
        chunks = [chunk async for chunk in client.stream("echo", "count 3")]
    assert tuple(chunks) == any_case.agent.chunks


async def test_a_task_can_be_fetched_later(any_case: Case) -> None:
    async with any_case.client() as client:
        task = await client.wait(await client.send_message("echo hi"))
        fetched = await client.get_task(task.id, history_length=10)
    assert (fetched.id, fetched.context_id, fetched.value) == (task.id, task.context_id, "hi")
    assert fetched.history[0].value == "echo hi"


async def test_a_running_task_is_canceled(any_case: Case) -> None:
    async with any_case.client(timeout=1) as client:
        task = await long_running_task(client)
        waiting = asyncio.create_task(client.wait(task))
        canceled = await client.cancel_task(task.id)
        assert canceled.status.state == "canceled" or not any_case.agent.blocks
        assert (await waiting).status.state == "canceled"
        assert (await client.get_task(task.id)).status.state == "canceled"


async def test_a_stream_ends_when_its_task_is_canceled(case: Case) -> None:
    async with case.client(timeout=1) as client:
        events = client.stream_message(LONG_RUN)
        first = await anext(events)
        assert isinstance(first, Task)
        await client.cancel_task(first.id)
        kinds = [kind_of(event) async for event in events]
        assert kinds[-1] == "canceled"
        assert kinds.count("canceled") == 1


async def test_a_completed_task_cannot_be_canceled(case: Case) -> None:
    async with case.client() as client:
        task = await client.wait(await client.send_message("echo hi"))
        if case.agent.server == "fasta2a_agent":  # which allows it
            assert (await client.cancel_task(task.id)).status.state == "completed"
        else:
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(task.id)


async def test_tasks_are_listed_if_the_agent_supports_it(any_case: Case) -> None:
    async with any_case.client() as client:
        if not any_case.agent.lists:
            with pytest.raises(UnsupportedOperationError):
                await client.list_tasks()
            return
        sent = [await client.send_message("echo hi", context_id="list") for _ in range(3)]
        page = await client.list_tasks("list", page_size=2)
        assert len(page.tasks) == 2
        assert page.next_cursor
        listed = [task async for task in client.iter_tasks("list", page_size=2)]
        completed = [task.id async for task in client.iter_tasks("list", state="completed")]
    assert {task.id for task in sent} <= {task.id for task in listed}
    assert {*completed} == {task.id for task in listed}
    assert listed[0].history[0].value == "echo hi"


async def test_a_reply_resumes_a_paused_task(any_case: Case) -> None:
    async with any_case.client() as client:
        with pytest.raises(InputRequired) as raised:
            await client.call("echo", "ask")
        paused = raised.value.task
        assert paused.status.state == "input-required"
        assert any_case.agent.question in str(raised.value)
        answered = await client.reply(paused, "blue")
    assert (answered.status.state, answered.value) == ("completed", "got: blue")
    assert answered.context_id == paused.context_id


async def test_a_streamed_message_resumes_a_paused_task(case: Case) -> None:
    async with case.client() as client:
        first_events = [event async for event in client.stream_message("ask")]
        task: Task | None = None
        for event in first_events:
            task = apply_event(task, event)
        assert task
        assert task.status.state == "input-required"
        events = client.stream_message("blue", task_id=task.id, context_id=task.context_id)
        kinds = [kind_of(event) async for event in events]
    assert kinds[-2:] == ["artifact", "completed"]


async def test_a_stream_raises_when_input_is_required(case: Case) -> None:
    async with case.client() as client:
        with pytest.raises(InputRequired) as raised:
            _ = [chunk async for chunk in client.stream("echo", "ask")]
        assert (await client.reply(raised.value.task, "blue")).value == "got: blue"


async def test_a_call_raises_when_its_task_fails(any_case: Case) -> None:
    async with any_case.client() as client:
        with pytest.raises(TaskFailedError) as raised:
            await client.call("echo", "fail")
        task = raised.value.task
        assert task.status.state == TaskState.FAILED
        assert "it broke" in str(raised.value)


async def test_a_stream_raises_when_its_task_fails(case: Case) -> None:
    async with case.client() as client:
        with pytest.raises(TaskFailedError, match="it broke"):
            _ = [chunk async for chunk in client.stream("echo", "fail")]


async def test_a_crash_of_the_agent_raises_an_error(any_case: Case) -> None:
    """The agent raises an exception.

    Some servers answer with an error or fail the task; a2a-sdk 0.3 closes the connection and
    reports the task as working forever.
    """
    async with asyncio.timeout(GIVE_UP_TIME), any_case.client(timeout=2, retries=1) as client:
        with pytest.raises((A2AServerError, TaskFailedError, A2ATimeoutError)) as raised:
            await client.call("echo", "explode", timeout=2)
        assert raised.type is not A2ATimeoutError or any_case.agent.server == "sdk03"
        assert await client.call("echo", "echo hi") == "hi"


async def test_a_crash_of_the_agent_ends_the_stream(case: Case) -> None:
    async with asyncio.timeout(GIVE_UP_TIME), case.client(timeout=2, retries=1) as client:
        with pytest.raises((A2AServerError, TaskFailedError, A2ATimeoutError)) as raised:
            _ = [chunk async for chunk in client.stream("echo", "explode", timeout=2)]
        assert raised.type is not A2ATimeoutError or case.agent.server == "sdk03"


async def test_an_agent_may_answer_with_a_message(message_case: Case) -> None:
    async with message_case.client() as client:
        task = await client.send_message("message hello")
        assert (task.id, task.status.state, task.value) == ("", "completed", "hello")
        assert task.context_id
        assert await client.call("echo", "message hello") == "hello"
        events = [event async for event in client.stream_message("message hello")]
        assert [kind_of(event) for event in events] == ["message"]
        assert await client.wait(task) is task


async def test_a_message_is_the_only_chunk_of_its_stream(message_case: Case) -> None:
    async with message_case.client() as client:
        assert [chunk async for chunk in client.stream("echo", "message hello")] == ["hello"]


async def test_an_unknown_task_is_not_found(any_case: Case) -> None:
    async with any_case.client() as client:
        with pytest.raises(TaskNotFoundError) as raised:
            await client.get_task("nothing")
        assert raised.value.code == -32001
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task("nothing")
        with pytest.raises(TaskNotFoundError):
            await anext(client.subscribe("nothing"))


async def test_a_running_task_can_be_subscribed_to(any_case: Case) -> None:
    async with any_case.client() as client:
        task = await client.send_message("slow 0.7", blocking=False)
        async with aclosing(client.subscribe(task.id)) as stream:
            kinds = [kind_of(event) async for event in stream]
        if any_case.agent.snapshot:
            assert kinds[0] in ("submitted", "working")
        assert kinds[-2:] == ["artifact", "completed"]


async def test_several_callers_can_wait_for_a_task(case: Case) -> None:
    async with case.client() as client:
        task = await client.send_message("slow 0.5", blocking=False)
        finished = await asyncio.gather(*(client.wait(task) for _ in range(5)))
    assert [task.value for task in finished] == ["done"] * 5


async def test_a_completed_task_can_be_followed(any_case: Case) -> None:
    async with any_case.client() as client:
        started = await client.send_message("echo hi", blocking=False)
        await client.wait(started)
        task = await client.wait(started)
        events = [event async for event in client.follow(started)]
    assert task.value == "hi"
    assert started.status.state.is_settled or kind_of(events[-1]) == "completed"


async def test_a_client_makes_several_calls_at_a_time(case: Case) -> None:
    async with case.client() as client:
        values = await asyncio.gather(*(client.call("echo", f"echo {n}") for n in range(6)))
    assert values == [str(n) for n in range(6)]
