"""Environments for other versions of packages and for Node; built once, cached in `.cache/`."""

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
INSTALL_TIMEOUT = 300
"""Seconds that an installation may take at most."""


def python_environment(name: str, *requirements: str, sources: Sequence[Path] = ()) -> Path:
    """Return the Python of an environment with *requirements* and the packages at *sources*.

    Sources are editable installs: only a change of their pyproject.toml needs a new environment.
    """
    uv = tool("uv")
    projects = [Path(path, "pyproject.toml").read_text() for path in sources]
    editable = [argument for path in sources for argument in ("--editable", str(path))]

    def install(folder: Path) -> None:
        run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        python = str(interpreter(folder))
        run(uv, "pip", "install", "--quiet", "--python", python, *editable, *requirements)

    return interpreter(cached(name, [sys.version, *requirements, *projects], install))


def node_modules(*requirements: str) -> Path:
    """Return a folder with the npm packages *requirements* installed."""
    npm = tool("npm")
    tool("node")  # skips the test if Node is missing

    def install(folder: Path) -> None:
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
        run(npm, "install", "--prefix", str(folder), *options, *requirements)

    return cached("node", requirements, install)


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def cached(name: str, key_parts: Sequence[str], install: Callable[[Path], None]) -> Path:
    """Return the folder of an environment; build it first if none is cached for *key_parts*."""
    digest = hashlib.sha256("\0".join(key_parts).encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
        try:
            install(draft)
            draft.replace(folder)  # under its final name only once it is complete
        except OSError:
            if not folder.is_dir():  # no other process has built it in the meantime
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def forget(name: str) -> None:
    """Remove the environments called *name*, so that they are built again."""
    for folder in CACHE.glob(f"{name}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def tool(name: str) -> str:
    # uv need not be in PATH: `uv run` exports its path as UV, and `tools/uv.sh` installs it
    path = os.environ.get("UV") if name == "uv" else None
    path = path or shutil.which(name) or shutil.which(ROOT / ".cache" / "uv" / "bin" / name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(*command: str) -> None:
    """Run a command that needs the network; if it fails, skip the test with the reason."""
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, cwd=CACHE
    )
    if result.returncode:
        pytest.skip(f"{' '.join(command[:3])} failed: {result.stderr[-500:]}")
