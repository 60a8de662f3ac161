"""Hook of MkDocs: adapt pages that are also read on GitHub.

Links that lead out of the site, such as to the code, become links to the repository. A link to a
file that does not exist stays as it is, so that MkDocs reports it.
"""

import re
from pathlib import Path
from typing import Any

REPOSITORY = "https://github.com/aipartnerup/apcore-a2a/blob/main/"
ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\(|^\[[^\]\n]+\]: )(\.{0,2}[\w./-]+)(#[\w-]+)?(?=[)\s])", re.MULTILINE)
FENCE_OPTIONS = re.compile(r'^( *```+\w+)((?: \w+="[^"\n]*")+) *$', re.MULTILINE)
TITLE = re.compile(r"# (.+)")


def on_config(config: Any) -> Any:
    """List all decisions in the navigation."""
    pages = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("decisions/0*.md"))
    config.nav[-1]["Project"].append(
        {"Decisions": ["decisions/README.md", *({title(page): page} for page in pages)]}
    )
    return config


def title(page: str) -> str:
    """Return the heading of a page."""
    heading = TITLE.match((DOCS / page).read_text(encoding="utf-8"))
    return heading.group(1) if heading else page


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the page's Markdown for the site."""
    folder = (DOCS / page.file.src_uri).parent

    def replace_link(match: re.Match[str]) -> str:
        before, path, anchor = match.group(1), match.group(2), match.group(3) or ""
        target = (folder / path).resolve()
        is_outside = not target.is_relative_to(DOCS) or target.is_relative_to(DOCS / "internal")
        if not is_outside or not target.exists():
            return match.group()
        return f"{before}{REPOSITORY}{target.relative_to(ROOT).as_posix()}{anchor}"

    return FENCE_OPTIONS.sub(keep_title, LINK.sub(replace_link, markdown))


def keep_title(match: re.Match[str]) -> str:
    """Remove all options of a fence but its title; the other options are for the tests."""
    titles = re.findall(r' title="[^"]*"', match.group(2))
    return match.group(1) + "".join(titles)
