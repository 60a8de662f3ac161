"""Agents to call with the commands, and what the commands print."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from apcore import Context, InvalidInputError, ModuleAnnotations, Registry
from apcore_a2a.command.main import main
from apcore_a2a_server.modules import Conversation
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.server.modules import Echo, Mirror, Module, OrderTotal, What
from tests.serving import running

from .processes import COMMAND, PATIENCE, environment

Json = dict[str, Any]
Inputs = dict[str, Any]

HOSTILE = "\x1b]0;owned\x07\x9b31m\x1b[2J\r\x08\x7f\u202egnp\u2066.\u2069\u200f\u061c\u2028end"
"""Text that would drive a terminal, or turn around what is read there."""
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What of that no terminal may get."""

VALUES: dict[str, Any] = {
    "object": {"n": 1, "text": "é"},
    "object and file": {"n": 1, "chart.png": b"\x89PNG"},
    "hostile": {HOSTILE: HOSTILE},
}


class Gives(Module):
    """Gives the value of a name."""

    input_schema = What

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Any:
        return VALUES[inputs["what"]]


class Counts(Module):
    """Counts to two, chunk by chunk."""

    annotations: ClassVar[Any] = ModuleAnnotations(streaming=True)

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"one": 1, "two": 2}

    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Inputs]:
        yield {"one": 1}
        yield {"two": 2}


class Waits(Counts):
    """Says something, and then works until somebody stops it."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        await asyncio.Event().wait()
        return {}

    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Inputs]:
        yield {"one": 1}
        await asyncio.Event().wait()


class Greets(Module):
    """Asks for the name of who is greeted."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        conversation: Conversation = context.services
        said = [m for m in conversation.history if m["role"] == "ROLE_USER"]
        if not said:
            conversation.ask("Who are you?", {"choices": ["Ada", "Alan"]})
        return {"hello": inputs.get("text") or inputs}


class Pays(Module):
    """Needs a yes."""

    annotations: ClassVar[Any] = ModuleAnnotations(requires_approval=True)

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"paid": True}


class Fails(Module):
    """Fails, and says why."""

    input_schema = What

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        raise InvalidInputError(inputs["what"])


def registry() -> Registry:
    found = Registry()
    for name, module in {
        "echo": Echo(),
        "mirror": Mirror(),
        "order": OrderTotal(),
        "gives": Gives(),
        "counts": Counts(),
        "waits": Waits(),
        "greets": Greets(),
        "pays": Pays(),
        "fails": Fails(),
    }.items():
        found.register(name, module)
    return found


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """A real agent's address."""
    with running(registry(), name="Agent", description="An agent of the tests") as url:
        yield url


# An agent that answers what it is told to

CARD: Json = {
    "name": "Fake",
    "description": "Answers what it is told to",
    "version": "1",
    "supportedInterfaces": [{"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {"streaming": False},
    "defaultInputModes": [],
    "defaultOutputModes": [],
    "skills": [],
}


def task(state: str = "COMPLETED", *parts: Json, said: Sequence[Json] = (), **fields: Any) -> Json:
    """A task as agents of A2A 1.0 tell it, with *parts* in its artifact."""
    status: Json = {"state": f"TASK_STATE_{state}", "timestamp": "2026-01-02T03:04:05Z"}
    if said:
        status["message"] = {"role": "ROLE_AGENT", "messageId": "m", "parts": [*said]}
    artifacts = [{"artifactId": "a", "name": "result", "parts": [*parts]}] if parts else []
    return {"id": "t-1", "contextId": "c-1", "status": status, "artifacts": artifacts, **fields}


class Fake:
    """An agent that answers each method with what stands in `results`.

    A list is a stream of events; a function is called for what else there is.
    """

    def __init__(self, card: Json | None = None, **results: Any) -> None:
        self.card, self.results = CARD | (card or {}), results
        self.requests: list[Request] = []
        self.methods: list[str] = []
        self.bodies: list[Any] = []
        routes = [
            Route("/.well-known/agent-card.json", self._card),
            Route("/{path:path}", self._answer, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes)

    async def _card(self, request: Request) -> Response:
        self.requests.append(request)
        return JSONResponse(self.card)

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(request)
        self.methods.append(body["method"])
        self.bodies.append(body)
        result = self.results[body["method"]]
        if callable(result):
            result = await result()
        if isinstance(result, Response):
            return result
        reply = {"jsonrpc": "2.0", "id": body["id"]}
        if isinstance(result, list):
            lines = [f"data: {json.dumps(reply | {'result': event})}\n\n" for event in result]
            return StreamingResponse(iter(lines), media_type="text/event-stream")
        return Response(json.dumps(reply | result), media_type="application/json")


def sends(value: Json) -> Json:
    """The answer to SendMessage: this task."""
    return {"result": {"task": value}}


# The commands


@dataclass
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Outcome]


def harmless(done: Outcome) -> None:
    """Nothing was printed that drives a terminal."""
    assert not RAW.search(done.out + done.err), ascii(done.out + done.err)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without configuration, and a terminal as wide as they are."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("APCORE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def do(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process."""

    def run(*arguments: str) -> Outcome:
        return Outcome(main(arguments), *capsys.readouterr())

    return run


class Screen:
    """A process on a terminal of its own."""

    def __init__(self, arguments: Sequence[str], home: Path, variables: Json) -> None:
        self._end, other = pty.openpty()
        given = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", **variables}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=home,
            env=environment(home, given),
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.text = ""
        self._shown = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._end, 65536)
            except OSError:  # how Linux tells that the other side is closed
                return
            with self._shown:
                self.text += read.decode()
                self._shown.notify_all()

    def wait_for(self, pattern: str) -> None:
        with self._shown:
            found = self._shown.wait_for(lambda: re.search(pattern, self.text), PATIENCE)
        assert found, f"{pattern} did not come in {self.text!r}"

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl+C, as people do: once more when nothing happens.

        CPython only looks for signals before it reads; one that comes in between waits.
        """
        for _ in range(2):
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
                return

    def end(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def close(self) -> None:
        self.process.kill()
        self.end()
        os.close(self._end)


@contextmanager
def screen(home: Path, *arguments: str, **variables: str) -> Iterator[Screen]:
    """A command on a terminal."""
    found = Screen(arguments, home, variables)
    try:
        yield found
    finally:
        found.close()


def plain(text: str) -> str:
    """What is left on a terminal when colours and movements are taken away."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")
