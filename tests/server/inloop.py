"""An agent in the test's own event loop, for tests that depend on the order of events."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    aclosing,
    asynccontextmanager,
    closing,
)
from contextvars import Context as Variables
from dataclasses import dataclass
from socket import socket
from typing import Any, cast

import httpx
import pytest
import uvicorn
from apcore import Context, Executor, ModuleAnnotations, Registry
from apcore_a2a_server import create_app
from apcore_a2a_server.app.agent import Agent as ServerAgent
from starlette.applications import Starlette

from tests.serving import PATIENCE, listener

from .checking_client import ROUTES, Agent, Answer, Json, check_no_leaks, state_of
from .modules import Inputs, Module

DIALECTS = ["0.3", "1.0", "REST"]
NEEDS_APPROVAL = ModuleAnnotations(requires_approval=True)


class ActionModule(Module):
    """A module that awaits *action*, with attributes of modules such as `annotations`."""

    def __init__(
        self, action: Callable[[Inputs, "Context[Any]"], Awaitable[Any]], **attributes: Any
    ) -> None:
        self._action = action
        vars(self).update(attributes)

    async def execute(self, inputs: Inputs, context: "Context[Any]") -> Any:
        return await self._action(inputs, context)


class SyncActionModule(Module):
    """A module that calls *action*, which is synchronous."""

    def __init__(self, action: Callable[[Inputs, "Context[Any]"], Any], **attributes: Any) -> None:
        self._action = action
        vars(self).update(attributes)

    def execute(self, inputs: Inputs, context: "Context[Any]") -> Any:
        return self._action(inputs, context)


class StreamModule(Module):
    """A module that streams the chunks of *source*."""

    def __init__(
        self, source: Callable[[Inputs, "Context[Any]"], AsyncIterator[Any]], **attributes: Any
    ) -> None:
        self._source = source
        vars(self).update(attributes)

    async def execute(self, inputs: Inputs, context: "Context[Any]") -> Any:
        return {"streamed": False}

    async def stream(self, inputs: Inputs, context: "Context[Any]") -> AsyncIterator[Any]:
        async for chunk in self._source(inputs, context):
            yield chunk


class Gate:
    """An action that waits until it is opened, and records its calls and its cancellation."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.canceled = asyncio.Event()
        self.calls: list[Inputs] = []
        self.contexts: list[Any] = []

    async def __call__(self, inputs: Inputs, context: "Context[Any]") -> Inputs:
        self.calls.append(inputs)
        self.contexts.append(context)
        self.reached.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.canceled.set()
            raise
        return {"done": True}


async def echo(inputs: Inputs, context: "Context[Any]") -> Inputs:
    return inputs


def always(output: Any) -> ActionModule:
    """Return a module with a fixed output."""

    async def action(inputs: Inputs, context: "Context[Any]") -> Any:
        return output

    return ActionModule(action)


def registry_of(modules: Mapping[str, object]) -> Registry:
    registry = Registry()
    for name, module in modules.items():
        registry.register(name, module)
    return registry


def app_of(source: Any, **options: Any) -> Starlette:
    """Return the application for any source that `create_app` accepts."""
    defaults = {"url": "http://127.0.0.1", "shutdown_timeout": 0, "allowed_hosts": ["*"]}
    return create_app(source, **{**defaults, **options})


@dataclass(frozen=True)
class Frame:
    """An event of a stream, normalized across the dialects."""

    id: int
    kind: str
    body: Json

    @property
    def state(self) -> str:
        return state_of(self.body)

    @property
    def parts(self) -> list[Any]:
        """The contents of the artifact's parts."""
        return [content_of(part) for part in self.body["artifact"].get("parts", [])]

    @property
    def status_text(self) -> str:
        """The text of the status."""
        text: str = self.body["status"]["message"]["parts"][0]["text"]
        return text

    def __str__(self) -> str:
        return self.kind if self.kind == "artifact" else f"{self.kind} {self.state}"


class Stream:
    """A stream that is being read event by event."""

    def __init__(self, response: httpx.Response, dialect: str) -> None:
        self.response = response
        self._dialect = dialect
        self._frames = self._read()

    def __aiter__(self) -> AsyncIterator[Frame]:
        return self._frames

    async def next(self) -> Frame:
        return await anext(self._frames)

    async def rest(self) -> list[Frame]:
        return [frame async for frame in self._frames]

    async def close(self) -> None:
        await self._frames.aclose()

    async def _read(self) -> AsyncGenerator[Frame]:
        number = 0
        async with aclosing(cast("AsyncGenerator[str]", self.response.aiter_lines())) as lines:
            async for line in lines:
                check_no_leaks(line[:10_000])
                name, _, value = line.partition(": ")
                if name == "id":
                    number = int(value)
                elif name == "data":
                    yield self._frame(number, json.loads(value))

    def _frame(self, number: int, data: Json) -> Frame:
        result = data if self._dialect == "REST" else data["result"]
        if self._dialect == "0.3":
            return Frame(number, result["kind"].removesuffix("-update"), result)
        ((kind, body),) = result.items()
        return Frame(number, kind.removesuffix("Update"), body)


class Peer:
    """A client of an agent in this event loop, in one dialect."""

    def __init__(self, app: Starlette, client: httpx.AsyncClient, dialect: str = "1.0") -> None:
        self.app = app
        self.client = client
        self.dialect = dialect
        self.wire = Agent(cast(Any, None), dialect)  # makes requests, but sends none
        self.agent: ServerAgent = app.state.agent

    def in_dialect(self, dialect: str) -> "Peer":
        """Return a client of the same agent in another dialect."""
        return Peer(self.app, self.client, dialect)

    def part(self, **content: Any) -> Json:
        return self.wire.part(**content)

    async def ask(
        self, operation: str, params: Json | None = None, headers: Json | None = None
    ) -> Answer:
        """Call an operation and read the whole response."""
        response = await self.client.send(self.request(operation, params or {}, headers))
        answer = Answer(response, self.wire.restful)
        answer.check()
        return answer

    async def send(self, skill: Any = "work", *parts: Any, **members: Any) -> Answer:
        """Send a message and wait for its task."""
        return await self.ask("send", self.wire.params(skill, *parts, **members))

    async def start(self, skill: str = "work", *parts: Any, **members: Any) -> str:
        """Send a message without waiting and return the id of its task."""
        options = {"returnImmediately": True} if self.wire.modern else {"blocking": False}
        params = {**self.wire.params(skill, *parts, **members), "configuration": options}
        task_id: str = (await self.ask("send", params)).task["id"]
        return task_id

    async def get(self, task_id: str) -> Json:
        return (await self.ask("get", {"id": task_id})).task

    async def until(self, task_id: str, state: str) -> Json:
        """Wait until a task is in *state* and return it."""
        while state_of(task := await self.get(task_id)) != state:  # noqa: ASYNC110  # it is polled
            await asyncio.sleep(0.005)
        return task

    async def state(self, task_id: str) -> str:
        return state_of(await self.get(task_id))

    @asynccontextmanager
    async def streaming(
        self, operation: str, params: Json, headers: Json | None = None
    ) -> AsyncIterator[Stream]:
        """Open a stream that the test can read event by event."""
        request = self.request(operation, params, headers)
        response = await self.client.send(request, stream=True)
        try:
            if not response.headers["content-type"].startswith("text/event-stream"):
                await response.aread()
                raise AssertionError(response.text)
            stream = Stream(response, self.dialect)
            yield stream
            await stream.close()
        finally:
            await response.aclose()

    def stream(
        self, skill: str = "work", *parts: Any, **members: Any
    ) -> AbstractAsyncContextManager[Stream]:
        """Send a message and open its stream."""
        return self.streaming("stream", self.wire.params(skill, *parts, **members))

    def subscribe(
        self, task_id: str, last: int | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        """Subscribe to the stream of a task."""
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        return self.streaming("subscribe", {"id": task_id}, headers)

    def request(self, operation: str, params: Json, headers: Json | None = None) -> httpx.Request:
        """Return the HTTP request that calls an operation."""
        headers = {**self.wire.headers, **(headers or {})}
        if not self.wire.restful:
            method = self.wire.method(operation)
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return self.client.build_request("POST", "/", json=body, headers=headers)
        verb, path = ROUTES[operation]
        remaining = {name: item for name, item in params.items() if f"{{{name}}}" not in path}
        path = path.format(**params)
        if verb == "POST":
            return self.client.build_request(verb, path, json=remaining, headers=headers)
        return self.client.build_request(verb, path, params=remaining, headers=headers)


@asynccontextmanager
async def serving(source: Any, dialect: str = "1.0", **options: Any) -> AsyncIterator[Peer]:
    """Serve *source* in this event loop, for at most `PATIENCE` seconds.

    Args:
        source: Modules by their ids, any other source of `create_app`, or an application.
        dialect: The dialect of the peer.
        options: For `create_app`.
    """
    with ExitStack() as stack:
        if isinstance(source, dict):
            source = registry_of(source)
        if isinstance(source, Registry):
            source = stack.enter_context(closing(Executor(source)))
        app = source if isinstance(source, Starlette) else app_of(source, **options)
        async with (
            listening(app) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as client,
            asyncio.timeout(PATIENCE),
        ):
            yield Peer(app, client, dialect)


@asynccontextmanager
async def listening(app: Starlette, sock: socket | None = None) -> AsyncIterator[str]:
    """Run uvicorn without its main loop, whose ticks would delay the end of every test.

    Args:
        app: The application.
        sock: The socket to listen on, if not a new one.
    """
    config = uvicorn.Config(app, log_level="warning", lifespan="on")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    with sock or listener() as bound:
        await server.startup([bound])
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            for listening_server in server.servers:
                listening_server.close()
            await server.lifespan.shutdown()


async def wait_until(condition: Callable[[], Any]) -> None:
    """Poll *condition* until it returns a true value, in tests without an event to await."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.002)


def content_of(part: Json) -> Any:
    """Return the content of a part of 1.0 or 0.3."""
    return next(part[name] for name in ("text", "data", "raw", "url", "file") if name in part)


def contents(task: Json) -> list[Any]:
    """Return the contents of the parts of a task's only artifact."""
    (artifact,) = task["artifacts"]
    return [content_of(part) for part in artifact["parts"]]


def metadata_of(task: Json) -> Json:
    """Return the metadata of a task, after checking and removing what every task has.

    Every task has the id of its trace and the time of its creation.
    """
    metadata = {**task["metadata"]}
    own = {**metadata.pop("apcore")}
    assert re.fullmatch("[0-9a-f]{32}", own.pop("traceId"))
    assert "2000" < own.pop("createdAt") <= task["status"]["timestamp"]
    return {**metadata, "apcore": own} if own else metadata


def gapless(frames: Iterable[Frame], first: int = 1) -> bool:
    """Return whether the ids of *frames* are consecutive, starting with *first*."""
    ids = [frame.id for frame in frames]
    return ids == list(range(first, first + len(ids)))


class LateCallbackLoop(asyncio.SelectorEventLoop):
    """An event loop that drops callbacks from other threads once it is closed.

    gRPC has one thread for the loops of all tests. Operations that a test has canceled may end
    after its loop was closed. The loop of the next test then forwards their callbacks, which would
    raise "Event loop is closed" there.
    """

    def call_soon_threadsafe(  # type: ignore[override]  # typeshed has a TypeVarTuple here
        self, callback: Callable[..., object], *args: Any, context: Variables | None = None
    ) -> asyncio.Handle:
        if not self.is_closed():
            return super().call_soon_threadsafe(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        handle.cancel()
        return handle


@pytest.fixture
def anyio_backend() -> tuple[str, Any]:
    return "asyncio", {"loop_factory": LateCallbackLoop}
