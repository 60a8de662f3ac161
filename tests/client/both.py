"""Both clients behind one interface, and our own server with each binding that they support."""

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
"""Clients to test."""
DIALECTS = ["1.0", "0.3", "REST"]
"""Bindings to test."""
POLLED = " without streams"
"""Suffix of a dialect: the Agent Card declares no streaming."""
CARD = "/.well-known/agent-card.json"

each_kind = pytest.mark.parametrize("kind", KINDS)
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


class ThreadedClient:
    """`SyncA2AClient` with the interface of `A2AClient`: runs each step in a thread."""

    def __init__(self, client: SyncA2AClient) -> None:
        self._client = client

    @property
    def agent_card(self) -> Awaitable[AgentCard]:
        return asyncio.to_thread(lambda: self._client.agent_card)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._client.close)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        async def call_in_thread(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        async def iterate_in_threads(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
            items: Iterator[Any] = method(*args, **kwargs)
            end = object()
            try:
                while (item := await asyncio.to_thread(next, items, end)) is not end:
                    yield item
            finally:
                await asyncio.to_thread(cast("Any", items).close)

        return iterate_in_threads if isgeneratorfunction(method) else call_in_thread


@asynccontextmanager
async def connected_client(
    url: str, kind: str = "async", **options: Any
) -> AsyncIterator[A2AClient]:
    """Yield a client of the agent at *url*; *kind* "sync" runs each call in a thread."""
    if kind == "async":
        async with A2AClient(url, **options) as client:
            yield client
    else:
        with SyncA2AClient(url, **options) as blocking:
            yield cast(A2AClient, ThreadedClient(blocking))


@dataclass
class RequestLog:
    """Paths and statuses of a server's answers, and the number of requests in progress."""

    answers: list[tuple[str, int]] = field(default_factory=list)
    open_requests: int = 0

    @property
    def card_statuses(self) -> list[int]:
        """HTTP statuses of the answers to requests for the Agent Card."""
        return [status for path, status in self.answers if path.endswith(CARD)]


class RequestLogMiddleware:
    """Middleware that records requests and the statuses of their answers."""

    def __init__(self, app: ASGIApp, request_log: RequestLog) -> None:
        self._app = app
        self._request_log = request_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._request_log.answers.append((scope["path"], message["status"]))
            await send(message)

        self._request_log.open_requests += scope["type"] == "http"
        try:
            await self._app(scope, receive, send_logged)
        finally:
            self._request_log.open_requests -= scope["type"] == "http"


@dataclass
class ServedAgent:
    """Agent served in this event loop."""

    url: str
    app: Starlette
    request_log: RequestLog

    def base_url(self, dialect: str) -> str:
        """Return the base URL whose card lists only *dialect*, which may have the suffix POLLED."""
        return f"{self.url}/{quote(dialect)}"

    async def card(self, request: Request) -> JSONResponse:
        """Answer with the Agent Card of the base URL in the request."""
        dialect = request.path_params["dialect"]
        binding = ("HTTP+JSON", "1.0") if dialect == "REST" else ("JSONRPC", dialect[:3])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app)) as http:
            card = (await http.get(self.url + CARD)).json()
        interfaces = {(i["protocolBinding"], i["protocolVersion"]): i for i in card[INTERFACES]}
        card["capabilities"]["streaming"] = not dialect.endswith(POLLED)
        return JSONResponse({**card, INTERFACES: [interfaces[binding]]})


INTERFACES = "supportedInterfaces"


@asynccontextmanager
async def serving_agent(source: Any, **options: Any) -> AsyncIterator[ServedAgent]:
    """Serve *source* in this event loop, for at most PATIENCE seconds.

    Args:
        source: Modules by id, or the first argument of `create_app`.
        options: Options of `create_app`.
    """
    request_log = RequestLog()
    outer = Starlette(middleware=[Middleware(RequestLogMiddleware, request_log=request_log)])
    with ExitStack() as stack:
        if isinstance(source, dict):
            source = stack.enter_context(closing(Executor(registry_of(source))))
        async with asyncio.timeout(PATIENCE), listening(outer) as url:
            inner = create_app(source, **{"url": url, "shutdown_timeout": 0, **options})
            result = ServedAgent(url, inner, request_log)
            outer.add_route(f"/{{dialect}}{CARD}", result.card)
            outer.mount("/", inner)
            async with inner.router.lifespan_context(inner):
                yield result
