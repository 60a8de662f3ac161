"""The audit of dependencies, given outputs of pip-audit."""

from typing import Any

from tools.audit import SKIPPED, read

SAFE = {"name": "httpx", "version": "0.28.1", "vulns": []}
NOT_FOUND = {"name": "wrapt", "skip_reason": "Dependency not found on PyPI"}
VULNERABLE: dict[str, Any] = {
    "name": "old",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


def test_a_known_vulnerability_fails_the_audit_and_is_named() -> None:
    report = read({"dependencies": [SAFE, VULNERABLE, NOT_FOUND]})

    assert report.code == 1
    assert str(report).splitlines() == [
        "old 1.0: PYSEC-1, fixed in 1.1",
        "old 1.0: PYSEC-2, fixed in no version yet",
        "2 packages looked up, 1 could not be",
    ]


def test_without_vulnerabilities_the_audit_passes() -> None:
    assert read({"dependencies": [SAFE, NOT_FOUND]}).code == 0


def test_the_audit_is_skipped_if_no_package_could_be_looked_up() -> None:
    report = read({"dependencies": [NOT_FOUND]})

    assert report.code == SKIPPED
    assert "skipped" in str(report)
