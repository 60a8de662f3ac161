"""Both clients, asked in the same way, and our own server by each of its bindings."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from inspect import isgeneratorfunction
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
from apcore import Executor
from apcore_a2a_client import A2AClient, AgentCard, SyncA2AClient
from apcore_a2a_server import create_app
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.server.inloop import listening, registry_of
from tests.serving import PATIENCE

KINDS = ["async", "sync"]
"""The clients."""
WAYS = ["1.0", "0.3", "REST"]
"""The bindings."""
POLLED = " without streams"
"""What the name of a way ends with whose card tells of no streams."""
CARD = "/.well-known/agent-card.json"

each_kind = pytest.mark.parametrize("kind", KINDS)
each_way = pytest.mark.parametrize("way", WAYS)


class InThread:
    """A `SyncA2AClient` with the interface of `A2AClient`: each of its steps is in a thread."""

    def __init__(self, client: SyncA2AClient) -> None:
        self._client = client

    @property
    def agent_card(self) -> Awaitable[AgentCard]:
        return asyncio.to_thread(lambda: self._client.agent_card)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._client.close)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        async def iterated(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
            items: Iterator[Any] = method(*args, **kwargs)
            end = object()
            try:
                while (item := await asyncio.to_thread(next, items, end)) is not end:
                    yield item
            finally:
                await asyncio.to_thread(cast("Any", items).close)

        return iterated if isgeneratorfunction(method) else awaited


@asynccontextmanager
async def asking(url: str, kind: str = "async", **options: Any) -> AsyncIterator[A2AClient]:
    """A client of the agent at *url*; with *kind* "sync" each of its calls is in a thread."""
    if kind == "async":
        async with A2AClient(url, **options) as client:
            yield client
    else:
        with SyncA2AClient(url, **options) as blocking:
            yield cast(A2AClient, InThread(blocking))


@dataclass
class Seen:
    """What a server has answered, and how many requests it is still busy with."""

    answers: list[tuple[str, int]] = field(default_factory=list)
    open: int = 0

    @property
    def cards(self) -> list[int]:
        """The statuses of the answers to requests of the card."""
        return [status for path, status in self.answers if path.endswith(CARD)]


class Log:
    """Middleware that keeps what was asked and how it was answered."""

    def __init__(self, app: ASGIApp, seen: Seen) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._seen.answers.append((scope["path"], message["status"]))
            await send(message)

        self._seen.open += scope["type"] == "http"
        try:
            await self._app(scope, receive, sending)
        finally:
            self._seen.open -= scope["type"] == "http"


@dataclass
class Served:
    """An agent that is served in this event loop."""

    url: str
    app: Starlette
    seen: Seen

    def by(self, way: str) -> str:
        """A base URL, whose card lists only the binding of *way*; of POLLED ones no streams."""
        return f"{self.url}/{quote(way)}"

    async def card(self, request: Request) -> JSONResponse:
        """The card below that URL."""
        way = request.path_params["way"]
        binding = ("HTTP+JSON", "1.0") if way == "REST" else ("JSONRPC", way[:3])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app)) as http:
            found = (await http.get(self.url + CARD)).json()
        known = {(i["protocolBinding"], i["protocolVersion"]): i for i in found[INTERFACES]}
        found["capabilities"]["streaming"] = not way.endswith(POLLED)
        return JSONResponse({**found, INTERFACES: [known[binding]]})


INTERFACES = "supportedInterfaces"


@asynccontextmanager
async def served(source: Any, **options: Any) -> AsyncIterator[Served]:
    """Serve *source* in this event loop, for as long as a test may take.

    Args:
        source: Modules by their ids, or what `create_app` takes.
        options: For `create_app`.
    """
    seen = Seen()
    outer = Starlette(middleware=[Middleware(Log, seen=seen)])
    with ExitStack() as stack:
        if isinstance(source, dict):
            source = stack.enter_context(closing(Executor(registry_of(source))))
        async with asyncio.timeout(PATIENCE), listening(outer) as url:
            inner = create_app(source, **{"url": url, "shutdown_timeout": 0, **options})
            result = Served(url, inner, seen)
            outer.add_route(f"/{{way}}{CARD}", result.card)
            outer.mount("/", inner)
            async with inner.router.lifespan_context(inner):
                yield result
