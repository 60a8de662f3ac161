"""Set the one version that every distribution shares: `uv run tools/bump.py 0.10.0 && uv lock`."""

import re
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

PACKAGES = Path(__file__).resolve().parents[1] / "packages"
VERSION = re.compile(
    r"""
    (?P<before> ^version\ =\ "                         # the version of the project
              | "apcore-a2a[a-z-]*(?:\[[^]]*\])?==  )  # a pin of a sibling, with or without extras
    [^"; ]+
    """,
    re.MULTILINE | re.VERBOSE,
)


def main(version: str) -> None:
    """Write *version* into each project and each pin of a sibling."""
    for path in sorted(PACKAGES.glob("*/pyproject.toml")):
        text, count = VERSION.subn(rf"\g<before>{version}", path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        print(f"{path.parent.name}: {count} places changed")


if __name__ == "__main__":
    try:
        (argument,) = sys.argv[1:]
        main(str(Version(argument)))
    except (ValueError, InvalidVersion):
        sys.exit("usage: bump.py VERSION, such as 0.10.0 or 1.0.0rc1")
