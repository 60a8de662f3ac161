"""One shared server for all tests that only need its responses."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.serving import PATIENCE, running

from .checking_client import Agent
from .modules import app


class Host:
    """An ASGI application that records the event loop it runs in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.loop: asyncio.AbstractEventLoop | None = None
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.loop = asyncio.get_running_loop()
        await self._app(scope, receive, send)

    def tasks(self) -> int:
        """Return the number of asyncio tasks in the loop, except the one that counts them."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(count(), self.loop).result(PATIENCE)


def eventually(condition: Callable[[], Any]) -> Any:
    """Poll *condition* until it returns a true value, and return that."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)
    return value


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    host = Host(app())
    gc.collect()
    gc.freeze()  # as `serve` does: the tests' own objects would slow the server's collections
    with running(host) as host.url:
        yield host


@pytest.fixture(scope="session")
def client(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, trust_env=False, timeout=PATIENCE) as client:
        yield client


@pytest.fixture(params=["0.3", "1.0", "REST"])
def agent(client: httpx.Client, request: pytest.FixtureRequest) -> Agent:
    """Return a client of the agent in one of the three dialects."""
    return Agent(client, request.param)


@pytest.fixture(params=["0.3", "1.0"])
def rpc(client: httpx.Client, request: pytest.FixtureRequest) -> Agent:
    """Return a client of the agent in one of the JSON-RPC dialects."""
    return Agent(client, request.param)


@pytest.fixture
def rpc_v03(client: httpx.Client) -> Agent:
    """Return a client of the agent in JSON-RPC of A2A 0.3."""
    return Agent(client, "0.3")


@pytest.fixture
def rpc_v10(client: httpx.Client) -> Agent:
    """Return a client of the agent in JSON-RPC of A2A 1.0."""
    return Agent(client, "1.0")


@pytest.fixture
def rest(client: httpx.Client) -> Agent:
    """Return a client of the agent in HTTP+JSON."""
    return Agent(client, "REST")
