"""Print the changelog entry of a release: `python tools/release_notes.py v0.10.0`.

The tag must match the version of every distribution, and the entry must have a date.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def versions() -> dict[str, str]:
    """Return the version of each distribution of the workspace."""
    projects = [
        tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for path in sorted(ROOT.glob("packages/*/pyproject.toml"))
    ]
    return {project["name"]: project["version"] for project in projects}


def entry(changelog: str, version: str) -> str:
    """Return the entry of *changelog* for *version*, without its heading.

    Raises:
        ValueError: The entry is missing, has no date, or is empty.
    """
    heading = rf"^## {re.escape(version)} — (?P<date>\S+)$"
    match = re.search(rf"{heading}(?P<text>.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if match is None:
        raise ValueError(f"CHANGELOG.md has no entry for {version}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", match["date"]):
        raise ValueError(f"CHANGELOG.md has no date for {version}: {match['date']!r}")
    if not match["text"].strip():
        raise ValueError(f"CHANGELOG.md says nothing about {version}")
    return match["text"].strip()


def main(tag: str) -> None:
    """Print the changelog entry of the release *tag*."""
    for name, version in versions().items():
        if tag != f"v{version}":
            raise ValueError(f"the tag is {tag}, but {name} has version {version}")
    print(entry((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), tag.removeprefix("v")))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: release_notes.py TAG, such as v0.10.0")
    try:
        main(sys.argv[1])
    except ValueError as error:
        sys.exit(f"release_notes.py: {error}")
