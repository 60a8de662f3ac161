"""The path of a send through our own files is short enough to read."""

import sys
from pathlib import Path
from types import FrameType

import httpx
import pytest
from apcore import Registry
from apcore_a2a_server import create_app

from .modules import Mirror

PACKAGES = Path(__file__).parents[2] / "packages"
URL = "http://agent.example"
MAX_FILES = 30
SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": {"n": 1}}]},
        "metadata": {"skillId": "mirror"},
    },
}


@pytest.mark.anyio
async def test_a_send_passes_through_at_most_thirty_of_our_files() -> None:
    registry = Registry()
    registry.register("mirror", Mirror())
    app = create_app(registry, url=URL)
    files: set[str] = set()

    def record_file(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGES)):
            files.add(frame.f_code.co_filename)

    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://agent.example"
        ) as client:
            await client.post("/", json=SEND)  # the first send fills caches
            before = sys.getprofile()
            sys.setprofile(record_file)
            try:
                answer = await client.post("/", json=SEND)
            finally:
                sys.setprofile(before)

    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert len(files) <= MAX_FILES, "\n".join(sorted(files))
