"""Check line and branch coverage separately: `check_coverage.py COVERAGE_JSON`.

`coverage report --fail-under` checks only a combined figure.
"""

import json
import sys
from pathlib import Path

FLOORS = {"lines": 95.0, "branches": 90.0}  # percent


def main(report: Path) -> int:
    """Print the line and branch coverage in *report*; return how many are below their floor."""
    totals = json.loads(report.read_text(encoding="utf-8"))["totals"]
    counts = {
        "lines": (totals["covered_lines"], totals["num_statements"]),
        "branches": (totals["covered_branches"], totals["num_branches"]),
    }
    too_low_count = 0
    for kind, (covered, total) in counts.items():
        percent = 100 * covered / total if total else 100.0
        verdict = "ok" if percent >= FLOORS[kind] else "too low"
        too_low_count += verdict != "ok"
        print(
            f"{kind:9} {covered} of {total}, {percent:.1f} % (at least {FLOORS[kind]:g}): {verdict}"
        )
    return too_low_count


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
