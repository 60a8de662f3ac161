"""Look the locked dependencies up in the database of known vulnerabilities (NFR-SEC-005).

Exit codes: 0 when none is known, 1 when some are, 77 when the database can't be reached.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = 77
AUDIT = "pip-audit>=2.9,<3"


@dataclass(frozen=True)
class Report:
    """What pip-audit found: how many packages it could look up, and a line for each finding."""

    looked_up: int
    skipped: int
    findings: list[str]

    @property
    def code(self) -> int:
        """The exit code."""
        if self.findings:
            return 1
        return 0 if self.looked_up else SKIPPED

    def __str__(self) -> str:
        if not self.looked_up:
            return "skipped: the package index here has no database of vulnerabilities"
        counts = f"{self.looked_up} packages looked up, {self.skipped} could not be"
        return "\n".join([*self.findings, counts])


def read(document: Any) -> Report:
    """The report in the JSON that pip-audit prints."""
    packages = document["dependencies"]
    known = [package for package in packages if "vulns" in package]
    findings = [
        f"{package['name']} {package['version']}: {found['id']}, "
        f"mended in {', '.join(found['fix_versions']) or 'no version yet'}"
        for package in known
        for found in package["vulns"]
    ]
    return Report(len(known), len(packages) - len(known), findings)


def audit(uv: str) -> Report:
    """Export what is locked, and have pip-audit look it up.

    Raises:
        subprocess.CalledProcessError: It could not be exported.
    """
    with TemporaryDirectory() as folder:
        listed = Path(folder, "requirements.txt")
        export = ["export", "--locked", "--no-dev", "--no-emit-workspace", "--no-hashes", "--quiet"]
        subprocess.run([uv, *export, "--output-file", listed], cwd=ROOT, check=True)
        options = ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json"]
        command = [uv, "tool", "run", "--quiet", "--from", AUDIT, "pip-audit", *options]
        done = subprocess.run([*command, "-r", listed], cwd=ROOT, capture_output=True, text=True)
    try:
        return read(json.loads(done.stdout))
    except ValueError:
        print(done.stderr.strip()[-500:], file=sys.stderr)
        return Report(0, 0, [])


if __name__ == "__main__":
    report = audit(sys.argv[1] if len(sys.argv) > 1 else "uv")
    print(report)
    sys.exit(report.code)
