"""Agents built on other libraries, each in a separate process: see the programs in `servers/`."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx

from tests.e2e.environments import node_modules, python_environment, tool
from tests.serving import PATIENCE, listener

SERVERS = Path(__file__).parent / "servers"
REQUIREMENTS = {
    "sdk03": ("a2a-sdk[http-server]==0.3.26", "uvicorn"),
    "fasta2a_agent": ("fasta2a==2.1.1", "uvicorn"),
    "adk": ("google-adk[a2a]==2.13.0", "a2a-sdk==1.3.0", "uvicorn"),
    "strands_agent": ("strands-agents[a2a]==1.62.0", "uvicorn"),
    "adapter": ("a2a-adapter==0.2.14", "uvicorn"),
}
"""Packages by Python program; programs that are not listed run in the environment of the tests."""
JS_SDKS = {"sdk-v1": "1.3.0", "sdk-v03": "0.3.14"}
"""Versions of @a2a-js/sdk; each name stands for `js.mjs` run with that version."""
STARTUP = 60
"""Seconds until a server must answer; google-adk takes several to import."""
PAUSE = 0.05
"""Seconds between two requests to a starting server."""

Process = subprocess.Popen[bytes]


@contextmanager
def foreign_server(name: str) -> Iterator[str]:
    """Serve the program *name* of `servers/` and yield its base URL.

    The test is skipped if the program's environment can't be made.
    """
    port = free_port()
    command = [*program(name), str(port)]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            await_card(url, process, log)
            yield url
            assert process.poll() is None, log_tail(log)
        finally:
            process.kill()
            process.wait(PATIENCE)
    assert process.returncode is not None
    assert not has_card(url)


def program(name: str) -> list[str]:
    """Return the command of a program, without its port."""
    if name in JS_SDKS:
        sdks = (f"{sdk}@npm:@a2a-js/sdk@{version}" for sdk, version in JS_SDKS.items())
        folder = node_modules(*sdks, "express@5.3.0")
        return [tool("node"), str(SERVERS / "js.mjs"), str(folder), name]
    return [interpreter(name), "-I", str(SERVERS / f"{name}.py")]


def interpreter(name: str) -> str:
    """Return the Python of the environment for the program *name*."""
    if required := REQUIREMENTS.get(name):
        return str(python_environment(f"server-{name}", *required))
    return sys.executable


def free_port() -> int:
    """Return a port that is free now."""
    with listener() as sock:
        port: int = sock.getsockname()[1]
    return port


def await_card(url: str, process: Process, log: IO[bytes]) -> None:
    """Wait until the server at *url* answers with its Agent Card."""
    deadline = time.monotonic() + STARTUP
    while not has_card(url):
        assert time.monotonic() < deadline, log_tail(log)
        assert not exits_in_pause(process), log_tail(log)


def has_card(url: str) -> bool:
    """Return whether a server at *url* answers with an Agent Card."""
    try:
        card = httpx.get(f"{url}/.well-known/agent-card.json", timeout=PATIENCE, trust_env=False)
    except httpx.TransportError:
        return False
    return card.is_success


def exits_in_pause(process: Process) -> bool:
    """Return whether *process* exits within PAUSE seconds."""
    try:
        process.wait(PAUSE)
    except subprocess.TimeoutExpired:
        return False
    return True


def log_tail(log: IO[bytes]) -> str:
    """Return the end of a server's output."""
    log.seek(0)
    return log.read().decode(errors="replace")[-2000:]
