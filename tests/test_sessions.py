"""The commands of documentation pages work one after the other, as a reader types them.

The blocks of a page that has ```` ```shell ```` blocks make a session in an empty folder:

- a block with `title="NAME"` is a file of that name, which is there from the beginning,
- `shell` runs in bash, with the exported variables and the folder of earlier blocks,
- `shell test="serve"` starts a server in a separate terminal; it ends when the next one starts,
- `shell test="fails"` must fail,
- `python test="session"` is a program that needs the server,
- `text test="output"` is in the output of the block before; `…` stands for any text in a line,
- `python packages="…"` and `javascript packages="…"` are programs that use other packages, and need
  the page's first server; they are separate tests, skipped if the packages can't be installed,
- `test="no"` is not run.

Port 8000 of a page becomes a free port.
"""

import contextlib
import os
import pty
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.environments import node_modules, python_environment, tool

ROOT = Path(__file__).parents[1]
PATIENCE = 300
"""Seconds after which a test fails if a command has not ended, or a server not started."""

FENCE = re.compile(
    r'^(?P<indent> *)```(?P<language>\w+)(?P<options>(?: \w+="[^"\n]*")*)\n(?P<code>.*?)^ *```$',
    re.DOTALL | re.MULTILINE,
)
SMOKE = "README.md"
"""The page whose session runs by default."""


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    options: dict[str, str]
    code: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text.count("\n", 0, match.start()) + 1,
            match["language"],
            dict(re.findall(r'(\w+)="([^"]*)"', match["options"])),
            re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE),
        )
        for match in FENCE.finditer(text)
    ]


PAGES = [
    page
    for location in ("*.md", "docs/**/*.md")
    for page in sorted(ROOT.glob(location))
    if any(block.language == "shell" for block in blocks(page))
]


def cases() -> Iterator[object]:
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        marks = [pytest.mark.process, *([pytest.mark.smoke] if name == SMOKE else [])]
        yield pytest.param(page, marks=marks, id=name)


PROGRAMS = [
    pytest.param(page, block, marks=[pytest.mark.process, pytest.mark.soak], id=packages)
    for page in PAGES
    for block in blocks(page)
    if (packages := block.options.get("packages"))
]
"""Programs that use other packages, each with its page."""


def environment(folder: Path, port: int) -> dict[str, str]:
    """Return the variables of a terminal that only has this project's environment activated."""
    inherited = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE")}
    return inherited | {
        "APCORE_A2A_PORT": str(port),
        "COLUMNS": "100",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "dumb",  # a terminal without colors
        "UVICORN_PORT": str(port),
    }


def free_port() -> int:
    """Return a free port below the range from which the system picks ports for other programs."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("None of 100 ports is free")


def run_in_terminal(command: str, folder: Path, variables: dict[str, str]) -> tuple[int, str]:
    """Run a bash command in a terminal; return its exit code and what it shows."""
    read_end, write_end = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        stderr=write_end,
        start_new_session=True,
    ) as shell:
        os.close(write_end)
        timer = threading.Timer(PATIENCE, shell.kill)
        timer.start()
        output = b""
        with contextlib.suppress(OSError), os.fdopen(read_end, "rb", buffering=0) as terminal:
            while chunk := terminal.read(65536):  # raises OSError once the command has ended
                output += chunk
        code = shell.wait(PATIENCE)
        timer.cancel()
    return code, output.decode().replace("\r\n", "\n")


@contextmanager
def serving(command: str, folder: Path, variables: dict[str, str], port: int) -> Iterator[None]:
    """Run a server in the background for as long as the context lasts."""
    log = folder / ".server.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as server,
    ):
        try:
            deadline = time.monotonic() + PATIENCE
            while not is_listening(port):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)  # there is no event to wait for in another process
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait(PATIENCE)


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def matches(expected: str, output: str) -> bool:
    """Return whether *output* has the lines of *expected*; `…` stands for any text in a line."""
    expected_text = "\n".join(line.rstrip() for line in expected.strip("\n").splitlines())
    text = "\n".join(line.rstrip() for line in output.splitlines())
    return (
        re.search(f"^{re.escape(expected_text).replace('…', '.*')}$", text, re.MULTILINE)
        is not None
    )


@dataclass
class Session:
    """A session: the commands of one page, run in a folder of their own.

    Attributes:
        folder: The folder, which is empty at first.
        port: The port of the page's server.
        shown: The output of the last block that ran.
    """

    folder: Path
    port: int
    shown: str = ""

    def code(self, block: Block) -> str:
        """Return a block's code, for the session's port."""
        return re.sub(r"(?<=[:=])8000\b", str(self.port), block.code)

    def run(self, command: str, *, fails: bool = False) -> None:
        """Run a command in the session's terminal."""
        state = self.folder / ".state"
        script = f"set -e; [ ! -f {state} ] || . {state}\n{command}\n"
        script += f"{{ export -p; echo cd \"'$PWD'\"; }} > {state}"
        code, self.shown = run_in_terminal(script, self.folder, environment(self.folder, self.port))
        assert (code != 0) == fails, self.shown

    def run_program(self, block: Block, command: str) -> None:
        """Run a block with an interpreter; its `#>` or `//>` lines must be the output."""
        file = self.folder / ("example.mjs" if block.language == "javascript" else "example.py")
        file.write_text(self.code(block), encoding="utf-8")
        self.run(f"{command} {file.name} 2>errors.log || {{ cat errors.log; exit 1; }}")
        printed = re.findall(r"^ *(?:#|//)> (.*)$", block.code, re.MULTILINE)
        assert self.shown.splitlines() == printed, block.line

    def write_files(self, page: Path) -> None:
        """Write the files of a page."""
        for block in blocks(page):
            if "title" in block.options:
                file = self.folder / block.options["title"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self.code(block), encoding="utf-8")

    def serve(self, block: Block) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the server of *block* runs."""
        variables = environment(self.folder, self.port)
        return serving(self.code(block), self.folder, variables, self.port)


@pytest.mark.parametrize("page", [*cases()])
def test_the_commands_of_a_page_work_as_a_reader_types_them(page: Path, tmp_path: Path) -> None:
    session = Session(tmp_path, free_port())
    session.write_files(page)
    with contextlib.ExitStack() as servers:
        for block in blocks(page):
            location = f"{page.relative_to(ROOT)}:{block.line}"
            match block.language, block.options:
                case _, {"test": "no"}:
                    pass
                case _, {"title": _}:
                    pass
                case "shell", {"test": "serve"}:
                    servers.close()
                    servers.enter_context(session.serve(block))
                case "shell", options:
                    session.run(session.code(block), fails=options.get("test") == "fails")
                case "python", {"test": "session"}:
                    session.run_program(block, "python")
                case "text", {"test": "output"}:
                    output = session.shown.replace(f":{session.port}", ":8000")
                    assert matches(block.code, output), f"{location} shows:\n{output}"


@pytest.mark.parametrize(("page", "block"), PROGRAMS)
def test_a_program_with_another_package_prints_what_the_page_says(
    page: Path, block: Block, tmp_path: Path
) -> None:
    packages = block.options["packages"].split()
    if block.language == "javascript":
        (tmp_path / "node_modules").symlink_to(node_modules(*packages) / "node_modules")
        command = tool("node")
    else:
        command = str(python_environment("page", *packages))
    session = Session(tmp_path, free_port())
    session.write_files(page)
    server = next(block for block in blocks(page) if block.options.get("test") == "serve")
    with session.serve(server):
        session.run_program(block, command)


def test_pages_have_commands() -> None:
    assert {ROOT / SMOKE, ROOT / "docs/tutorial.md"} <= {*PAGES}
