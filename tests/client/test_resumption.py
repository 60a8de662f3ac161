"""Connections that break in the middle of a stream, of agents that do not number their events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from apcore_a2a_client import A2AClient, Task, TaskStatusUpdateEvent
from apcore_a2a_client.tasks import Event, after

from tests.serving import PATIENCE

from . import foreign
from .both import asking, each_kind

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.rotating("kind")]

Urls = Callable[[str], str]
PLACES = {
    "sdk1": ("sdk1_steps", "/jsonrpc"),
    "sdk1 REST": ("sdk1_steps", "/rest"),
    "sdk1 0.3": ("sdk1_steps", "/v03"),
    "sdk03": ("sdk03_steps", ""),
}
ARTIFACT = (b'"artifactUpdate"', b'"artifact-update"')
"""What an event with an artifact has, in 1.0 and in 0.3."""
STATUS = (b'"statusUpdate"', b'"status-update"')
NOTHING = (b"\0",)
GET = (b"tasks/get", b"GetTask", b"GET /rest/tasks/")
"""What a request for the task has."""
SUBSCRIBE = (b"tasks/resubscribe", b"SubscribeToTask", b":subscribe")
"""What a request for a subscription has."""

each_place = pytest.mark.parametrize(
    "place",
    [pytest.param(name, marks=pytest.mark.smoke) if "sdk1" in name else name for name in PLACES],
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def urls() -> Iterator[Urls]:
    """Gives the URL of a server, which is started when it is first asked for."""
    find = foreign.interpreter
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(foreign, "interpreter", lambda name: find(name.removesuffix("_steps")))
        yield cache(lambda name: stack.enter_context(foreign.foreign(name)))


@dataclass
class Proxy:
    """Passes bytes on, and breaks the connection behind the first event that it is told of.

    Attributes:
        port: Its own port; it has as many digits as that of the server.
        marks: It breaks behind the event that has one of them, once.
        held: Requests that have one of them wait until it is released.
        cut: It has broken the connection.
        admits: Whether it takes new connections.
        waiting: A request is held.
        released: Held requests may go on.
        subscribed: There was a request for a subscription.
    """

    target: str
    marks: tuple[bytes, ...]
    held: tuple[bytes, ...] = ()
    port: str = ""
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    admits: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The URL of the proxy, while it is there."""
        self.admits.set()
        tasks: set[asyncio.Task[Any]] = set()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            tasks.add(task)
            with suppress(OSError, asyncio.CancelledError):
                await self.connect(reader, writer)
            writer.close()

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        self.port = str(server.sockets[0].getsockname()[1])
        assert len(self.port) == len(self.target), "the lengths of bodies must not change"
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks)

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        await self.admits.wait()
        far, there = await asyncio.open_connection("127.0.0.1", int(self.target))
        asking = asyncio.create_task(self.ask(reader, there))
        try:
            await self.answer(far, writer)
        finally:
            asking.cancel()
            with suppress(OSError, asyncio.CancelledError):
                await asking
            there.close()

    async def ask(self, reader: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            if any(mark in chunk for mark in SUBSCRIBE):
                self.subscribed.set()
            if self.cut.is_set() and any(mark in chunk for mark in self.held):
                self.waiting.set()
                await self.released.wait()
            there.write(chunk)
            await there.drain()

    async def answer(self, far: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = b""
        while chunk := await far.read(65536):
            chunk = chunk.replace(f":{self.target}".encode(), f":{self.port}".encode())
            seen += chunk
            end = self.end_of_event(seen)
            if end and not self.cut.is_set():
                writer.write(chunk[: len(chunk) - len(seen) + end])
                await writer.drain()
                self.cut.set()
                return
            writer.write(chunk)
            await writer.drain()

    def end_of_event(self, seen: bytes) -> int:
        """Where the event that has a mark ends; 0 as long as it has not."""
        begin = max(seen.find(mark) for mark in self.marks)
        end = seen.find(b"\n\r\n", begin)
        return end + 3 if begin >= 0 <= end else 0


class Steps:
    """An agent behind a proxy, and a client that reads a stream of it."""

    def __init__(self, proxy: Proxy, client: A2AClient, control: A2AClient) -> None:
        self.proxy, self.client, self.control = proxy, client, control
        self.key = uuid4().hex
        self.doubles = False
        """Whether the agent keeps each chunk once for each of its streams, as a2a-sdk 0.3 does."""
        self.events: list[Event] = []
        self.changed = asyncio.Condition()

    async def open(self, count: int) -> None:
        """Let the agent take *count* steps."""
        for _ in range(count):
            await self.control.send_message(f"open {self.key}")

    async def read(self, steps: int) -> None:
        """Read the stream of a task of so many steps to its end."""
        async for event in self.client.stream_message(f"steps {steps} {self.key}"):
            async with self.changed:
                self.events.append(event)
                self.changed.notify_all()

    @property
    def task(self) -> Task:
        """The task as the events tell it."""
        task: Task | None = None
        for event in self.events:
            task = after(task, event)
        assert task
        return task

    async def sees(self, count: int) -> None:
        """Wait until the events have told of *count* steps."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.events and steps_of(self.task) >= count)

    async def has(self, count: int) -> Task:
        """The task at the agent, as soon as it has taken *count* steps."""
        while steps_of(task := await self.control.get_task(self.task.id)) < count:  # noqa: ASYNC110  # no word
            await asyncio.sleep(0.01)
        return task

    async def ends(self) -> Task:
        """The task at the agent, as soon as it has ended."""
        task_id = self.task.id
        while not (task := await self.control.get_task(task_id)).status.state.is_settled:  # noqa: ASYNC110  # no word
            await asyncio.sleep(0.01)
        return task


def steps_of(task: Task) -> int:
    return sum(len(artifact.parts) for artifact in task.artifacts)


@asynccontextmanager
async def steps(
    urls: Urls,
    place: str,
    kind: str = "async",
    *,
    marks: tuple[bytes, ...] = ARTIFACT,
    held: tuple[bytes, ...] = (),
) -> AsyncIterator[Steps]:
    """A client of the agent at *place* behind a proxy, and another without."""
    name, path = PLACES[place]
    url = urls(name)
    proxy = Proxy(url.rpartition(":")[2], marks, held)
    async with (
        asyncio.timeout(PATIENCE),
        proxy.listening() as near,
        asking(near + path, kind) as client,
        A2AClient(url + path) as control,
    ):
        run = Steps(proxy, client, control)
        run.doubles = place == "sdk03"
        yield run


async def agrees(run: Steps, count: int) -> None:
    """Check that the events tell of all steps, as the agent does, and nothing twice."""
    got = await run.control.get_task(run.task.id)
    assert [part.text for part in run.task.artifacts[0].parts] == [str(n + 1) for n in range(count)]
    assert run.task.status.state == got.status.state == "completed"
    if not run.doubles:
        assert run.task.artifacts[0].parts == got.artifacts[0].parts
    told = [each.status for each in run.events if isinstance(each, TaskStatusUpdateEvent)]
    assert len({(each.state, each.timestamp) for each in told}) == len(told)


@each_place
@each_kind
async def test_a_stream_goes_on_where_its_connection_broke(
    urls: Urls, place: str, kind: str
) -> None:
    async with steps(urls, place, kind) as run:
        reading = asyncio.create_task(run.read(3))
        await run.open(1)
        await run.proxy.cut.wait()
        while not run.events or steps_of(run.task) < 1:  # noqa: ASYNC110  # no word
            await asyncio.sleep(0.01)
        await run.open(2)
        await reading
        await agrees(run, 3)


@each_place
@each_kind
async def test_what_happened_while_the_connection_was_lost_is_told(
    urls: Urls, place: str, kind: str
) -> None:
    async with steps(urls, place, kind) as run:
        reading = asyncio.create_task(run.read(3))
        await run.open(1)
        await run.proxy.cut.wait()
        run.proxy.admits.clear()
        await run.sees(1)
        await run.open(1)
        await run.has(2)
        run.proxy.admits.set()
        await run.sees(2)
        await run.open(1)
        await reading
        await agrees(run, 3)


@each_place
@each_kind
async def test_a_task_that_ends_while_the_connection_is_lost_is_told(
    urls: Urls, place: str, kind: str
) -> None:
    async with steps(urls, place, kind) as run:
        reading = asyncio.create_task(run.read(3))
        await run.open(1)
        await run.proxy.cut.wait()
        run.proxy.admits.clear()
        await run.sees(1)
        await run.open(2)
        await run.ends()
        run.proxy.admits.set()
        await reading
        await agrees(run, 3)


@each_place
async def test_a_stream_that_broke_before_its_artifact_goes_on(urls: Urls, place: str) -> None:
    async with steps(urls, place, marks=STATUS) as run:
        reading = asyncio.create_task(run.read(2))
        await run.proxy.cut.wait()
        await run.open(2)
        await reading
        await agrees(run, 2)


@each_place
async def test_what_happens_between_subscription_and_snapshot_counts_once(
    urls: Urls, place: str
) -> None:
    """Where the task is asked for beside the subscription, a chunk may be in both."""
    async with steps(urls, place, held=GET) as run:
        reading = asyncio.create_task(run.read(4))
        await run.open(1)
        await run.proxy.cut.wait()
        await run.sees(1)
        if "0.3" in place or place == "sdk03":
            await run.proxy.waiting.wait()
        await run.open(1)
        await run.has(2)
        run.proxy.released.set()
        await run.sees(2)
        await run.open(2)
        await reading
        await agrees(run, 4)


@each_place
@each_kind
async def test_the_chunks_of_a_broken_stream_are_complete(
    urls: Urls, place: str, kind: str
) -> None:
    async with steps(urls, place, kind) as run:
        chunks: list[Any] = []

        async def read() -> None:
            async for chunk in run.client.stream("steps", f"steps 3 {run.key}"):
                chunks.append(chunk)

        reading = asyncio.create_task(read())
        await run.open(1)
        await run.proxy.cut.wait()
        run.proxy.admits.clear()
        await run.open(2)
        run.proxy.admits.set()
        await reading
    assert "".join(chunks) == "123"


@each_place
@pytest.mark.parametrize("marks", [ARTIFACT, NOTHING], ids=["broken", "whole"])
async def test_a_call_gives_each_chunk_once(
    urls: Urls, place: str, marks: tuple[bytes, ...]
) -> None:
    async with steps(urls, place, marks=marks) as run:
        call = asyncio.create_task(run.client.call("steps", f"steps 3 {run.key}"))
        with suppress(TimeoutError):  # it may do without
            await asyncio.wait_for(run.proxy.subscribed.wait(), 1)
        await run.open(3)
        assert await call == "123"
