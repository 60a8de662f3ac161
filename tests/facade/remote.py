"""Agents for the commands to call, and ways to run the commands and read their output."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import threading
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import isasyncgenfunction
from pathlib import Path
from typing import Any, ClassVar

import pytest
from apcore import Context, InvalidInputError, ModuleAnnotations, Registry
from apcore_a2a.command.main import main
from apcore_a2a_core import Progress
from apcore_a2a_server.modules import Conversation
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.server.modules import CaseInput, Echo, Mirror, Module, OrderTotal
from tests.serving import running

from .processes import COMMAND, PATIENCE, environment

Json = dict[str, Any]
Inputs = dict[str, Any]

HOSTILE = "\x1b]0;owned\x07\x9b31m\x1b[2J\r\x08\x7f\u202egnp\u2066.\u2069\u200f\u061c\u2028end"
"""Text with terminal escapes, control characters and bidirectional overrides."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control and bidirectional characters that must not reach a terminal."""

VALUES: dict[str, Any] = {
    "object": {"n": 1, "text": "é"},
    "object and file": {"n": 1, "chart.png": b"\x89PNG"},
    "hostile": {HOSTILE: HOSTILE},
}


class ValueModule(Module):
    """Returns the entry of `VALUES` that the input names."""

    input_schema = CaseInput

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Any:
        return VALUES[inputs["what"]]


class TwoChunkModule(Module):
    """Counts to two, chunk by chunk."""

    annotations: ClassVar[Any] = ModuleAnnotations(streaming=True)

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"one": 1, "two": 2}

    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Inputs]:
        yield {"one": 1}
        yield {"two": 2}


class ProgressModule(TwoChunkModule):
    """Reports its progress before and after a chunk."""

    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Any]:
        yield Progress("Reading", {"sources": 12})
        yield {"read": 1}
        yield Progress("Writing")


class EndlessModule(TwoChunkModule):
    """Streams a chunk, then waits until it is canceled."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        await asyncio.Event().wait()
        return {}

    async def stream(self, inputs: Inputs, context: Context[Any]) -> AsyncIterator[Inputs]:
        yield {"one": 1}
        await asyncio.Event().wait()


class GreetingModule(Module):
    """Asks for a name to greet."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        conversation: Conversation = context.services
        messages = [m for m in conversation.history if m["role"] == "ROLE_USER"]
        if not messages:
            conversation.ask("Who are you?", {"choices": ["Ada", "Alan"]}, field="text")
        return {"hello": inputs.get("text") or inputs}


class Payment(BaseModel):
    """Payment that `BookingModule` asks for."""

    card: str
    amount: float = Field(gt=10)
    note: str | None = None


class BookingModule(Module):
    """Asks for a number of guests, and for a payment."""

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        conversation: Conversation = context.services
        if "guests" not in inputs:
            schema = {"type": "integer", "minimum": 1}
            conversation.ask("How many guests?", field="guests", schema=schema)
        if "amount" not in inputs:
            conversation.ask("How do you pay?", schema=Payment)
        return {"booked": inputs}


class ApprovalModule(Module):
    """Needs approval."""

    annotations: ClassVar[Any] = ModuleAnnotations(requires_approval=True)

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        return {"paid": True}


class FailingModule(Module):
    """Fails with the reason in the input."""

    input_schema = CaseInput

    async def execute(self, inputs: Inputs, context: Context[Any]) -> Inputs:
        raise InvalidInputError(inputs["what"])


def registry() -> Registry:
    modules = Registry()
    for name, module in {
        "echo": Echo(),
        "mirror": Mirror(),
        "order": OrderTotal(),
        "gives": ValueModule(),
        "counts": TwoChunkModule(),
        "reads": ProgressModule(),
        "waits": EndlessModule(),
        "greets": GreetingModule(),
        "books": BookingModule(),
        "pays": ApprovalModule(),
        "fails": FailingModule(),
    }.items():
        modules.register(name, module)
    return modules


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """Serve a real agent; yield its address."""
    with running(registry(), name="Agent", description="An agent of the tests") as url:
        yield url


# An agent with prepared answers

CARD: Json = {
    "name": "Fake",
    "description": "Answers as prepared",
    "version": "1",
    "supportedInterfaces": [{"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {"streaming": False},
    "defaultInputModes": [],
    "defaultOutputModes": [],
    "skills": [],
}


def task(
    state: str = "COMPLETED", *parts: Json, status_parts: Sequence[Json] = (), **fields: Any
) -> Json:
    """Return a task of A2A 1.0: *parts* are in its artifact, *status_parts* in its message."""
    status: Json = {"state": f"TASK_STATE_{state}", "timestamp": "2026-01-02T03:04:05Z"}
    if status_parts:
        status["message"] = {"role": "ROLE_AGENT", "messageId": "m", "parts": [*status_parts]}
    artifacts = [{"artifactId": "a", "name": "result", "parts": [*parts]}] if parts else []
    return {"id": "t-1", "contextId": "c-1", "status": status, "artifacts": artifacts, **fields}


class FakeAgent:
    """An agent that answers each method with its entry in `results`.

    An entry is the reply, `{"result": …}` or `{"error": …}`; a list of results, which are sent as
    a stream; a `Response`, which is sent unchanged; an asynchronous function that returns one of
    these; or an asynchronous generator function that yields the results of a stream.
    """

    url = ""

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
        if isasyncgenfunction(result):
            streamed_lines = (self._line(body, event) async for event in result())
            return StreamingResponse(streamed_lines, media_type="text/event-stream")
        if callable(result):
            result = await result()
        if isinstance(result, Response):
            return result
        if isinstance(result, list):
            lines = [self._line(body, event) for event in result]
            return StreamingResponse(iter(lines), media_type="text/event-stream")
        reply = {"jsonrpc": "2.0", "id": body["id"], **result}
        return Response(json.dumps(reply), media_type="application/json")

    def _line(self, request: Json, event: Json) -> str:
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": event}
        return f"data: {json.dumps(reply)}\n\n"


def send_result(value: Json) -> Json:
    """Return the answer to SendMessage that contains the task *value*."""
    return {"result": {"task": value}}


def status(state: str = "WORKING") -> Json:
    """Return the event of a new status."""
    return {"statusUpdate": {"taskId": "t-1", "status": task(state)["status"]}}


def report(text: str, *data: Any) -> Json:
    """Return a status event with a message about progress."""
    parts = [{"text": text}, *({"data": value} for value in data)]
    event = status()
    message = {"role": "ROLE_AGENT", "messageId": text, "parts": parts}
    event["statusUpdate"]["status"]["message"] = message
    return event


def text_chunk(text: str) -> Json:
    """Return the event of a further chunk of text."""
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t-1", "artifact": artifact, "append": True}}


# The commands


@dataclass
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Outcome]


def check_harmless(outcome: Outcome) -> None:
    """Check that the output has no characters that control a terminal."""
    assert not CONTROL.search(outcome.out + outcome.err), ascii(outcome.out + outcome.err)


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a home without configuration, and with a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("APCORE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs a command in this process."""

    def run(*arguments: str) -> Outcome:
        return Outcome(main(arguments), *capsys.readouterr())

    return run


class Screen:
    """A process on a new terminal."""

    def __init__(self, arguments: Sequence[str], home: Path, variables: Json) -> None:
        self._terminal, tty = pty.openpty()
        defaults = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", **variables}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=home,
            env=environment(home, defaults),
            stdin=tty,
            stdout=tty,
            stderr=tty,
            start_new_session=True,
        )
        os.close(tty)
        self.text = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        decoder = getincrementaldecoder("utf-8")()
        while True:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # Linux raises EIO when the other side is closed
                return
            with self._changed:
                self.text += decoder.decode(data)
                self._changed.notify_all()

    def wait_for(self, pattern: str) -> None:
        with self._changed:
            match = self._changed.wait_for(lambda: re.search(pattern, self.text), PATIENCE)
        assert match, f"{pattern} did not appear in {self.text!r}"

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl+C, and again if nothing happens, as people do.

        CPython checks for signals before it reads; one that arrives in between is seen only
        after the read.
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
        os.close(self._terminal)


@contextmanager
def screen(home: Path, *arguments: str, **variables: str) -> Iterator[Screen]:
    """Run a command on a terminal."""
    terminal = Screen(arguments, home, variables)
    try:
        yield terminal
    finally:
        terminal.close()


def plain(text: str) -> str:
    """Return *text* without colors and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def shown_lines(text: str) -> list[str]:
    """Return the lines that a terminal shows after *text*, without those that are empty."""
    rows, row, column = [""], 0, 0
    for count, command, control, written in re.findall(
        r"\x1b\[[?]?([0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)", text
    ):
        if command == "A":
            row -= int(count or 1)
        elif command == "K":
            rows[row] = ""
        elif control == "\r":
            column = 0
        elif control:
            row += 1
            if row == len(rows):
                rows.append("")
        elif written:
            line = rows[row].ljust(column)
            rows[row] = line[:column] + written + line[column + len(written) :]
            column += len(written)
    return [line.rstrip() for line in rows if line.strip()]
