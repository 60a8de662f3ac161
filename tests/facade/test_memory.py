"""The resident memory of an agent, and the size of its SQLite file, with large messages."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.checking_client import MODERN, state_of

from .processes import Process, agent_client, process, serve_command

pytestmark = pytest.mark.process

MIB = 1024 * 1024
LIMIT = 32 * MIB
"""The bound on memory, in bytes: an eighth of the default."""
MESSAGE = 9 * MIB // 8
"""Length of a text: an eighth of one that nearly reaches the default of `max_body`."""
STORES = ["memory", "sqlite"]
FORGET = """
from pydantic import BaseModel

class Text(BaseModel):
    text: str

class Nothing(BaseModel):
    pass

class Forget:
    description = "Does nothing with a text"
    input_schema = Text
    output_schema = Nothing

    def execute(self, inputs, context):
        return {}
"""


def resident_memory(served_process: Process) -> int:
    """Return the resident memory of a process in bytes."""
    status = Path(f"/proc/{served_process.id}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match
    return int(match[1]) * 1024


@pytest.fixture(params=STORES)
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Process]:
    """Serve a skill with a store in memory, and with one in a SQLite file."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "forget.py").write_text(FORGET)
    store = "memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'agent.db'}"
    command = serve_command(modules, task_store=store, limits={"memory": LIMIT})
    with process(command, tmp_path) as agent_process:
        yield agent_process


def test_sixty_large_sends_add_less_than_twice_the_bound(agent: Process, tmp_path: Path) -> None:
    with agent_client(agent) as caller:
        params = caller.params("forget", caller.part(text="x" * MESSAGE))
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        before = resident_memory(agent)
        for _ in range(60):
            response = httpx.post(agent.url, json=request, headers=MODERN, trust_env=False)
            assert state_of(response.json()["result"]["task"]) == "completed"
        assert resident_memory(agent) - before < 2 * LIMIT
    written = sum(path.stat().st_size for path in tmp_path.glob("agent.db*"))
    assert written < 1.1 * 62 * MESSAGE  # SQLite keeps each message once


def test_unfinished_bodies_add_less_than_twice_the_bound(agent: Process) -> None:
    url = urlsplit(agent.url)
    head = f"POST / HTTP/1.1\r\nhost: {url.netloc}\r\ncontent-length: {MESSAGE + 1}\r\n\r\n"
    before = resident_memory(agent)
    with ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(socket.create_connection((url.hostname, url.port)))
            client.sendall(head.encode() + b" " * MESSAGE)
        with agent_client(agent) as caller:
            assert caller.send("forget", caller.part(text="x")).state == "completed"
        assert resident_memory(agent) - before < 2 * LIMIT
