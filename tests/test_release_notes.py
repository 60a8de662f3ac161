"""Releases are refused unless tag, versions and changelog entry agree."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHANGELOG = """\
# Changelog

## 1.2.0 — 2026-01-02

### Added

- A thing.

## 1.1.0 — 2025-12-01

- Another thing.
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a workspace of two distributions, both of version 1.2.0."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "release_notes.py", tmp_path / "tools")
    for name in ("one", "two"):
        write_version(tmp_path, name, "1.2.0")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    return tmp_path


def write_version(tree: Path, name: str, version: str) -> None:
    path = tree / "packages" / name / "pyproject.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[project]\nname = "{name}"\nversion = "{version}"\n', encoding="utf-8")


def run_release_notes(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "tools" / "release_notes.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def test_the_entry_of_the_version_is_printed_without_its_heading(tree: Path) -> None:
    result = run_release_notes(tree, "v1.2.0")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "### Added\n\n- A thing.\n"


def test_the_last_entry_ends_with_the_file(tree: Path) -> None:
    for name in ("one", "two"):
        write_version(tree, name, "1.1.0")

    assert run_release_notes(tree, "v1.1.0").stdout == "- Another thing.\n"


@pytest.mark.parametrize("tag", ["v1.2.1", "1.2.0", "v1.2", "v1.2.0rc1"])
def test_a_tag_that_is_not_the_version_is_refused(tree: Path, tag: str) -> None:
    result = run_release_notes(tree, tag)

    assert (result.returncode, result.stdout) == (1, "")
    assert f"the tag is {tag}, but one has version 1.2.0" in result.stderr


def test_a_distribution_of_another_version_is_refused(tree: Path) -> None:
    write_version(tree, "two", "1.1.0")

    result = run_release_notes(tree, "v1.2.0")

    assert (result.returncode, result.stdout) == (1, "")
    assert "two has version 1.1.0" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("## 1.2.0 — 2026-01-02", "## 1.2.0 — unreleased", "no date for 1.2.0"),
        ("## 1.2.0 — 2026-01-02", "## 1.2.0rc1 — 2026-01-02", "no entry for 1.2.0"),
        ("## 1.2.0 — 2026-01-02", "## 1x2.0 — 2026-01-02", "no entry for 1.2.0"),
        ("### Added\n\n- A thing.\n", "", "nothing about 1.2.0"),
    ],
)
def test_a_missing_or_unfinished_entry_is_refused(
    tree: Path, old: str, new: str, complaint: str
) -> None:
    (tree / "CHANGELOG.md").write_text(CHANGELOG.replace(old, new), encoding="utf-8")

    result = run_release_notes(tree, "v1.2.0")

    assert (result.returncode, result.stdout) == (1, "")
    assert complaint in result.stderr


@pytest.mark.parametrize("arguments", [[], ["v1.2.0", "v1.1.0"]])
def test_exactly_one_tag_is_required(tree: Path, arguments: list[str]) -> None:
    result = run_release_notes(tree, *arguments)

    assert result.returncode == 1
    assert "usage" in result.stderr
