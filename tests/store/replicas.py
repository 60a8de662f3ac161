"""Agents in processes of their own, that share a store or come back to it."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.facade.processes import Process, process
from tests.server.asking import MODERN, state_of

Json = dict[str, Any]

LEASE = 1.5
"""Seconds that a lease lasts in these tests."""
PATIENCE = 60
"""Seconds after which what has not happened is taken for a fault."""
ENDED = ("completed", "failed", "canceled", "rejected")

SERVE = """
import sys
from apcore_a2a_server import serve
from apcore_a2a_server.store import open_store

store = open_store(sys.argv[2])
store.lease_seconds = float(sys.argv[3])
serve(sys.argv[1], host="127.0.0.1", port=0, task_store=store, shutdown_timeout=1)
"""

MODULE = """
import asyncio
import os
import time
from contextlib import contextmanager
from pathlib import Path

from apcore import ModuleAnnotations
from apcore_a2a_server.modules import InputRequiredError
from pydantic import BaseModel


class Inputs(BaseModel):
    seconds: float = 0
    steps: int = 0


class Output(BaseModel):
    seconds: float


class {kind}:
    description = "Works for some time, and counts how often it has begun"
    input_schema = Inputs
    output_schema = Output
    annotations = ModuleAnnotations({annotations})

    async def execute(self, inputs, context):
        with self.noting(context):
            await asyncio.sleep(inputs["seconds"])
        return {{"seconds": inputs["seconds"]}}

    @contextmanager
    def noting(self, context):
        self.note(context, "begin")
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self.note(context, "cancel")
            raise
        self.note(context, "end")

    def note(self, context, what):
        with Path("starts").open("a") as file:
            print(context.data["ext.a2a.task_id"], what, time.time(), os.getpid(), file=file)
"""
STREAM = """
    async def stream(self, inputs, context):
        with self.noting(context):
            for step in range(inputs["steps"]):
                await asyncio.sleep(inputs["seconds"])
                yield {"seconds": float(step)}
"""
TICKS = STREAM.replace("float(step)", "time.time()")
WANTS = """
    async def execute(self, inputs, context):
        if not inputs["seconds"]:
            raise InputRequiredError("How long?")
        with self.noting(context):
            await asyncio.sleep(inputs["seconds"])
        return {"seconds": inputs["seconds"]}
"""
MODULES = {
    "once": "",
    "again": "idempotent=True",
    "steps": "readonly=True, streaming=True",
    "ticks": "readonly=True, streaming=True",
    "asks": "requires_approval=True",
    "wants": "",
}
MORE = {"steps": STREAM, "ticks": TICKS, "wants": WANTS}


def modules(home: Path) -> Path:
    """The modules of these tests, in a folder of *home*."""
    folder = home / "extensions"
    folder.mkdir(exist_ok=True)
    for name, annotations in MODULES.items():
        source = MODULE.format(kind=name.capitalize(), annotations=annotations)
        (folder / f"{name}.py").write_text(source + MORE.get(name, ""))
    return folder


class Note(NamedTuple):
    """What a module has noted: that it has begun, has ended, or was canceled.

    Attributes:
        task_id: the task.
        what: "begin", "end" or "cancel".
        at: seconds since 1970.
        process: the id of the process that ran it.
    """

    task_id: str
    what: str
    at: float
    process: int


def notes(home: Path) -> list[Note]:
    """What the modules of *home* have noted."""
    path = home / "starts"
    lines = path.read_text().splitlines() if path.exists() else []
    fields = (line.split() for line in lines)
    return [Note(task_id, what, float(at), int(pid)) for task_id, what, at, pid in fields]


class Agent:
    """An agent at an address, and what can be asked of it.

    Args:
        url: Where it serves.
        home: Where its modules leave their notes.
        options: How it is called, for httpx.
    """

    def __init__(self, url: str, home: Path, **options: Any) -> None:
        self.url = url
        self.home = home
        self.client = httpx.Client(base_url=url, headers=MODERN, timeout=PATIENCE, **options)

    def ask(self, method: str, **params: Any) -> Json:
        """The answer, whatever it is."""
        found: Json = self.client.post("/", json=self.request(method, **params)).json()
        return found

    def request(self, method: str, **params: Any) -> Json:
        """The body of a request."""
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    def start(self, skill: str, **inputs: Any) -> str:
        """Begin a task, and give its id."""
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": inputs}]}
        answer = self.ask(
            "SendMessage",
            message=message,
            metadata={"skillId": skill},
            configuration={"returnImmediately": True},
        )
        task_id: str = answer["result"]["task"]["id"]
        return task_id

    def say(self, task_id: str, text: str) -> Json:
        """Answer a paused task; the task then."""
        message = {"messageId": "a", "role": "ROLE_USER", "parts": [{"text": text}]}
        answer = self.ask("SendMessage", message={**message, "taskId": task_id})
        found: Json = answer["result"]["task"]
        return found

    def task(self, task_id: str) -> Json:
        found: Json = self.ask("GetTask", id=task_id)["result"]
        return found

    def state(self, task_id: str) -> str:
        return state_of(self.task(task_id))

    def ended(self, *task_ids: str) -> list[str]:
        """The states of tasks that have all ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            states = [self.state(task_id) for task_id in task_ids]
            if all(state in ENDED for state in states):
                return states
            assert time.monotonic() < deadline, states
            time.sleep(0.05)

    def events(self, task_id: str, after: int = 0) -> list[tuple[int, Json]]:
        """The events of a task behind one, to its end."""
        return [*self.follow(task_id, after)]

    def follow(self, task_id: str, after: int = 0) -> Iterator[tuple[int, Json]]:
        """The same, as they come."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
        headers = {"last-event-id": str(after)}
        with self.client.stream("POST", "/", json=body, headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream"), stream.read()
            yield from _events(stream.iter_lines())

    @contextmanager
    def stream(self, skill: str, **inputs: Any) -> Iterator[Iterator[tuple[int, Json]]]:
        """Begin a task, and read its events as they come."""
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": inputs}]}
        params = {"message": message, "metadata": {"skillId": skill}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
        with self.client.stream("POST", "/", json=body) as stream:
            yield _events(stream.iter_lines())

    def starts(self, task_id: str) -> int:
        """How often a module has begun for a task."""
        begun = [note.task_id for note in notes(self.home) if note.what == "begin"]
        return begun.count(task_id)


class Replica(Agent):
    """A process that serves, and what can be asked of it."""

    def __init__(self, process: Process, home: Path) -> None:
        super().__init__(process.url, home)
        self.process = process


def _events(lines: Iterator[str]) -> Iterator[tuple[int, Json]]:
    number = 0
    for line in lines:
        if line.startswith("id:"):
            number = int(line[3:])
        elif line.startswith("data:"):
            yield number, json.loads(line[5:])["result"]


@contextmanager
def replica(home: Path, store: str, lease: float = LEASE) -> Iterator[Replica]:
    """A process that serves the modules of *home* from a store."""
    command = [sys.executable, "-c", SERVE, str(modules(home)), store, str(lease)]
    with process(command, home) as found:
        served = Replica(found, home)
        with served.client:
            yield served
        found.end(signal.SIGTERM)


def words(events: list[tuple[int, Json]]) -> list[str]:
    """What a task has said with its states."""
    statuses = [event["statusUpdate"]["status"] for _, event in events if "statusUpdate" in event]
    return [part["text"] for s in statuses if "message" in s for part in s["message"]["parts"]]


def hold(events: list[tuple[int, Json]]) -> None:
    """What holds for the log of every task that has ended."""
    versions = [version for version, _ in events]
    assert versions == list(range(1, len(versions) + 1)), "there are gaps"
    states = [state_of(e["statusUpdate"]) for _, e in events if "statusUpdate" in e]
    assert [state for state in states if state in ENDED] == states[-1:], states
    assert "statusUpdate" in events[-1][1], "something came behind the end"
