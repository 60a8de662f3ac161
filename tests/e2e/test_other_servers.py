"""The application where others serve it: hypercorn, a foreign application, a web page."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx
import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, new_data_message
from a2a.types import Role, SendMessageRequest, Task, TaskState
from apcore_a2a_server import InMemoryTaskStore, create_app
from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from tests.e2e import modules
from tests.e2e.wire import Json, Rpc
from tests.serving import PATIENCE, listener, running

PREFIX = "/agents/tea"
PAGE = "https://page.example"
FOREIGN = "https://foreign.example"


def ask(skill: str, **inputs: Any) -> Json:
    """The params of a send in 0.3."""
    parts = [{"kind": "data", "data": inputs}]
    message = {"kind": "message", "messageId": "m", "role": "user", "parts": parts}
    return {"message": message, "metadata": {"skillId": skill}}


class Hypercorn:
    """hypercorn, serving in this event loop."""

    def __init__(self, url: str) -> None:
        self.http = httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False)
        self.stop = asyncio.Event()
        self.done: asyncio.Task[None]

    async def call(self, method: str, params: Json) -> Json:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        response = await self.http.post("/", json=request)
        answer: Json = response.json()
        return answer

    @asynccontextmanager
    async def stream(self, params: Json) -> AsyncIterator[AsyncIterator[Json]]:
        request = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": params}
        async with self.http.stream("POST", "/", json=request) as response:
            lines = response.aiter_lines()
            yield (json.loads(line[5:])["result"] async for line in lines if line[:5] == "data:")


@asynccontextmanager
async def hypercorn(app: Starlette, *, grace: float) -> AsyncIterator[Hypercorn]:
    with listener() as sock:
        sock.listen()
        config = Config()
        config.bind = [f"fd://{sock.detach()}"]
        config.graceful_timeout = grace
        config.errorlog = None
        host, port = sock.getsockname() if sock.fileno() >= 0 else ("", 0)
    raise NotImplementedError(host, port)
    yield
