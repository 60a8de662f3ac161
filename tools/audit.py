"""Look up known vulnerabilities in the locked dependencies (NFR-SEC-005).

Exit codes: 0 if none was found, 1 if one was found or the audit failed, 77 if no package could be
looked up, for example because the package index has no database of vulnerabilities.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXIT_SKIPPED = 77
PIP_AUDIT = "pip-audit>=2.9,<3"
ERROR_LINES = 10
"""Number of lines to show from the end of pip-audit's error output."""


class AuditError(Exception):
    """A failure of pip-audit."""


@dataclass(frozen=True)
class Report:
    """Result of pip-audit: numbers of packages looked up and skipped, and a line per finding."""

    looked_up: int
    skipped: int
    findings: list[str]

    @property
    def exit_code(self) -> int:
        """The exit code of this program."""
        if self.findings:
            return 1
        return 0 if self.looked_up else EXIT_SKIPPED

    def __str__(self) -> str:
        if not self.looked_up:
            return "skipped: no package could be looked up"
        counts = f"{self.looked_up} packages looked up, {self.skipped} skipped"
        return "\n".join([*self.findings, counts])


def parse_report(document: Any) -> Report:
    """Make a report of the JSON document that pip-audit prints."""
    packages = document["dependencies"]
    audited = [package for package in packages if "vulns" in package]
    findings = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in audited
        for vulnerability in package["vulns"]
    ]
    return Report(len(audited), len(packages) - len(audited), findings)


def audit(uv: str) -> Report:
    """Export the locked dependencies, and look them up with pip-audit.

    Raises:
        subprocess.CalledProcessError: The export failed.
        AuditError: pip-audit failed.
    """
    with TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        export = ["export", "--locked", "--no-dev", "--no-emit-workspace", "--no-hashes", "--quiet"]
        subprocess.run([uv, *export, "--output-file", requirements], cwd=ROOT, check=True)
        options = ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json"]
        command = [uv, "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit", *options]
        process = subprocess.run(
            [*command, "-r", requirements], cwd=ROOT, capture_output=True, text=True
        )
    try:
        return parse_report(json.loads(process.stdout))
    except ValueError:
        last_lines = process.stderr.strip().splitlines()[-ERROR_LINES:]
        raise AuditError("\n".join(["pip-audit failed:", *last_lines])) from None


if __name__ == "__main__":
    try:
        report = audit(sys.argv[1] if len(sys.argv) > 1 else "uv")
    except AuditError as error:
        sys.exit(str(error))
    print(report)
    sys.exit(report.exit_code)
