"""Streams without event ids are resumed when their connection breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from apcore_a2a_client import A2AClient, Task, TaskStatusUpdateEvent
from apcore_a2a_client.tasks import Event, apply_event

from tests.serving import PATIENCE

from . import foreign
from .both import connected_client, each_kind

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.rotating("kind")]

UrlOf = Callable[[str], str]
ENDPOINTS = {
    "sdk1": ("sdk1_steps", "/jsonrpc"),
    "sdk1 REST": ("sdk1_steps", "/rest"),
    "sdk1 0.3": ("sdk1_steps", "/v03"),
    "sdk03": ("sdk03_steps", ""),
}
ARTIFACT = (b'"artifactUpdate"', b'"artifact-update"')
"""Marks of an event with an artifact, in 1.0 and in 0.3."""
STATUS = (b'"statusUpdate"', b'"status-update"')
NO_EVENT = (b"\0",)
GET = (b"tasks/get", b"GetTask", b"GET /rest/tasks/")
"""Marks of a request for the task."""
SUBSCRIBE = (b"tasks/resubscribe", b"SubscribeToTask", b":subscribe")
"""Marks of a request for a subscription."""

each_endpoint = pytest.mark.parametrize(
    "endpoint",
    [pytest.param(name, marks=pytest.mark.smoke) if "sdk1" in name else name for name in ENDPOINTS],
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def url_of() -> Iterator[UrlOf]:
    """Yield a function that returns the URL of a server, started at its first use."""
    find = foreign.interpreter
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(foreign, "interpreter", lambda name: find(name.removesuffix("_steps")))
        yield cache(lambda name: stack.enter_context(foreign.foreign_server(name)))


@dataclass
class Proxy:
    """Proxy that breaks the connection after the first event with one of its marks.

    Attributes:
        target: Port of the agent.
        port: Port of the proxy; it has as many digits as the agent's.
        marks: Marks of the event after which the connection breaks, once.
        held_requests: Marks of requests that wait for `released` once the connection was broken.
        cut: Set when the connection was broken.
        accepting: Set while new connections are accepted.
        waiting: Set when a request is held.
        released: Set to let held requests pass.
        subscribed: Set when a subscription was requested.
    """

    target: str
    marks: tuple[bytes, ...]
    held_requests: tuple[bytes, ...] = ()
    port: str = ""
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    accepting: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Run the proxy and yield its URL."""
        self.accepting.set()
        tasks: set[asyncio.Task[Any]] = set()

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            tasks.add(task)
            with suppress(OSError, asyncio.CancelledError):
                await self.connect(reader, writer)
            writer.close()

        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
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
        await self.accepting.wait()
        agent_reader, agent_writer = await asyncio.open_connection("127.0.0.1", int(self.target))
        requests = asyncio.create_task(self.forward_requests(reader, agent_writer))
        try:
            await self.forward_responses(agent_reader, writer)
        finally:
            requests.cancel()
            with suppress(OSError, asyncio.CancelledError):
                await requests
            agent_writer.close()

    async def forward_requests(
        self, reader: asyncio.StreamReader, agent_writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(65536):
            if any(mark in chunk for mark in SUBSCRIBE):
                self.subscribed.set()
            if self.cut.is_set() and any(mark in chunk for mark in self.held_requests):
                self.waiting.set()
                await self.released.wait()
            agent_writer.write(chunk)
            await agent_writer.drain()

    async def forward_responses(
        self, agent_reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        seen = b""
        while chunk := await agent_reader.read(65536):
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
        """Return the end of the event with a mark, or 0 while it has not arrived."""
        begin = max(seen.find(mark) for mark in self.marks)
        end = seen.find(b"\n\r\n", begin)
        return end + 3 if begin >= 0 <= end else 0


class SteppedRun:
    """Run of an agent that takes steps on request; a client reads its stream through a proxy.

    A second client, `control`, is connected to the agent directly.
    """

    def __init__(self, proxy: Proxy, client: A2AClient, control: A2AClient) -> None:
        self.proxy, self.client, self.control = proxy, client, control
        self.key = uuid4().hex
        self.stores_duplicates = False
        """Whether the agent stores each chunk once per stream, as a2a-sdk 0.3 does."""
        self.events: list[Event] = []
        self.changed = asyncio.Condition()

    async def allow_steps(self, count: int) -> None:
        """Let the agent take *count* steps."""
        for _ in range(count):
            await self.control.send_message(f"open {self.key}")

    async def read(self, count: int) -> None:
        """Read the stream of a task of *count* steps to its end."""
        async for event in self.client.stream_message(f"steps {count} {self.key}"):
            async with self.changed:
                self.events.append(event)
                self.changed.notify_all()

    @property
    def task(self) -> Task:
        """Task as reported by the events."""
        task: Task | None = None
        for event in self.events:
            task = apply_event(task, event)
        assert task
        return task

    async def wait_for_events(self, count: int) -> None:
        """Wait until the events report *count* steps."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.events and steps_of(self.task) >= count)

    async def wait_for_steps(self, count: int) -> Task:
        """Return the task once the agent has taken *count* steps."""
        while steps_of(task := await self.control.get_task(self.task.id)) < count:  # noqa: ASYNC110  # no event to await
            await asyncio.sleep(0.01)
        return task

    async def wait_for_end(self) -> Task:
        """Return the task once it has ended at the agent."""
        task_id = self.task.id
        while not (task := await self.control.get_task(task_id)).status.state.is_settled:  # noqa: ASYNC110  # no event to await
            await asyncio.sleep(0.01)
        return task


def steps_of(task: Task) -> int:
    return sum(len(artifact.parts) for artifact in task.artifacts)


@asynccontextmanager
async def running_steps(
    url_of: UrlOf,
    endpoint: str,
    kind: str = "async",
    *,
    marks: tuple[bytes, ...] = ARTIFACT,
    held_requests: tuple[bytes, ...] = (),
) -> AsyncIterator[SteppedRun]:
    """Yield an agent with two clients: one through a proxy, and one connected directly."""
    name, path = ENDPOINTS[endpoint]
    url = url_of(name)
    proxy = Proxy(url.rpartition(":")[2], marks, held_requests)
    async with (
        asyncio.timeout(PATIENCE),
        proxy.listening() as proxy_url,
        connected_client(proxy_url + path, kind) as client,
        A2AClient(url + path) as control,
    ):
        run = SteppedRun(proxy, client, control)
        run.stores_duplicates = endpoint == "sdk03"
        yield run


async def assert_complete(run: SteppedRun, count: int) -> None:
    """Check that the events report all steps once, as the agent does."""
    fetched = await run.control.get_task(run.task.id)
    assert [part.text for part in run.task.artifacts[0].parts] == [str(n + 1) for n in range(count)]
    assert run.task.status.state == fetched.status.state == "completed"
    if not run.stores_duplicates:
        assert run.task.artifacts[0].parts == fetched.artifacts[0].parts
    statuses = [event.status for event in run.events if isinstance(event, TaskStatusUpdateEvent)]
    assert len({(status.state, status.timestamp) for status in statuses}) == len(statuses)


@each_endpoint
@each_kind
async def test_a_stream_resumes_after_its_connection_broke(
    url_of: UrlOf, endpoint: str, kind: str
) -> None:
    async with running_steps(url_of, endpoint, kind) as run:
        reading = asyncio.create_task(run.read(3))
        await run.allow_steps(1)
        await run.proxy.cut.wait()
        while not run.events or steps_of(run.task) < 1:  # noqa: ASYNC110  # no event to await
            await asyncio.sleep(0.01)
        await run.allow_steps(2)
        await reading
        await assert_complete(run, 3)


@each_endpoint
@each_kind
async def test_events_during_a_broken_connection_are_not_lost(
    url_of: UrlOf, endpoint: str, kind: str
) -> None:
    async with running_steps(url_of, endpoint, kind) as run:
        reading = asyncio.create_task(run.read(3))
        await run.allow_steps(1)
        await run.proxy.cut.wait()
        run.proxy.accepting.clear()
        await run.wait_for_events(1)
        await run.allow_steps(1)
        await run.wait_for_steps(2)
        run.proxy.accepting.set()
        await run.wait_for_events(2)
        await run.allow_steps(1)
        await reading
        await assert_complete(run, 3)


@each_endpoint
@each_kind
async def test_the_end_of_a_task_during_a_broken_connection_is_not_lost(
    url_of: UrlOf, endpoint: str, kind: str
) -> None:
    async with running_steps(url_of, endpoint, kind) as run:
        reading = asyncio.create_task(run.read(3))
        await run.allow_steps(1)
        await run.proxy.cut.wait()
        run.proxy.accepting.clear()
        await run.wait_for_events(1)
        await run.allow_steps(2)
        await run.wait_for_end()
        run.proxy.accepting.set()
        await reading
        await assert_complete(run, 3)


@each_endpoint
async def test_a_stream_that_broke_before_its_artifact_resumes(
    url_of: UrlOf, endpoint: str
) -> None:
    async with running_steps(url_of, endpoint, marks=STATUS) as run:
        reading = asyncio.create_task(run.read(2))
        await run.proxy.cut.wait()
        await run.allow_steps(2)
        await reading
        await assert_complete(run, 2)


@each_endpoint
async def test_an_event_between_subscription_and_snapshot_counts_once(
    url_of: UrlOf, endpoint: str
) -> None:
    """If the client also fetches the task, a chunk may be in both the task and the stream."""
    async with running_steps(url_of, endpoint, held_requests=GET) as run:
        reading = asyncio.create_task(run.read(4))
        await run.allow_steps(1)
        await run.proxy.cut.wait()
        await run.wait_for_events(1)
        if "0.3" in endpoint or endpoint == "sdk03":
            await run.proxy.waiting.wait()
        await run.allow_steps(1)
        await run.wait_for_steps(2)
        run.proxy.released.set()
        await run.wait_for_events(2)
        await run.allow_steps(2)
        await reading
        await assert_complete(run, 4)


@each_endpoint
@each_kind
async def test_the_chunks_of_a_broken_stream_are_complete(
    url_of: UrlOf, endpoint: str, kind: str
) -> None:
    async with running_steps(url_of, endpoint, kind) as run:
        chunks: list[Any] = []

        async def read() -> None:
            async for chunk in run.client.stream("steps", f"steps 3 {run.key}"):
                chunks.append(chunk)

        reading = asyncio.create_task(read())
        await run.allow_steps(1)
        await run.proxy.cut.wait()
        run.proxy.accepting.clear()
        await run.allow_steps(2)
        run.proxy.accepting.set()
        await reading
    assert "".join(chunks) == "123"


@each_endpoint
@pytest.mark.parametrize("marks", [ARTIFACT, NO_EVENT], ids=["broken", "whole"])
async def test_a_call_counts_each_chunk_once(
    url_of: UrlOf, endpoint: str, marks: tuple[bytes, ...]
) -> None:
    async with running_steps(url_of, endpoint, marks=marks) as run:
        call = asyncio.create_task(run.client.call("steps", f"steps 3 {run.key}"))
        with suppress(TimeoutError):  # a client may do without a subscription
            await asyncio.wait_for(run.proxy.subscribed.wait(), 1)
        await run.allow_steps(3)
        assert await call == "123"
