"""Server processes, seen from the benchmark."""

import json
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

ROOT = Path(__file__).resolve().parents[2]

_START = 30.0  # seconds a server may take to come up
_ANSWER = 30.0  # seconds it may take to answer a question
_STOP = 10.0  # seconds it may take to end


class ServerFailed(Exception):
    """A server did not start, or no longer answers."""


@dataclass(frozen=True, slots=True)
class Stack:
    """An HTTP parser on an event loop."""

    http: str
    loop: str

    @property
    def name(self) -> str:
        """As the tables have it."""
        return f"{self.http}+{self.loop}"


STACKS = {"asyncio": Stack("h11", "asyncio"), "uvloop": Stack("httptools", "uvloop")}


@dataclass(frozen=True, slots=True)
class State:
    """What a server says of itself."""

    cpu: float
    """CPU seconds, user and system, since its start."""
    resident: int
    """Bytes."""
    tasks: dict[str, int]
    """Its asyncio tasks: how many of each coroutine."""
    writes: int
    """How often its store was asked to keep something, when that is watched."""
    reads: int
    """How often for something that it keeps."""


class Server:
    """A server in a child process; a context manager that ends it."""

    def __init__(
        self, name: str, stack: Stack, python: str | None = None, store: str | None = None
    ) -> None:
        self.name = name
        self.stack = stack
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            _command(name, stack, python or sys.executable, store),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.port = 0

    def wait_until_up(self) -> Self:
        """Wait until it listens.

        Raises:
            ServerFailed: it does not come up.
        """
        self.port = int(self._read(_START)["port"])
        return self

    def state(self, question: Literal["state", "collect", "profile"] = "state") -> State:
        """Ask it how it is: as it stands, after a garbage collection, or with profiling started.

        Raises:
            ServerFailed: it does not answer.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{question}\n")
            self._process.stdin.flush()
        except OSError:
            raise ServerFailed(self._last_words()) from None
        return State(**self._read(_ANSWER))

    def _read(self, seconds: float) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], seconds)
        line = stdout.readline() if ready else ""
        if not line:
            raise ServerFailed(self._last_words() if ready else f"silent for {seconds:.0f} s")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "ended without a word"

    def stop(self) -> str:
        """End it; return what it had left to say."""
        try:
            rest, _ = self._process.communicate(timeout=_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            rest, _ = self._process.communicate()
        self._errors.close()
        return str(rest)

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


def _command(name: str, stack: Stack, python: str, store: str | None) -> list[str]:
    command = [python, "-m", "tools.benchmarks.child", name]
    command += ["--http", stack.http, "--loop", stack.loop]
    return [*command, "--store", store] if store else command
