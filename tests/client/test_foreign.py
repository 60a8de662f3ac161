"""Our clients and agents that nobody here wrote."""

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
from apcore_a2a_client.tasks import Event, after

from tests.serving import PATIENCE

from .both import KINDS, asking
from .foreign import foreign

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.rotating("kind")]

Urls = Callable[[str], str]
COUNT = ["submitted", "working", "artifact", "artifact", "artifact", "completed"]
LONG = "slow 60"
"""Work that no test waits for."""
ENOUGH = 6
"""Seconds until a client with a timeout of 2 s should have noticed that nothing will come."""


@dataclass(frozen=True)
class Agent:
    """An agent, and what it is like.

    Attributes:
        server: The program of `servers/`.
        path: Its base URL on that server.
        binding: What the first interface of its card is.
        blocks: Whether a send waits for the task.
        messages: Whether it may answer with a message.
        lists: Whether it lists tasks.
        integers: Whether integers stay integers.
        count: What the stream of `count 3` tells.
        chunks: The values in it.
        question: What it says when it asks.
        snapshot: Whether a subscription begins with the task.
    """

    server: str
    path: str = ""
    binding: tuple[str, str] = ("JSONRPC", "1.0")
    blocks: bool = True
    messages: bool = True
    lists: bool = True
    integers: bool = False
    count: tuple[str, ...] = tuple(COUNT)
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
        count=("submitted", *["working"] * 4, "artifact", "completed"),
        chunks=("3",),
        question="The task is input-required",
    ),
}
TALKATIVE = [name for name, agent in AGENTS.items() if agent.messages]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def urls() -> Iterator[Urls]:
    """Gives the URL of a server, which is started when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(foreign(name)))


@dataclass(frozen=True)
class Case:
    """An agent, its address, and the kind of client that asks."""

    agent: Agent
    url: str
    kind: str

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[A2AClient]:
        async with (
            asyncio.timeout(PATIENCE),
            asking(self.url, self.kind, **options) as client,
        ):
            yield client


def case_of(name: str, urls: Urls, kind: str) -> Case:
    agent = AGENTS[name]
    return Case(agent, urls(agent.server) + agent.path, kind)


def of(names: Iterable[str]) -> list[Any]:
    """The agents of these names; the SDK's own shows by default that we speak with others."""
    marks = {"sdk1": pytest.mark.smoke, "sdk1 REST": pytest.mark.smoke}
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=of(AGENTS))
def case(request: pytest.FixtureRequest, urls: Urls) -> Case:
    return case_of(request.param, urls, "async")


@pytest.fixture(params=of(AGENTS))
def either(request: pytest.FixtureRequest, urls: Urls, kind: str) -> Case:
    """Any agent, asked by one client or the other."""
    return case_of(request.param, urls, kind)


@pytest.fixture(params=of(TALKATIVE))
def talkative(request: pytest.FixtureRequest, urls: Urls, kind: str) -> Case:
    """An agent that may answer with a message, asked by one client or the other."""
    return case_of(request.param, urls, kind)


def kind_of(event: Event) -> str:
    """What an event is: the state of a task, an artifact or a message."""
    if isinstance(event, Message):
        return "message"
    return "artifact" if isinstance(event, TaskArtifactUpdateEvent) else event.status.state


async def running(client: A2AClient) -> Task:
    """A task that works for long."""
    task = await client.send_message(LONG, blocking=False)
    while (await client.get_task(task.id)).status.state != TaskState.WORKING:  # noqa: ASYNC110  # no word
        await asyncio.sleep(0.01)
    return task


async def test_a_card_tells_what_the_agent_is(either: Case) -> None:
    async with either.client() as client:
        card = await client.agent_card
    assert card.name == either.agent.server.removesuffix("_agent")
    assert card.description.startswith("An agent of ")
    first = card.supported_interfaces[0]
    assert (first.protocol_binding, first.protocol_version) == either.agent.binding
    assert card.capabilities.streaming
    assert not card.capabilities.push_notifications
    assert [skill.id for skill in card.skills] in (["echo"], ["adk"])


async def test_an_agent_of_many_interfaces_is_asked_by_the_first(urls: Urls) -> None:
    async with A2AClient(urls("sdk1")) as client:
        card = await client.get_card()
        assert len(card.supported_interfaces) == 3
        assert await client.call("echo", "echo hi") == "hi"
        assert (await client.list_tasks(page_size=1)).tasks  # 0.3 has no lists


@pytest.mark.parametrize("protocol", ["1.0", "0.3"])
async def test_the_protocol_can_be_chosen(urls: Urls, protocol: str) -> None:
    async with A2AClient(urls("sdk1"), protocol=protocol) as client:
        assert await client.call("echo", "echo hi") == "hi"
        if protocol == "0.3":
            with pytest.raises(UnsupportedOperationError):
                await client.list_tasks()


async def test_a_sent_text_is_answered(either: Case) -> None:
    async with either.client() as client:
        sent = await client.send_message("echo hi")
        assert sent.id
        assert sent.context_id
        assert sent.status.state.is_settled == either.agent.blocks
        task = await client.wait(sent)
    assert (task.id, task.status.state, task.value) == (sent.id, "completed", "hi")
    assert [artifact.value for artifact in task.artifacts] == ["hi"]


DATA = {"text": "tëa", "list": [1.5, None, True, "x"], "object": {"deep": {"er": []}}}


async def test_sent_data_is_answered(either: Case) -> None:
    async with either.client() as client:
        task = await client.wait(await client.send_message(DATA))
        assert task.value == DATA
        assert await client.call("echo", DATA) == DATA


async def test_numbers_are_what_the_agent_makes_of_them(case: Case) -> None:
    given = {"small": 5, "large": 2**53 - 1, "half": 0.5}
    async with case.client() as client:
        value = await client.call("echo", given)
    assert value == given
    kinds = int if case.agent.integers else float
    assert {type(value["small"]), type(value["large"])} == {kinds}


async def test_a_call_gives_the_value(either: Case) -> None:
    async with either.client() as client:
        assert await client.call("echo", "echo hi") == "hi"
        value = await client.call("echo", "count 3")
    assert value == "".join(either.agent.chunks)


async def test_a_call_takes_as_long_as_it_takes(either: Case) -> None:
    async with either.client(timeout=0.3) as client:
        assert await client.call("echo", "slow 0.7") == "done"


async def test_a_stream_tells_what_happens_in_order(either: Case) -> None:
    async with either.client() as client:
        events = [event async for event in client.stream_message("count 3")]
        task: Task | None = None
        for event in events:
            task = after(task, event)
        assert task
        got = await client.get_task(task.id)
    assert tuple(map(kind_of, events)) == either.agent.count
    assert isinstance(events[0], Task)
    assert task.artifacts[0].parts == got.artifacts[0].parts
    assert task.status.state == got.status.state


async def test_a_stream_gives_the_chunks(either: Case) -> None:
    async with either.client() as client:
        chunks = [chunk async for chunk in client.stream("echo", "count 3")]
    assert tuple(chunks) == either.agent.chunks


async def test_a_task_can_be_got_later(either: Case) -> None:
    async with either.client() as client:
        task = await client.wait(await client.send_message("echo hi"))
        got = await client.get_task(task.id, history_length=10)
    assert (got.id, got.context_id, got.value) == (task.id, task.context_id, "hi")
    assert got.history[0].value == "echo hi"


async def test_a_running_task_is_canceled(either: Case) -> None:
    async with either.client(timeout=1) as client:
        task = await running(client)
        waiting = asyncio.create_task(client.wait(task))
        canceled = await client.cancel_task(task.id)
        assert canceled.status.state == "canceled" or not either.agent.blocks
        assert (await waiting).status.state == "canceled"
        assert (await client.get_task(task.id)).status.state == "canceled"


async def test_a_call_of_a_task_that_is_canceled_raises(case: Case) -> None:
    async with case.client(timeout=1) as client:
        events = client.stream_message(LONG)
        first = await anext(events)
        assert isinstance(first, Task)
        await client.cancel_task(first.id)
        kinds = [kind_of(event) async for event in events]
        assert kinds[-1] == "canceled"
        assert kinds.count("canceled") == 1


async def test_a_task_that_has_ended_is_not_canceled(case: Case) -> None:
    async with case.client() as client:
        task = await client.wait(await client.send_message("echo hi"))
        if case.agent.server == "fasta2a_agent":  # which does not mind
            assert (await client.cancel_task(task.id)).status.state == "completed"
        else:
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(task.id)


async def test_tasks_are_listed_where_agents_do(either: Case) -> None:
    async with either.client() as client:
        if not either.agent.lists:
            with pytest.raises(UnsupportedOperationError):
                await client.list_tasks()
            return
        sent = [await client.send_message("echo hi", context_id="list") for _ in range(3)]
        page = await client.list_tasks("list", page_size=2)
        assert len(page.tasks) == 2
        assert page.next_cursor
        found = [task async for task in client.iter_tasks("list", page_size=2)]
        completed = [task.id async for task in client.iter_tasks("list", state="completed")]
    assert {task.id for task in sent} <= {task.id for task in found}
    assert {*completed} == {task.id for task in found}
    assert found[0].history[0].value == "echo hi"


async def test_a_paused_task_goes_on_with_a_reply(either: Case) -> None:
    async with either.client() as client:
        with pytest.raises(InputRequired) as raised:
            await client.call("echo", "ask")
        paused = raised.value.task
        assert paused.status.state == "input-required"
        assert either.agent.question in str(raised.value)
        done = await client.reply(paused, "blue")
    assert (done.status.state, done.value) == ("completed", "got: blue")
    assert done.context_id == paused.context_id


async def test_a_paused_task_goes_on_with_a_stream(case: Case) -> None:
    async with case.client() as client:
        asked = [event async for event in client.stream_message("ask")]
        task: Task | None = None
        for event in asked:
            task = after(task, event)
        assert task
        assert task.status.state == "input-required"
        events = client.stream_message("blue", task_id=task.id, context_id=task.context_id)
        kinds = [kind_of(event) async for event in events]
    assert kinds[-2:] == ["artifact", "completed"]


async def test_a_stream_that_asks_raises(case: Case) -> None:
    async with case.client() as client:
        with pytest.raises(InputRequired) as raised:
            _ = [chunk async for chunk in client.stream("echo", "ask")]
        assert (await client.reply(raised.value.task, "blue")).value == "got: blue"


async def test_a_task_that_fails_raises(either: Case) -> None:
    async with either.client() as client:
        with pytest.raises(TaskFailedError) as raised:
            await client.call("echo", "fail")
        task = raised.value.task
        assert task.status.state == TaskState.FAILED
        assert "it broke" in str(raised.value)


async def test_a_stream_that_fails_raises(case: Case) -> None:
    async with case.client() as client:
        with pytest.raises(TaskFailedError, match="it broke"):
            _ = [chunk async for chunk in client.stream("echo", "fail")]


async def test_an_agent_that_breaks_down_is_an_error_of_its_own(either: Case) -> None:
    """Its module raises: one server refuses, another fails the task.

    A third hangs up, and says for ever that the task works.
    """
    async with asyncio.timeout(ENOUGH), either.client(timeout=2, retries=1) as client:
        with pytest.raises((A2AServerError, TaskFailedError, A2ATimeoutError)) as raised:
            await client.call("echo", "explode", timeout=2)
        assert raised.type is not A2ATimeoutError or either.agent.server == "sdk03"
        assert await client.call("echo", "echo hi") == "hi"


async def test_an_agent_that_breaks_down_ends_its_stream(case: Case) -> None:
    async with asyncio.timeout(ENOUGH), case.client(timeout=2, retries=1) as client:
        with pytest.raises((A2AServerError, TaskFailedError, A2ATimeoutError)) as raised:
            _ = [chunk async for chunk in client.stream("echo", "explode", timeout=2)]
        assert raised.type is not A2ATimeoutError or case.agent.server == "sdk03"


async def test_an_agent_may_answer_with_a_message(talkative: Case) -> None:
    async with talkative.client() as client:
        task = await client.send_message("message hello")
        assert (task.id, task.status.state, task.value) == ("", "completed", "hello")
        assert task.context_id
        assert await client.call("echo", "message hello") == "hello"
        events = [event async for event in client.stream_message("message hello")]
        assert [kind_of(event) for event in events] == ["message"]
        assert await client.wait(task) is task


async def test_the_only_chunk_of_a_message_is_the_message(talkative: Case) -> None:
    async with talkative.client() as client:
        assert [chunk async for chunk in client.stream("echo", "message hello")] == ["hello"]


async def test_a_task_that_nobody_knows_is_not_found(either: Case) -> None:
    async with either.client() as client:
        with pytest.raises(TaskNotFoundError) as raised:
            await client.get_task("nothing")
        assert raised.value.code == -32001
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task("nothing")
        with pytest.raises(TaskNotFoundError):
            await anext(client.subscribe("nothing"))


async def test_a_running_task_can_be_subscribed_to(either: Case) -> None:
    async with either.client() as client:
        task = await client.send_message("slow 0.7", blocking=False)
        async with aclosing(client.subscribe(task.id)) as stream:
            kinds = [kind_of(event) async for event in stream]
        if either.agent.snapshot:
            assert kinds[0] in ("submitted", "working")
        assert kinds[-2:] == ["artifact", "completed"]


async def test_a_task_is_followed_by_many(case: Case) -> None:
    async with case.client() as client:
        task = await client.send_message("slow 0.5", blocking=False)
        done = await asyncio.gather(*(client.wait(task) for _ in range(5)))
    assert [each.value for each in done] == ["done"] * 5


async def test_a_task_that_ended_before_it_is_followed_is_told(either: Case) -> None:
    async with either.client() as client:
        begun = await client.send_message("echo hi", blocking=False)
        await client.wait(begun)
        task = await client.wait(begun)
        events = [event async for event in client.follow(begun)]
    assert task.value == "hi"
    assert begun.status.state.is_settled or kind_of(events[-1]) == "completed"


async def test_many_calls_share_a_client(case: Case) -> None:
    async with case.client() as client:
        values = await asyncio.gather(*(client.call("echo", f"echo {n}") for n in range(6)))
    assert values == [str(n) for n in range(6)]
