"""The command line of `tools/frameworks`: the tests of each bridge with its framework.

Each framework is installed into a separate environment in `.cache/frameworks`, because some
frameworks can't be installed together. Later runs reuse the environment. The versions are the
newest at the time of the installation or, with `--lowest`, the lowest that the bridges' extras
allow.
"""

import argparse
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from importlib.metadata import PathDistribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".cache" / "frameworks"
UV = os.environ.get("UV", "uv")
DISTRIBUTIONS = ("core", "client", "server", "auth", "bridges", "remote")
TEST_TOOLS = ("anyio", "coverage", "filelock", "httpx", "pytest", "trustme")
MIN_COVERAGE = 90
"""Lowest coverage of a bridge by its tests: lines and branches, in percent."""
TIMEOUT = 600
"""Seconds for the tests of one framework."""
FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "a2a-sdk": ("a2a-sdk",),
    "agno": ("agno", "openai"),
    "crewai": ("crewai", "crewai-files"),
    "google-adk": ("google-adk",),
    "langchain": ("langchain-core",),
    "langgraph": ("langgraph", "langchain", "langgraph-checkpoint-sqlite"),
    "openai-agents": ("openai-agents",),
    "pydantic-ai": ("pydantic-ai-slim",),
    "strands": ("strands-agents",),
}
"""The packages of each framework; the version of the first package is shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests of frameworks, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="tools/frameworks", description=(__doc__ or ""))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FRAMEWORKS))
    parser.add_argument("--full", action="store_true", help="install all packages again")
    parser.add_argument(
        "--lowest",
        action="store_true",
        help="install the lowest versions that the extras allow, instead of the newest",
    )
    options = parser.parse_args(arguments)
    if unknown := {*options.names} - FRAMEWORKS.keys():
        parser.error(f"unknown framework: {min(unknown)}; choose from {', '.join(FRAMEWORKS)}")
    names = options.names or FRAMEWORKS
    rows = [
        _test_framework(name, reinstalls=options.full, uses_lowest=options.lowest) for name in names
    ]
    print(f"\n{'framework':<16}{'version':<12}{'seconds':>8}  result")
    for name, version, seconds, result in rows:
        print(f"{name:<16}{version:<12}{seconds:>8.0f}  {result}")
    return int(not all(has_passed(result) for *_, result in rows))


def has_passed(result: str) -> bool:
    """Return whether a summary of pytest has passed tests, and no failures or errors."""
    return " passed" in result and " failed" not in result and " error" not in result


def _test_framework(
    name: str, *, reinstalls: bool, uses_lowest: bool
) -> tuple[str, str, float, str]:
    """Install a framework, run the tests of its bridge, and return a row of the table."""
    print(f"── {name}", flush=True)
    started_at = time.monotonic()
    environment = FOLDER / (f"{name}-lowest" if uses_lowest else name)
    try:
        _install(name, environment, reinstalls=reinstalls, uses_lowest=uses_lowest)
    except subprocess.CalledProcessError:
        return name, "-", time.monotonic() - started_at, "can't be installed"
    result = _test(name, environment, uses_lowest=uses_lowest)
    if has_passed(result):
        result += f", coverage {_coverage(environment)}"
    return name, _version(name, environment), time.monotonic() - started_at, result


def _install(name: str, environment: Path, *, reinstalls: bool, uses_lowest: bool) -> None:
    clear = ["--clear"] if reinstalls else ["--allow-existing"]
    subprocess.run([UV, "venv", "--quiet", *clear, str(environment)], check=True)
    folders = [f"packages/apcore-a2a-{distribution}" for distribution in DISTRIBUTIONS]
    own_packages = [word for folder in folders for word in ("--editable", folder)]
    required = [
        *own_packages,
        *TEST_TOOLS,
        *FRAMEWORKS[name],
        *_requirements_of(name, uses_lowest=uses_lowest),
    ]
    command = [UV, "pip", "install", "--quiet", "--python", str(environment), *required]
    subprocess.run(command, check=True, cwd=ROOT)


def _requirements_of(name: str, *, uses_lowest: bool) -> list[str]:
    """Return the requirements of a framework's extra, with their lowest versions if asked for."""
    text = (ROOT / "packages/apcore-a2a-bridges/pyproject.toml").read_text(encoding="utf-8")
    extras: dict[str, list[str]] = tomllib.loads(text)["project"]["optional-dependencies"]
    lines = extras.get(name, [])  # a2a-sdk has no extra, because the server requires it
    return [line.replace(">=", "==") for line in lines] if uses_lowest else lines


def _test(name: str, environment: Path, *, uses_lowest: bool) -> str:
    """Run the tests, and return the last line of pytest's output.

    With the lowest versions, warnings do not fail tests: those versions use features that later
    releases of their dependencies deprecate.
    """
    module = name.replace("-", "_")
    files = sorted(ROOT.glob(f"tests/bridges/test_{module}*.py"))
    bridge = f"*/apcore_a2a_bridges/{module}*.py"
    command = [*_coverage_command(environment, "run"), "--branch", f"--include={bridge}"]
    command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)]
    command += ["-W", "default"] if uses_lowest else []
    try:
        run = subprocess.run(
            command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return f"not finished after {TIMEOUT} s"
    if run.returncode:
        print(run.stdout)
    lines = run.stdout.strip().splitlines() or [run.stderr.strip()[-200:]]
    return lines[-1].strip("= ")


def _coverage(environment: Path) -> str:
    """Return the bridge's coverage of lines and branches in percent; print a report if too low."""
    command = [*_coverage_command(environment, "report"), f"--fail-under={MIN_COVERAGE}"]
    run = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if run.returncode:
        print(run.stdout)
    total = run.stdout.split()[-1:] or ["unknown"]
    failed = f" failed: it must be at least {MIN_COVERAGE} %" if run.returncode else ""
    return f"{total[0]}{failed}"


def _coverage_command(environment: Path, action: str) -> list[str]:
    python, data = environment / "bin" / "python", environment / "coverage"
    # `--rcfile=`, because the configuration in pyproject.toml omits the bridges of frameworks
    return [str(python), "-m", "coverage", action, "--rcfile=", f"--data-file={data}"]


def _version(name: str, environment: Path) -> str:
    package = FRAMEWORKS[name][0].replace("-", "_")
    for path in environment.glob(f"lib/python*/site-packages/{package}-*.dist-info"):
        return PathDistribution(path).version
    return "-"


if __name__ == "__main__":
    sys.exit(main())
