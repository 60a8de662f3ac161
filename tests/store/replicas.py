"""Replicas: agents in separate processes that share a store or are restarted on it."""

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
from tests.server.checking_client import MODERN, state_of

Json = dict[str, Any]

LEASE = 1.5
"""Seconds that a lease lasts in most tests."""
TIMEOUT = 60
"""Seconds after which a wait fails."""
ENDED = ("completed", "failed", "canceled", "rejected")

SERVE = """
import json
import sys
from apcore_a2a_server import serve
from apcore_a2a_server.store import open_store

store = open_store(sys.argv[2])
store.lease_seconds = float(sys.argv[3])
options = {"shutdown_timeout": 1, **json.loads(sys.argv[4])}
serve(sys.argv[1], host="127.0.0.1", task_store=store, **options)
"""

MODULE = """
import asyncio
import os
import time
from contextlib import contextmanager
from pathlib import Path

from apcore import ModuleAnnotations
from apcore_a2a_core import InputRequiredError
from pydantic import BaseModel


class Inputs(BaseModel):
    seconds: float = 0
    steps: int = 0


class Output(BaseModel):
    seconds: float


class {kind}:
    description = "Sleeps for some time and notes its starts and ends"
    input_schema = Inputs
    output_schema = Output
    annotations = ModuleAnnotations({annotations})

    async def execute(self, inputs, context):
        with self.start_and_end_noted(context):
            await asyncio.sleep(inputs["seconds"])
        return {{"seconds": inputs["seconds"]}}

    @contextmanager
    def start_and_end_noted(self, context):
        self.note(context, "begin")
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self.note(context, "cancel")
            raise
        self.note(context, "end")

    def note(self, context, event):
        with Path("notes").open("a") as file:
            print(context.data["ext.a2a.task_id"], event, time.time(), os.getpid(), file=file)
"""
STREAM = """
    async def stream(self, inputs, context):
        with self.start_and_end_noted(context):
            for step in range(inputs["steps"]):
                await asyncio.sleep(inputs["seconds"])
                yield {"seconds": float(step)}
"""
TICKS = STREAM.replace("float(step)", "time.time()")
WANTS = """
    async def execute(self, inputs, context):
        if not inputs["seconds"]:
            raise InputRequiredError("How long?")
        with self.start_and_end_noted(context):
            await asyncio.sleep(inputs["seconds"])
        return {"seconds": inputs["seconds"]}
"""
ANNOTATIONS = {
    "once": "",
    "again": "idempotent=True",
    "steps": "readonly=True, streaming=True",
    "ticks": "readonly=True, streaming=True",
    "asks": "requires_approval=True",
    "wants": "",
}
EXTRA_METHODS = {"steps": STREAM, "ticks": TICKS, "wants": WANTS}


def write_modules(home: Path) -> Path:
    """Write the modules of these tests into a folder in *home*; return the folder."""
    folder = home / "extensions"
    folder.mkdir(exist_ok=True)
    for name, annotations in ANNOTATIONS.items():
        source = MODULE.format(kind=name.capitalize(), annotations=annotations)
        (folder / f"{name}.py").write_text(source + EXTRA_METHODS.get(name, ""))
    return folder


class Note(NamedTuple):
    """A module's note of its start, its end, or its cancellation.

    Attributes:
        task_id: the task that the module ran for.
        event: "begin", "end" or "cancel".
        at: seconds since 1970.
        process: the id of the process that the module ran in.
    """

    task_id: str
    event: str
    at: float
    process: int


def notes(home: Path) -> list[Note]:
    """Return the notes of the modules in *home*."""
    path = home / "notes"
    lines = path.read_text().splitlines() if path.exists() else []
    fields = (line.split() for line in lines)
    return [Note(task_id, event, float(at), int(pid)) for task_id, event, at, pid in fields]


class Agent:
    """A client of the agent at an address.

    Args:
        url: The agent's URL.
        home: The folder with its modules' notes.
        options: Options for `httpx.Client`.
    """

    def __init__(self, url: str, home: Path, **options: Any) -> None:
        self.url = url
        self.home = home
        self.client = httpx.Client(base_url=url, headers=MODERN, timeout=TIMEOUT, **options)

    def ask(self, method: str, **params: Any) -> Json:
        """Call *method* and return the response, a result or an error."""
        response: Json = self.client.post("/", json=self.request(method, **params)).json()
        return response

    def request(self, method: str, **params: Any) -> Json:
        """Return the body of a request."""
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    def start(self, skill: str, **inputs: Any) -> str:
        """Start a task and return its id."""
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": inputs}]}
        answer = self.ask(
            "SendMessage",
            message=message,
            metadata={"skillId": skill},
            configuration={"returnImmediately": True},
        )
        task_id: str = answer["result"]["task"]["id"]
        return task_id

    def answer(self, task_id: str, text: str) -> Json:
        """Answer a paused task and return the updated task."""
        message = {"messageId": "a", "role": "ROLE_USER", "parts": [{"text": text}]}
        answer = self.ask("SendMessage", message={**message, "taskId": task_id})
        task: Json = answer["result"]["task"]
        return task

    def task(self, task_id: str) -> Json:
        task: Json = self.ask("GetTask", id=task_id)["result"]
        return task

    def state(self, task_id: str) -> str:
        return state_of(self.task(task_id))

    def wait_for_end(self, *task_ids: str) -> list[str]:
        """Wait until tasks have ended and return their states."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            states = [self.state(task_id) for task_id in task_ids]
            if all(state in ENDED for state in states):
                return states
            assert time.monotonic() < deadline, states
            time.sleep(0.05)

    def events(self, task_id: str, after: int = 0) -> list[tuple[int, Json]]:
        """Return the events of a task after the version *after*, to its end."""
        return [*self.follow(task_id, after)]

    def follow(self, task_id: str, after: int = 0) -> Iterator[tuple[int, Json]]:
        """Yield the events of a task after the version *after* as they arrive."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
        headers = {"last-event-id": str(after)}
        with self.client.stream("POST", "/", json=body, headers=headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream"), stream.read()
            yield from _events(stream.iter_lines())

    @contextmanager
    def stream(self, skill: str, **inputs: Any) -> Iterator[Iterator[tuple[int, Json]]]:
        """Start a task and yield an iterator over its events as they arrive."""
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": inputs}]}
        params = {"message": message, "metadata": {"skillId": skill}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
        with self.client.stream("POST", "/", json=body) as stream:
            yield _events(stream.iter_lines())

    def count_starts(self, task_id: str) -> int:
        """Return how often a module has started for a task."""
        started_ids = [note.task_id for note in notes(self.home) if note.event == "begin"]
        return started_ids.count(task_id)


class Replica(Agent):
    """A client of a replica, together with its process."""

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


def replica_command(folder: Path, store: str, lease: float = LEASE, **options: Any) -> list[str]:
    """Return the command that serves the modules of a folder with a store."""
    arguments = [str(folder), store, str(lease), json.dumps({"port": 0, **options})]
    return [sys.executable, "-c", SERVE, *arguments]


@contextmanager
def replica(home: Path, store: str, lease: float = LEASE, **options: Any) -> Iterator[Replica]:
    """Run a replica that serves the modules of *home* with a store."""
    with process(replica_command(write_modules(home), store, lease, **options), home) as server:
        agent = Replica(server, home)
        with agent.client:
            yield agent
        server.end(signal.SIGTERM)


def status_texts(events: list[tuple[int, Json]]) -> list[str]:
    """Return the texts of a task's status messages."""
    statuses = [event["statusUpdate"]["status"] for _, event in events if "statusUpdate" in event]
    return [part["text"] for s in statuses if "message" in s for part in s["message"]["parts"]]


def check_log(events: list[tuple[int, Json]]) -> None:
    """Check the log of a task that has ended: no gaps, and one final state at the end."""
    versions = [version for version, _ in events]
    assert versions == list(range(1, len(versions) + 1)), "there are gaps"
    states = [state_of(e["statusUpdate"]) for _, e in events if "statusUpdate" in e]
    assert [state for state in states if state in ENDED] == states[-1:], states
    assert "statusUpdate" in events[-1][1], "an event follows the final state"
