"""Chains of three processes, each started by `apcore-a2a serve`."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from apcore_a2a_client import (
    A2AClient,
    InputRequired,
    TaskArtifactUpdateEvent,
    TaskFailedError,
)

from tests.facade.processes import COMMAND, Process, process
from tests.server.inloop import anyio_backend as anyio_backend
from tests.server.inloop import wait_until
from tests.serving import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.process]

MODULES = {
    "count.py": """
import asyncio
from pathlib import Path

class Count:
    description = "Counts, as far as the files in the working folder allow."
    input_schema = output_schema = Free

    async def stream(self, inputs, context):
        for number in range(3):
            while number and not Path(f"go{number}").exists():
                await asyncio.sleep(0.01)
            yield {f"number{number}": number}

    async def execute(self, inputs, context):
        return {"number": 3}
""",
    "ask.py": """
class Ask:
    description = "Asks for a day."
    input_schema = output_schema = Free

    def execute(self, inputs, context):
        if context.services.answer is None:
            context.services.ask("Which day?", data={"calendar": "work"})
        return {"answer": list(context.services.answer)}
""",
    "wipe.py": """
from apcore import ModuleAnnotations

class Wipe:
    description = "Needs approval."
    input_schema = output_schema = Free
    annotations = ModuleAnnotations(requires_approval=True)

    def execute(self, inputs, context):
        return {"wiped": inputs["path"]}
""",
    "wait.py": """
import asyncio
from pathlib import Path

class Wait:
    description = "Waits until it is canceled."
    input_schema = output_schema = Free

    async def execute(self, inputs, context):
        Path("reached").touch()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            Path("canceled").touch()
            raise
""",
}
SCHEMA = """
from pydantic import BaseModel

class Free(BaseModel, extra="allow"):
    pass

"""
KEY = "a-key-for-all-agents-of-the-chain"
VARIABLES = {"APCORE_A2A_AUTH_TYPE": "apikey", "APCORE_A2A_AUTH_KEY": KEY}


class Chain:
    """Three processes: the first serves the second's skills, and the second the third's.

    Attributes:
        folder: The working folder of the processes.
        processes: The processes, beginning with the one to call.
    """

    def __init__(self, folder: Path, processes: list[Process], urls: list[str]) -> None:
        self.folder = folder
        self.processes = processes
        self.urls = urls

    def client(self, number: int = 0) -> A2AClient:
        return A2AClient(self.urls[number], headers={"x-api-key": KEY}, timeout=PATIENCE)

    async def wait_for_file(self, name: str) -> None:
        """Wait for a file of the third process."""
        await wait_until((self.folder / name).exists)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / name).write_text(SCHEMA + text, encoding="utf-8")
    with ExitStack() as stack:
        listen = ["--host", "127.0.0.1", "--port", "0"]
        command = [*COMMAND, "serve", str(folder), *listen]
        processes = [stack.enter_context(process(command, tmp_path, VARIABLES))]
        for name in "cb":
            remote = f"{name}={processes[0].url}"
            variables = {**VARIABLES, f"APCORE_A2A_REMOTE_KEY_{name.upper()}": KEY}
            command = [*COMMAND, "serve", "--remote", remote, *listen]
            processes.insert(0, stack.enter_context(process(command, tmp_path, variables)))
        yield Chain(tmp_path, processes, [server.url for server in processes])


async def states(chain: Chain, *numbers: int) -> list[list[str]]:
    """Return the states of all tasks of some of the processes."""
    states_by_process: list[list[str]] = []
    for number in numbers:
        async with chain.client(number) as client:
            states_by_process.append([str(task.status.state) async for task in client.iter_tasks()])
    return states_by_process


async def test_a_stream_passes_chunk_by_chunk(chain: Chain) -> None:
    chunks: list[Any] = []
    async with chain.client() as client:
        async for event in client.stream_message({}, skill="remote.b.c.count"):
            if isinstance(event, TaskArtifactUpdateEvent):
                chunks += [part.data for part in event.artifact.parts if part.data]
                (chain.folder / f"go{len(chunks)}").touch()
    assert chunks == [{"number0": 0}, {"number1": 1}, {"number2": 2}]


async def test_a_question_and_an_approval_pass_through_all_three_processes(chain: Chain) -> None:
    async with chain.client() as client:
        with pytest.raises(InputRequired) as asked:
            await client.call("remote.b.c.ask", {})
        assert await states(chain, 0, 1, 2) == [["input-required"]] * 3
        task = await client.reply(asked.value.task, "Friday")
        assert task.value == {"answer": [{"text": "Friday"}]}
        for answer, state in [("yes", "completed"), ("no", "rejected")]:
            with pytest.raises(InputRequired) as asked:
                await client.call("remote.b.c.wipe", {"path": "a"})
            task = await client.reply(asked.value.task, answer)
            assert task.status.state == state
    assert await states(chain, 0, 1, 2) == [["rejected", "completed", "completed"]] * 3


async def test_a_cancel_reaches_the_last_process(chain: Chain) -> None:
    async with chain.client() as client:
        task = await client.send_message({}, skill="remote.b.c.wait", blocking=False)
        await chain.wait_for_file("reached")
        await client.cancel_task(task.id)
        await chain.wait_for_file("canceled")
    assert await states(chain, 0, 1, 2) == [["canceled"]] * 3


async def test_a_call_fails_if_the_agent_in_the_middle_is_killed(chain: Chain) -> None:
    async with chain.client() as client:
        call = asyncio.create_task(client.call("remote.b.c.wait", {}))
        await chain.wait_for_file("reached")
        chain.processes[1].signal(signal.SIGKILL)
        with pytest.raises(TaskFailedError) as failed:
            await call
        data: Any = failed.value.data
        assert data["type"] == "RemoteFailedError"
        with pytest.raises(TaskFailedError):
            await client.call("remote.b.c.wait", {})
    # the last agent lost its client: whether its task ends is a matter of disconnect_grace
    assert await states(chain, 0) == [["failed", "failed"]]
