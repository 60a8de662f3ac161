"""The tools of the repository, most of them run as contributors run them."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.server.test_fuzz import FuzzedAgent
from tests.store.postgresql import find
from tests.store.trials import Scenario, Trial
from tools import chaos, frameworks, fuzzing
from tools.pictures import VIEWS

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tools"


def run(*command: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(argument) for argument in command],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=cwd,
        check=False,
    )


def run_python(tool: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, tool, *arguments)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy the tools next to an empty distribution called apcore-a2a-core."""
    shutil.copytree(TOOLS, tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "packages" / "apcore-a2a-core" / "src" / "apcore_a2a_core"
    source.mkdir(parents=True)
    (source.parents[1] / "pyproject.toml").touch()
    return tmp_path


def run_sizes(tree: Path, source: str) -> subprocess.CompletedProcess[str]:
    module = tree / "packages" / "apcore-a2a-core" / "src" / "apcore_a2a_core" / "module.py"
    module.write_text(source, encoding="utf-8")
    return run_python(tree / "tools" / "sizes.py")


def function(name: str, lines: int, indent: str = "") -> str:
    return f"{indent}def {name}():\n" + f"{indent}    pass\n" * lines


SMALL = "".join(function(f"small_{number}", 1) for number in range(40))


def test_sizes_accepts_functions_at_the_bound(tree: Path) -> None:
    result = run_sizes(tree, SMALL + function("long", 50))

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1].split() == [
        *("apcore-a2a-core", "1", "0", "131", "41", "1", "1", "50")
    ]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (SMALL + function("long", 51), "module.py:81 long: 51 lines"),
        (SMALL + function("outer", 30) + function("inner", 20, "    "), "outer: 51 lines"),
        (function("one", 9), "the median function has 9 lines"),
        (function("small", 1) * 9 + function("long", 36), "module.py:19 long: 36 lines"),
        ("# comment\n" * 501, "module.py: 501 lines"),
    ],
    ids=["longest", "with nested functions", "median", "95th percentile", "module"],
)
def test_sizes_lists_violations(tree: Path, source: str, complaint: str) -> None:
    result = run_sizes(tree, source)

    assert result.returncode == 1
    assert complaint in result.stdout


@pytest.mark.parametrize("source", [SMALL + "x = [\n" + "    1,\n" * 300 + "]\n", "a = 1\n" * 390])
def test_sizes_does_not_limit_code_outside_functions(tree: Path, source: str) -> None:
    assert run_sizes(tree, source).returncode == 0


def test_sizes_refuses_more_than_one_tiny_module_in_ten(tree: Path) -> None:
    source = tree / "packages" / "apcore-a2a-core" / "src" / "apcore_a2a_core"
    (source / "__init__.py").write_text("")
    for number in range(8):
        (source / f"other_{number}.py").write_text("a = 1\n" * 40)
    (source / "tiny.py").write_text("a = 1\n" * 39)

    assert run_sizes(tree, "a = 1\n" * 40).returncode == 0
    result = run_sizes(tree, "a = 1\n" * 39)
    assert result.returncode == 1
    assert "2 of 10 modules have fewer than 40 lines" in result.stdout
    assert "tiny.py: 39 lines" in result.stdout


def test_sizes_does_not_count_blank_lines_comments_and_docstrings(tree: Path) -> None:
    source = '''
"""A module.

Of several lines.
"""

# A comment.


def documented():
    """A function."""

    # It does nothing:
    return """
        in several lines
    """  # four code lines in all
'''
    (line,) = (row for row in run_sizes(tree, source).stdout.splitlines() if row.startswith("all"))

    assert line.split() == ["all", "1", "1", "4", "1", "3", "3", "3"]


def test_bump_changes_every_version_and_every_pin(tree: Path) -> None:
    shutil.copytree(ROOT / "packages", tree / "packages", dirs_exist_ok=True)
    facade = tree / "packages" / "apcore-a2a" / "pyproject.toml"
    before = facade.read_text(encoding="utf-8")
    old = tomllib.loads(before)["project"]["version"]

    assert run_python(tree / "tools" / "bump.py", "99.1.0rc1").returncode == 0

    assert facade.read_text(encoding="utf-8") == before.replace(old, "99.1.0rc1")
    for path in (tree / "packages").glob("*/pyproject.toml"):
        assert tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"] == "99.1.0rc1"
        assert f"=={old}" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [[], ["new"], ["1.0", "2.0"]])
def test_bump_refuses_an_invalid_version(tree: Path, arguments: list[str]) -> None:
    result = run_python(tree / "tools" / "bump.py", *arguments)

    assert result.returncode == 1
    assert "usage" in result.stderr


@pytest.mark.parametrize(
    ("covered_lines", "covered_branches", "code"), [(95, 90, 0), (94, 90, 1), (95, 89, 1)]
)
def test_coverage_is_checked_for_lines_and_for_branches(
    tmp_path: Path, covered_lines: int, covered_branches: int, code: int
) -> None:
    totals = {"covered_lines": covered_lines, "num_statements": 100}
    totals |= {"covered_branches": covered_branches, "num_branches": 100}
    (tmp_path / "coverage.json").write_text(json.dumps({"totals": totals}))

    result = run_python(TOOLS / "check_coverage.py", tmp_path / "coverage.json")

    assert result.returncode == code


@pytest.mark.parametrize("tool", ["test", "demo"])
def test_a_tool_prints_its_help_in_any_folder(tool: str, tmp_path: Path) -> None:
    result = run(TOOLS / tool, "--help", cwd=tmp_path)

    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: tools/{tool} ")


@pytest.mark.parametrize("arguments", [["--fast"], ["tests"], ["--full", "--all-pythons"]])
def test_the_test_tool_refuses_unknown_arguments(arguments: list[str]) -> None:
    result = run(TOOLS / "test", *arguments)

    assert result.returncode == 2
    assert arguments[-1] in result.stderr


@pytest.mark.parametrize("option", ["--full", "--pythons"])
def test_the_test_tool_refuses_to_combine_quick_with_other_options(option: str) -> None:
    assert run(TOOLS / "test", "--quick", option).returncode == 2


@pytest.mark.parametrize("arguments", [["--port"], ["http"], ["0"], ["65536"], ["8000", "8001"]])
def test_the_demo_refuses_an_invalid_port(arguments: list[str]) -> None:
    result = run(TOOLS / "demo", *arguments)

    assert result.returncode == 2
    assert "Usage" in result.stderr


def test_the_demo_reads_the_port_from_the_environment() -> None:
    assert "not a port: http" in run(TOOLS / "demo", PORT="http").stderr


@pytest.mark.process
def test_the_demo_exits_with_a_message_if_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_socket:
        port = taken_socket.getsockname()[1]
        result = run(TOOLS / "demo", port)

    assert result.returncode == 1
    assert f"port {port} is not available: " in result.stderr


@pytest.mark.process
def test_the_fuzzer_prints_its_seed_and_results(tmp_path: Path) -> None:
    result = run(TOOLS / "fuzz", "--cases", 30, "--seed", 1, cwd=tmp_path)

    assert (result.returncode, result.stderr) == (0, "")
    first, second, last = result.stdout.splitlines()
    assert first == "30 cases, --seed 1"
    assert second.split()[:2] == ["30", "responses"]
    assert last == "nothing found"


@pytest.mark.parametrize(
    "kind", [pytest.param("bodies", marks=pytest.mark.clock), "hosts", "credentials"]
)
def test_the_fuzzer_generates_other_kinds_of_cases(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fuzzing.main(["--kind", kind, "--cases", "10", "--seed", "1"]) == 0

    assert capsys.readouterr().out.endswith("\nnothing found\n")


class FailingAgent(FuzzedAgent):
    """Agent that always answers 500."""

    def _open(self) -> None:
        super()._open()
        self.app = fail


async def fail(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


def test_the_fuzzer_prints_the_failing_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzzing.main(["--cases", "5", "--seed", "1"], FailingAgent) == 1

    printed = capsys.readouterr().out
    assert "Wrong: AssertionError: the status is 500" in printed
    assert "\ncurl -s http://127.0.0.1:8000/ -H 'content-type: application/json' --data" in printed
    assert printed.endswith("\nHTTP 500 {}\n")


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--cases=0", 2), ("--cases=x", 2)])
def test_the_fuzzer_prints_its_help_and_refuses_invalid_options(
    argument: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        fuzzing.main([argument])

    assert exit_info.value.code == code
    assert "usage: tools/fuzz " in "".join(capsys.readouterr())


def test_the_pictures_tool_takes_the_screenshots_in_the_documentation() -> None:
    page = (ROOT / "docs" / "explorer.md").read_text(encoding="utf-8")
    screenshots = {
        f"explorer/{name}-{scheme}.png" for name in VIEWS for scheme in ("light", "dark")
    }
    assert {*re.findall(r'"(explorer/\S+\.png)"', page)} == screenshots


def do_nothing(trial: Trial, *, rounds: int) -> None:
    """Measure rounds without doing anything."""
    for number in range(rounds):
        trial.record_duration("a round", number / 10, limit=1)


def fail_trial(trial: Trial) -> None:
    """Raise an error."""
    raise AssertionError("t1: was acknowledged, but is lost")


SCENARIOS = {"harmless": Scenario(do_nothing, {"rounds": 9}), "harmful": Scenario(fail_trial, {})}


def test_chaos_prints_its_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    skip_without_postgresql()
    assert chaos.main(["harmless", "--rounds", "3", "--seed", "1"], SCENARIOS) == 0

    first, *_, heading, outcome, measured = capsys.readouterr().out.splitlines()
    assert first == "harmless; --seed 1"
    assert outcome == "harmless   passed in 0 s"
    assert measured.split() == ["a", "round", "3", "0.10", "s", "0.20", "s", "1.00", "s"]
    assert heading.split()[:3] == ["scenario", "measured", "count"]


def test_chaos_continues_after_a_failure_and_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    skip_without_postgresql()
    assert chaos.main(["harmful", "harmless"], SCENARIOS) == 1

    printed = capsys.readouterr().out
    assert "WRONG: AssertionError: t1: was acknowledged, but is lost" in printed
    assert "harmful    WRONG in 0 s" in printed
    assert "harmless   passed in 0 s" in printed


def skip_without_postgresql() -> None:
    if find("initdb") is None:
        pytest.skip("PostgreSQL is missing. Debian and Ubuntu: apt install postgresql")


def test_chaos_lists_its_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        chaos.main(["--help"])

    assert exit_info.value.code == 0
    printed = capsys.readouterr().out
    for name, scenario in chaos.SCENARIOS.items():
        assert f"  {name:8} {scenario.about}" in printed


@pytest.mark.parametrize("arguments", [["earthquake"], ["--rounds", "0"], ["--rounds", "many"]])
def test_chaos_refuses_invalid_arguments(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        chaos.main(arguments)

    assert exit_info.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("summary", "has_passed"),
    [
        ("5 passed in 1.2s, coverage 100 %", True),
        ("5 passed, 2 skipped in 1.2s, coverage 90 %", True),
        ("1 failed, 5 passed in 1.2s", False),
        ("5 passed, 1 error in 1.2s", False),
        ("not finished after 900 s", False),
    ],
)
def test_a_framework_passes_if_no_test_fails(summary: str, has_passed: bool) -> None:
    assert frameworks.has_passed(summary) is has_passed


@pytest.mark.parametrize("summary", ["1 failed, 5 passed in 1.2s", "5 passed, 1 error in 1.2s"])
def test_the_coverage_of_a_framework_is_not_measured_if_a_test_fails(
    summary: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frameworks, "_install", lambda *args, **options: None)
    monkeypatch.setattr(frameworks, "_test", lambda *args, **options: summary)
    monkeypatch.setattr(frameworks, "_coverage", lambda environment: "100 %")

    assert frameworks.main(["agno"]) == 1
    assert "coverage" not in capsys.readouterr().out
