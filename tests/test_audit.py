"""The audit of dependencies, given outputs of pip-audit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools import audit
from tools.audit import EXIT_SKIPPED, parse_report

SAFE = {"name": "httpx", "version": "0.28.1", "vulns": []}
NOT_FOUND = {"name": "wrapt", "skip_reason": "Dependency not found on PyPI"}
VULNERABLE: dict[str, Any] = {
    "name": "old",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


def test_a_known_vulnerability_fails_the_audit_and_is_named() -> None:
    report = parse_report({"dependencies": [SAFE, VULNERABLE, NOT_FOUND]})

    assert report.exit_code == 1
    assert str(report).splitlines() == [
        "old 1.0: PYSEC-1, fixed in 1.1",
        "old 1.0: PYSEC-2, fixed in no version yet",
        "2 packages looked up, 1 skipped",
    ]


def test_without_vulnerabilities_the_audit_passes() -> None:
    assert parse_report({"dependencies": [SAFE, NOT_FOUND]}).exit_code == 0


def test_the_audit_is_skipped_if_no_package_could_be_looked_up() -> None:
    report = parse_report({"dependencies": [NOT_FOUND]})

    assert report.exit_code == EXIT_SKIPPED
    assert "skipped" in str(report)


def audit_with(uv: Path, script: str) -> "subprocess.CompletedProcess[str]":
    """Run the audit with a uv whose export works, and whose pip-audit is *script*."""
    uv.write_text(f'#!/bin/sh\n[ "$1" = export ] && exit\n{script}\n', encoding="utf-8")
    uv.chmod(0o755)
    command = [sys.executable, audit.__file__, str(uv)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_failure_of_pip_audit_fails_the_audit_and_is_shown(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    script = f"cat >&2 <<'END'\n{chr(10).join(lines)}\nEND\nexit 1"
    process = audit_with(tmp_path / "uv", script)
    assert process.returncode == 1
    assert process.stderr.splitlines() == ["pip-audit failed:", *lines[-10:]]
    assert "skipped" not in process.stdout


def test_the_audit_is_skipped_if_the_index_has_no_database(tmp_path: Path) -> None:
    output = json.dumps({"dependencies": [NOT_FOUND]})
    process = audit_with(tmp_path / "uv", f"echo '{output}'")
    assert process.returncode == EXIT_SKIPPED
    assert process.stdout.startswith("skipped: ")
