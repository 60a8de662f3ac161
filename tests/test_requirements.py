"""The requirements page is complete, and its references exist."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "internal" / "requirements.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith(("| FR-", "| NFR-"))
]
"""Id, title, status, module, test and remark of each requirement."""

STATUSES = ["met", "deviates", "in part", "waits"]
COUNTS = (
    r"(\d+) requirements\s(\d+) are met, (\d+) deviate, (\d+) are met in part, and (\d+) wait\."
)
RANGES = """
    FR-SRV-001..005 FR-AGC-001..005 FR-SKL-001..004 FR-MSG-001..006 FR-TSK-001..006
    FR-EXE-001..003 FR-ERR-001..008 FR-CLI-001..005 FR-CTX-001..004 FR-PSH-001..004
    FR-AUT-001..004 FR-STR-001..003 FR-CMD-001..002 FR-EXP-001..001 FR-OPS-001..003
    NFR-PERF-001..008 NFR-SEC-001..005 NFR-REL-001..004 NFR-CMP-001..005 NFR-MNT-001..005
    NFR-SCA-001..003
"""
FOLDERS = ("docs/", "examples/", "packages/", "tests/", "tools/")


def every_id() -> list[str]:
    """Return the ids in RANGES."""
    spans = [re.fullmatch(r"(.+-)(\d{3})\.\.(\d{3})", span) for span in RANGES.split()]
    return [
        f"{span[1]}{number:03}"
        for span in spans
        if span
        for number in range(int(span[2]), int(span[3]) + 1)
    ]


def names_in(text: str) -> list[str]:
    """Return the texts in backticks in *text*."""
    return re.findall(r"`([^`]+)`", text)


def exists(name: str) -> bool:
    """Return whether the file *name* exists, with the test after its `::` if there is one."""
    path, _, test = name.partition("::")
    file = ROOT / path
    if not test:
        return file.exists()
    return file.is_file() and f"def {test}(" in file.read_text(encoding="utf-8")


def is_module(name: str) -> bool:
    """Return whether a distribution has the module or package *name*."""
    path = name.replace(".", "/")
    patterns = (f"packages/*/src/{path}{end}" for end in (".py", "/__init__.py"))
    return any(found for pattern in patterns for found in ROOT.glob(pattern))


def test_every_requirement_has_its_row() -> None:
    assert [row[0] for row in ROWS] == every_id()


def test_every_row_has_the_cells_that_its_status_requires() -> None:
    for requirement, title, status, _, test, remark in ROWS:
        assert title, requirement
        assert status in STATUSES, requirement
        assert bool(remark) == (status != "met"), requirement
        assert names_in(test) or status == "waits", requirement


def test_every_path_and_every_test_exists() -> None:
    names = [name for name in names_in(TEXT) if name.startswith(FOLDERS)]
    assert names
    assert [name for name in names if not exists(name)] == []
    assert [name for row in ROWS for name in names_in(row[4]) if name not in names] == []


def test_every_module_exists() -> None:
    names = [name for row in ROWS for name in names_in(row[3])]
    assert names
    assert [name for name in names if not is_module(name)] == []


def test_the_counts_are_right() -> None:
    stated = re.search(COUNTS, TEXT)
    counts = Counter(row[2] for row in ROWS)
    assert stated is not None
    assert [*map(int, stated.groups())] == [len(ROWS), *(counts[status] for status in STATUSES)]
