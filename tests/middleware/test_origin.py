"""Requests from web pages of other origins are refused."""

import httpx
import pytest
from apcore_a2a_server.middleware import FrontMiddleware
from starlette.responses import PlainTextResponse

AGENT = "http://agent.example:8000"


async def status_for(origin: str) -> int:
    app = FrontMiddleware(PlainTextResponse("done"))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=AGENT) as client:
        return (await client.post("/", headers={"origin": origin})).status_code


@pytest.mark.anyio
async def test_a_page_of_the_agents_origin_may_call() -> None:
    assert await status_for(AGENT) == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    "origin",
    [
        "http://evilagent.example:8000",
        "http://agent.example:8000.evil.example",
        "http://evil.example/agent.example:8000",
        "http://agent.example",
        "http://agent.example:80001",
        "https://agent.example:8000",
        "null",
    ],
)
async def test_a_page_of_a_similar_origin_may_not_call(origin: str) -> None:
    assert await status_for(origin) == 403
