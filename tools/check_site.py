"""Check that no page of the built site loads anything from another host.

`uv run tools/check_site.py DIRECTORY`. Links that readers follow may lead anywhere.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

FOREIGN = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
LOADING_ATTRIBUTES = {"src", "srcset", "data", "poster", "background"}
RELATIONS_NOT_LOADED = {"canonical", "alternate", "author", "license", "next", "prev"}
CSS_URL = re.compile(r"(?:url\(|@import\s+)\s*[\"']?([^\"')\s]+)", re.IGNORECASE)
SCRIPT_URL = re.compile(r"[\"'`](https?:)?(//[\w-]+\.[\w.-]+)")
ON_DEMAND = {
    "//unpkg.com": 'class="mermaid"',
    "//api.github.com": 'data-md-component="source"',
    "//gitlab.com": 'data-md-component="source"',
}
"""Hosts that the theme's script calls only on pages with this markup."""
NAMESPACE_HOSTS = {"//www.w3.org"}
"""Hosts that are only in names of XML namespaces and are never called."""


class Page(HTMLParser):
    """A parser that collects the addresses that a page loads.

    Attributes:
        addresses: The addresses in its elements and its styles.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses in a tag."""
        values = {name: value or "" for name, value in attrs}
        for name in LOADING_ATTRIBUTES & values.keys():
            self.addresses += (
                re.split(r",\s+", values[name]) if name == "srcset" else [values[name]]
            )
        if tag == "link" and not RELATIONS_NOT_LOADED & set(values.get("rel", "").split()):
            self.addresses.append(values.get("href", ""))
        self.addresses += CSS_URL.findall(values.get("style", ""))

    def handle_data(self, data: str) -> None:
        """Collect the addresses in a style element."""
        if self.cdata_elem == "style":
            self.addresses += CSS_URL.findall(data)


def foreign_addresses(path: Path, pages: str) -> Iterator[str]:
    """Yield the addresses that a file of the site loads from other hosts.

    Args:
        path: The file.
        pages: The text of all pages.
    """
    text = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".html":
            yield from filter(FOREIGN.match, Page(text).addresses)
        case ".css":
            yield from filter(FOREIGN.match, CSS_URL.findall(text))
        case ".js":
            # hosts missing from ON_DEMAND always count, because every page has "<html"
            for _, host in SCRIPT_URL.findall(text):
                if host not in NAMESPACE_HOSTS and ON_DEMAND.get(host, "<html") in pages:
                    yield host


def main(site: Path) -> int:
    """Print the foreign addresses in *site*; return 1 if there are any or *site* has no pages."""
    pages = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    files = sorted(path for path in site.rglob("*") if path.suffix in {".html", ".css", ".js"})
    problems = [
        f"{path.relative_to(site)}: {url}"
        for path in files
        for url in foreign_addresses(path, pages)
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(files)} files in {site}, {len(problems)} foreign addresses", file=sys.stderr)
    return 1 if problems or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
