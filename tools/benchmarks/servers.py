"""Server processes that benchmarks start, measure and stop."""

import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

from tools.benchmarks.measured_stores import children_cpu

ROOT = Path(__file__).resolve().parents[2]
CHILD = "tools.benchmarks.child"

_START_TIMEOUT = 120.0  # seconds; a busy machine takes long to import six frameworks at once
_ANSWER_TIMEOUT = 30.0  # seconds
_STOP_TIMEOUT = 10.0  # seconds


class ServerFailed(Exception):
    """A server, another program or a measurement failed."""


@dataclass(frozen=True, slots=True)
class Stack:
    """An HTTP parser on an event loop."""

    http: str
    loop: str

    @property
    def name(self) -> str:
        """The name in the tables."""
        return f"{self.http}+{self.loop}"


STACKS = {"asyncio": Stack("h11", "asyncio"), "uvloop": Stack("httptools", "uvloop")}


@dataclass(frozen=True, slots=True)
class State:
    """State of a server process."""

    cpu: float
    """CPU seconds of the process and its children, user and system, since the start."""
    resident: int
    """Resident memory in bytes."""
    tasks: dict[str, int]
    """Number of asyncio tasks by the names of their coroutines."""
    writes: int
    """Number of writes to the store; 0 if they are not counted."""
    reads: int
    """Number of reads from the store; 0 if they are not counted."""


class Server:
    """A server in a child process; a context manager that stops it.

    Args:
        name: The name of the application in `tools.benchmarks.apps`.
        stack: The parser and the event loop to serve the application with.
        program: The command that serves the application; by default, `CHILD` in this environment.
        store: The address of a task store; only for this project's server.
    """

    def __init__(
        self,
        name: str,
        stack: Stack,
        program: Sequence[str] = (sys.executable, "-m", CHILD),
        store: str | None = None,
    ) -> None:
        self.name = name
        self.stack = stack
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            _command(name, stack, program, store),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.port = 0

    def wait_until_up(self) -> Self:
        """Wait until the server listens.

        Raises:
            ServerFailed: The server does not start.
        """
        self.port = int(self._read(_START_TIMEOUT)["port"])
        return self

    def state(self, command: Literal["state", "collect", "profile"] = "state") -> State:
        """Return the state; `collect` first collects garbage, `profile` first starts the profiler.

        Raises:
            ServerFailed: The server does not answer.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        except OSError:
            raise ServerFailed(self._last_error()) from None
        state = State(**self._read(_ANSWER_TIMEOUT))
        return replace(state, cpu=state.cpu + children_cpu(self._process.pid))

    def _read(self, seconds: float) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], seconds)
        line = stdout.readline() if ready else ""
        if not line:
            raise ServerFailed(self._last_error() if ready else f"no output for {seconds:.0f} s")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "ended without a message"

    def stop(self) -> str:
        """Stop the server; return the rest of its output."""
        try:
            remaining_output, _ = self._process.communicate(timeout=_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            remaining_output, _ = self._process.communicate()
        self._errors.close()
        return str(remaining_output)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._errors.closed:
            self.stop()


def output_of(
    command: Sequence[str], seconds: float, variables: Mapping[str, str] | None = None
) -> str:
    """Run a program to its end; return its output.

    Args:
        command: The program and its arguments.
        seconds: The time that the program may take.
        variables: The program's environment variables; by default, those of this process.

    Raises:
        ServerFailed: The program failed (the message is its last line of stderr), or took longer.
    """
    options: dict[str, Any] = {"cwd": ROOT, "env": variables, "capture_output": True, "text": True}
    try:
        result = subprocess.run(command, timeout=seconds, check=False, **options)
    except subprocess.TimeoutExpired:
        raise ServerFailed(f"took more than {seconds:.0f} s: {' '.join(command)}") from None
    if result.returncode:
        raise ServerFailed((result.stderr.strip().splitlines() or ["no message"])[-1])
    return str(result.stdout)


def _command(name: str, stack: Stack, program: Sequence[str], store: str | None) -> list[str]:
    command = [*program, name, "--http", stack.http, "--loop", stack.loop]
    return [*command, "--store", store] if store else command
