"""Agents in separate processes, started as users start them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.checking_client import Agent

PATIENCE = 60
"""Seconds after which a test fails if an event has not happened."""

COMMAND = [sys.executable, "-m", "apcore_a2a"]
SERVE = """
import json, sys
from apcore_a2a_server import Limits, serve
options = json.loads(sys.argv[2])
serve(sys.argv[1], **options | {"limits": Limits(**options.pop("limits", {}))})
"""

MODULES = {
    "echo.py": """
from pydantic import BaseModel

class Text(BaseModel):
    text: str

class Echo:
    description = "Repeats its text"
    input_schema = Text
    output_schema = Text

    def execute(self, inputs, context):
        return {"text": inputs["text"]}
""",
    "nap.py": """
import asyncio
from pydantic import BaseModel

class Length(BaseModel):
    seconds: float

class Nap:
    description = "Sleeps for some time"
    input_schema = Length
    output_schema = Length

    async def execute(self, inputs, context):
        await asyncio.sleep(inputs["seconds"])
        return inputs
""",
    "block.py": """
import threading
from pydantic import BaseModel

class Nothing(BaseModel):
    pass

class Block:
    description = "Blocks its thread forever"
    input_schema = Nothing
    output_schema = Nothing

    def execute(self, inputs, context):
        threading.Event().wait()
""",
    "crash.py": """
import asyncio
from pydantic import BaseModel

class Nothing(BaseModel):
    pass

class Crash:
    description = "Stops the event loop"
    input_schema = Nothing
    output_schema = Nothing

    async def execute(self, inputs, context):
        asyncio.get_running_loop().stop()
""",
}


def extensions(folder: Path, *names: str) -> Path:
    """Create a folder with the modules of these names, or all; return its path."""
    folder = folder / "extensions"
    folder.mkdir()
    for name in names or MODULES:
        (folder / name).write_text(MODULES[name], encoding="utf-8")
    return folder


WITHOUT_COVERAGE = {"COVERAGE_PROCESS_CONFIG": "", "COVERAGE_PROCESS_START": ""}
"""Variables that turn off coverage, so that a process is as fast as for users."""


def environment(home: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without apcore's variables, with *home* and *variables*."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("APCORE")}
    return {**inherited, "HOME": str(home), **(variables or {})}


def use_environment(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Run the rest of a test in `environment(home)`."""
    for name in os.environ:
        if name.startswith("APCORE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


class Process:
    """A process that serves, and its output on stderr."""

    def __init__(self, command: list[str], home: Path, variables: Mapping[str, str]) -> None:
        self.started_at = time.perf_counter()
        self._popen = subprocess.Popen(
            command,
            cwd=home,
            env=environment(home, variables),
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = ""
        self._written = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stderr is not None
        with self._popen.stderr as lines:
            for line in lines:
                with self._written:
                    self.log += line
                    self._written.notify_all()

    def wait_for(self, pattern: str, seconds: float = PATIENCE) -> str:
        """Wait until *pattern* is in the log; return its first group."""
        with self._written:
            match = self._written.wait_for(lambda: re.search(pattern, self.log), seconds)
        assert match, f"{pattern} did not appear in {self.log}"
        return match[1]

    @property
    def url(self) -> str:
        """The URL on loopback, with the port in the log."""
        port = self.wait_for(r"skills? at http://\S*:(\d+)")
        return f"http://127.0.0.1:{port}"

    def wait_for_card(self, url: str) -> Any:
        """Wait until the process answers; return its Agent Card."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                card_url = f"{url}/.well-known/agent-card.json"
                return httpx.get(card_url, trust_env=False, timeout=PATIENCE).json()
            except httpx.ConnectError:
                assert self._popen.poll() is None, self.end()
                assert time.monotonic() < deadline
                time.sleep(0.01)

    @property
    def id(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def end(self, number: int | None = None, *, within: float = PATIENCE) -> int:
        """Send the signal *number*, if any; return the exit code."""
        if number is not None:
            self.signal(number)
        code = self._popen.wait(within)
        self._reader.join(PATIENCE)
        return code

    def kill(self) -> None:
        self._popen.kill()
        self.end()


@contextmanager
def process(
    command: list[str], home: Path, variables: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """Start a process in the folder *home*, and kill it at the end."""
    server_process = Process(command, home, variables or {})
    try:
        yield server_process
    finally:
        server_process.kill()


def serve_command(folder: Path, **options: Any) -> list[str]:
    """Return the command that calls `serve` with a folder of modules."""
    options = {"host": "127.0.0.1", "port": 0, **options}
    return [sys.executable, "-c", SERVE, str(folder), json.dumps(options)]


@contextmanager
def agent_client(process: Process, dialect: str = "1.0") -> Iterator[Agent]:
    """Connect to the agent that *process* serves, with connections kept alive."""
    with httpx.Client(base_url=process.url, trust_env=False, timeout=PATIENCE) as client:
        yield Agent(client, dialect)


def run(
    arguments: list[str], home: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `apcore-a2a` with these arguments, and wait for its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        check=False,
        cwd=home,
        env=environment(home, variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


SIGNALS = [signal.SIGTERM, signal.SIGINT]
