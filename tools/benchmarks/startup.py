"""Time that `apcore-a2a` takes to serve its card, and to print its help."""

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.benchmarks.servers import ROOT, ServerFailed, output_of

_TIMEOUT = 60.0  # seconds; long, because the machine may be busy
EXTENSIONS = ROOT / "examples" / "extensions"
_GET_CARD = b"GET /.well-known/agent.json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def measure_start(repetitions: int) -> float:
    """Return the median seconds from starting the command to the first answer with the card.

    Raises:
        ServerFailed: The command is missing, ends, or does not answer in time.
    """
    return statistics.median(_start_once() for _ in range(repetitions))


def measure_help(repetitions: int) -> float:
    """Return the median seconds that ``apcore-a2a --help`` takes.

    Raises:
        ServerFailed: The command is missing or fails.
    """
    return statistics.median(_help_once() for _ in range(repetitions))


def _command() -> str:
    command = Path(sys.executable).with_name("apcore-a2a")
    if not command.exists():
        raise ServerFailed(f"no command {command.name} next to {sys.executable}")
    return str(command)


def _help_once() -> float:
    started_at = time.monotonic()
    output_of([_command(), "--help"], _TIMEOUT)
    return time.monotonic() - started_at


def _start_once() -> float:
    with serving() as (_, seconds):
        return seconds


class RunningCommand(NamedTuple):
    """A running `apcore-a2a serve`.

    Attributes:
        port: Its port.
        seconds: The seconds until it answered with its card.
        process_id: The id of its process.
    """

    port: int
    seconds: float
    process_id: int


@contextmanager
def serving(*options: str) -> Iterator[tuple[int, float]]:
    """Run the command with the examples; yield its port and the seconds until it served its card.

    Raises:
        ServerFailed: The command is missing, ends, or does not answer in time.
    """
    with running_command("--extensions-dir", str(EXTENSIONS), *options) as (port, seconds, _):
        yield port, seconds


@contextmanager
def running_command(*options: str) -> Iterator[RunningCommand]:
    """Run the command, and wait until it answers with its card.

    Raises:
        ServerFailed: The command is missing, ends, or does not answer in time.
    """
    port = _free_port()
    command = [_command(), "serve", "--host", "127.0.0.1", "--port", str(port), *options]
    with tempfile.TemporaryFile() as output:
        started_at = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            while not _answers(port):
                if process.poll() is not None:
                    output.seek(0)
                    raise ServerFailed(_last_line(output.read()))
                if time.monotonic() - started_at > _TIMEOUT:
                    raise ServerFailed(f"no answer in {_TIMEOUT:.0f} s")
                time.sleep(0.005)
            yield RunningCommand(port, time.monotonic() - started_at, process.pid)
        finally:
            _end(process)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(_GET_CARD)
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "ended without a message"
