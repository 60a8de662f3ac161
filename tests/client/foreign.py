"""Servers that nobody here wrote, each a process of its own: see the programs of `servers/`."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx

from tests.e2e.environments import python_environment
from tests.serving import PATIENCE, listener

SERVERS = Path(__file__).parent / "servers"
REQUIREMENTS = {
    "sdk03": ("a2a-sdk[http-server]==0.3.26", "uvicorn"),
    "fasta2a_agent": ("fasta2a==2.1.1", "uvicorn"),
    "adk": ("google-adk[a2a]==2.13.0", "a2a-sdk==1.3.0", "uvicorn"),
}
"""What the programs need that do not run in the environment of the tests."""
NAMES = ("sdk1", *REQUIREMENTS)
STARTUP = 60
"""Seconds that a server may take until it answers; google-adk imports for some."""
PAUSE = 0.05
"""Seconds between two looks at a server that starts."""

Process = subprocess.Popen[bytes]


@contextmanager
def foreign(name: str) -> Iterator[str]:
    """Serve the program *name* of `servers/` and give its base URL, such as `http://127.0.0.1:40123`.

    The test is skipped if the program's environment can't be made.
    """
    python = interpreter(name)
    port = free_port()
    command = [python, "-I", str(SERVERS / f"{name}.py"), str(port)]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            await_card(url, process, log)
            yield url
            assert process.poll() is None, said(log)
        finally:
            process.kill()
            process.wait(PATIENCE)
    assert process.returncode is not None
    assert not answers(url)


def interpreter(name: str) -> str:
    """The Python of the environment for the program *name*."""
    if required := REQUIREMENTS.get(name):
        return str(python_environment(f"server-{name}", *required))
    return sys.executable


def free_port() -> int:
    """A port that is free now."""
    with listener() as sock:
        port: int = sock.getsockname()[1]
    return port


def await_card(url: str, process: Process, log: IO[bytes]) -> None:
    """Return once the server at *url* answers with its card."""
    deadline = time.monotonic() + STARTUP
    while not answers(url):
        assert time.monotonic() < deadline, said(log)
        assert not ended(process), said(log)


def answers(url: str) -> bool:
    """Whether a server at *url* has a card."""
    try:
        card = httpx.get(f"{url}/.well-known/agent-card.json", timeout=PATIENCE, trust_env=False)
    except httpx.TransportError:
        return False
    return card.is_success


def ended(process: Process) -> bool:
    """Whether *process* ends in the pause between two looks at it."""
    try:
        process.wait(PAUSE)
    except subprocess.TimeoutExpired:
        return False
    return True


def said(log: IO[bytes]) -> str:
    """The last that a server wrote."""
    log.seek(0)
    return log.read().decode(errors="replace")[-2000:]
