"""Seeded faults match the code, and the tool that seeds them always restores the code."""

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tools import faults
from tools.faults import FAULTS, Fault, main

ROOT = Path(__file__).parents[1]
TESTS = """
import os
import signal
import time

import pytest
from price import price


def test_a_price() -> None:
    assert price == 3


def test_a_sum() -> None:
    assert price + 0 < 5


@pytest.mark.clock
def test_a_price_tomorrow() -> None:
    assert price == 3


def test_an_interruption() -> None:
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)
"""
FAULT = Fault(
    "expensive", "It costs more.", "price.py", "= 3", "= 4", ("test_price.py::test_a_price",)
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a repository with a line of code and its tests; check the line at the end."""
    (tmp_path / "price.py").write_text("price = 3\n", encoding="utf-8")
    (tmp_path / "test_price.py").write_text(TESTS, encoding="utf-8")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)
    assert (tmp_path / "price.py").read_bytes() == b"price = 3\n"


def fault_found_by(test: str) -> Fault:
    """Return the fault, to be found by *test*."""
    return replace(FAULT, tests=(f"test_price.py::{test}",))


def test_no_two_faults_share_a_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_matches_the_code_and_its_tests_exist(fault: Fault) -> None:
    text = (ROOT / fault.path).read_text(encoding="utf-8")

    assert text.count(fault.old) == 1
    assert fault.old != fault.new
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("test", "arguments", "verdict"),
    [
        ("test_a_price", [], "found   expensive"),
        ("test_a_sum", [], "MISSED  expensive"),
        ("test_a_price_tomorrow", [], "MISSED  expensive"),
        ("test_a_price_tomorrow", ["expensive", "--full", "--", "-v"], "found   expensive"),
        ("test_a_gift", [], "BROKEN  expensive"),
    ],
)
def test_a_run_prints_the_verdict_of_the_tests(
    tree: Path, capsys: pytest.CaptureFixture[str], test: str, arguments: list[str], verdict: str
) -> None:
    code = main(["run", *arguments], tree, [fault_found_by(test)])

    assert capsys.readouterr().out.startswith(verdict)
    assert code == (0 if verdict.startswith("found") else 1)


def test_tests_that_exceed_the_time_limit_are_reported_as_hung(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faults, "TIME_LIMIT", 0.1)
    monkeypatch.setattr(faults, "STOP_TIMEOUT", 0.1)

    assert main(["run"], tree, [FAULT]) == 1
    assert capsys.readouterr().out.startswith("HUNG    expensive")


def test_the_code_is_restored_when_a_run_is_interrupted(tree: Path) -> None:
    assert main(["run"], tree, [fault_found_by("test_an_interruption")]) == 130


def test_a_file_with_uncommitted_changes_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "price.py").write_text("price = 3  # or so\n", encoding="utf-8")

    assert main(["run"], tree, [FAULT]) == 1
    assert "not committed" in capsys.readouterr().out
    subprocess.run(["git", "checkout", "-q", "price.py"], cwd=tree, check=True)


@pytest.mark.parametrize("old", ["= 5", ""])
def test_a_snippet_that_does_not_occur_exactly_once_is_broken(
    tree: Path, capsys: pytest.CaptureFixture[str], old: str
) -> None:
    assert main(["run"], tree, [replace(FAULT, old=old)]) == 1
    assert capsys.readouterr().out.startswith("BROKEN  expensive")


def test_an_unknown_fault_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["run", "earthquake"])

    assert error.value.code == 2
    assert "earthquake" in capsys.readouterr().err


def test_the_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0

    out = capsys.readouterr().out
    assert all(fault.breaks in out for fault in FAULTS)
