"""The number of reads and writes that a send costs."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.checking_client import MODERN
from tools.benchmarks.apps import ours
from tools.benchmarks.measured_stores import (
    MEMORY,
    POSTGRESQL,
    SQLITE,
    StoreCalls,
    open_counting_store,
)

pytestmark = [pytest.mark.anyio, pytest.mark.smoke]


@pytest.fixture(params=[MEMORY, SQLITE, pytest.param(POSTGRESQL, marks=pytest.mark.database)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == POSTGRESQL:
        server = request.getfixturevalue("server")
        server.clear()
        yield server.url
    else:
        yield "memory" if request.param == MEMORY else f"sqlite:///{tmp_path / 'agent.db'}"


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_a_task_is_written_twice_and_read_once_at_most(address: str, method: str) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"text": "hello"}}]}
    params = {"message": message, "metadata": {"skillId": "bench.noop"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    calls = StoreCalls()
    app = await ours(open_counting_store(address, calls))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        answer = await client.post("/", json=body, headers=MODERN)
    assert "TASK_STATE_COMPLETED" in answer.text
    assert calls.writes == 2
    assert calls.reads <= 1
