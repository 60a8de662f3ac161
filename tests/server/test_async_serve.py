"""The coroutine `async_serve` (FR-SRV-003)."""

import httpx
import pytest
from apcore_a2a_server import async_serve

from .modules import registry

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_async_serve_returns_an_application() -> None:
    app = await async_serve(registry(), name="made by a coroutine", url="https://a.example")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://a.example") as client:
        card = (await client.get("/.well-known/agent.json")).json()

    assert (card["name"], card["url"]) == ("made by a coroutine", "https://a.example/")
