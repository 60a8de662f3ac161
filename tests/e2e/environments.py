"""Environments of other versions and other languages, made once and kept in `.cache/`."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "e2e"
PATIENCE = 300
"""Seconds that an installation may take."""


def python_environment(name: str, *requirements: str, sources: Sequence[Path] = ()) -> Path:
    """The interpreter of an environment with *requirements* and the packages at *sources*.

    Sources are installed as editable, so that only what they require makes a new environment.
    """
    uv = tool("uv")
    required = [*requirements, *(Path(path, "pyproject.toml").read_text() for path in sources)]
    editable = [argument for path in sources for argument in ("--editable", str(path))]

    def install(folder: Path) -> None:
        run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        python = str(interpreter(folder))
        run(uv, "pip", "install", "--quiet", "--python", python, *editable, *requirements)

    return interpreter(made(name, [sys.version, *required], install))


def node_modules(*requirements: str) -> Path:
    """A folder that has the npm packages *requirements*."""
    npm = tool("npm")
    tool("node")

    def install(folder: Path) -> None:
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
        run(npm, "install", "--prefix", str(folder), *options, *requirements)

    return made("node", requirements, install)


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def made(name: str, parts: Sequence[str], install: Callable[[Path], None]) -> Path:
    """The folder of an environment; it gets its name when it is complete."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
        try:
            install(draft)
            draft.replace(folder)
        except OSError:
            if not folder.is_dir():  # nobody else has made it in the meantime
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def tool(name: str) -> str:
    # uv says to what it runs where it is itself, which need not be in PATH
    found = os.environ.get("UV") if name == "uv" else None
    found = found or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str) -> None:
    """Run a command that needs the network, or skip the test and say why."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=CACHE)
    if result.returncode:
        pytest.skip(f"{' '.join(command[:3])} failed: {result.stderr[-500:]}")
