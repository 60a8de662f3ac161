"""`markdown.html`: convert common Markdown to HTML that is safe to show."""

import re
from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Any

from apcore import Context, ModuleAnnotations, ModuleExample
from pydantic import BaseModel, ConfigDict, Field

FENCE = re.compile(r"^```[^`\n]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
LINE_PATTERNS = {
    "h": re.compile(r"#{1,6} +\S.*"),
    "ul": re.compile(r"[-*+] +\S.*"),
    "ol": re.compile(r"[0-9]{1,9}[.)] +\S.*"),
}

# Each alternative stops at its first closing mark, so that even hostile text takes linear time.
# Links with schemes other than http, https and mailto stay text.
INLINE = re.compile(
    r"`(?P<code>[^`]+)`"
    r"|\[(?P<label>[^\[\]]+)\]\((?P<url>(?i:https?://|mailto:)[^\s()]+)\)"
    r"|\*\*(?P<strong>[^*\s](?:[^*]*[^*\s])?)\*\*"
    r"|\*(?P<em>[^*\s](?:[^*]*[^*\s])?)\*"
)


class HtmlInput(BaseModel):
    """Markdown document."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(description="The Markdown document.", max_length=200_000)


class HtmlOutput(BaseModel):
    """Document in HTML."""

    html: str = Field(description="An HTML fragment for the body of a page.")


class Html:
    """Turn Markdown into HTML."""

    name = "Markdown to HTML"
    description = (
        "Turn Markdown into HTML that is safe to show. Understands headings, paragraphs, emphasis, "
        "code, fenced code, flat lists, and links to http, https and mailto addresses. Everything "
        "else, including HTML, is shown as plain text."
    )
    version = "1.0.0"
    tags = ["markdown", "html", "text"]
    annotations = ModuleAnnotations(readonly=True, idempotent=True, open_world=False)
    examples = [
        ModuleExample(
            title="A heading and a list",
            inputs={"text": "# Groceries\n\n- *ripe* tomatoes\n- bread & butter"},
            output={
                "html": "<h1>Groceries</h1>\n"
                "<ul>\n<li><em>ripe</em> tomatoes</li>\n<li>bread &amp; butter</li>\n</ul>"
            },
        ),
        ModuleExample(
            title="A link, and one that is refused",
            inputs={"text": "[docs](https://example.org) [run](javascript:alert())"},
            output={
                "html": '<p><a href="https://example.org">docs</a> [run](javascript:alert())</p>'
            },
        ),
    ]
    input_schema = HtmlInput
    output_schema = HtmlOutput

    def execute(self, inputs: dict[str, Any], context: "Context[Any]") -> dict[str, Any]:
        """Render the document."""
        text = HtmlInput.model_validate(inputs).text.replace("\r\n", "\n")
        return {"html": "\n".join(_blocks(text))}


def _blocks(text: str) -> Iterable[str]:
    for position, piece in enumerate(FENCE.split(text)):
        if position % 2:
            yield f"<pre><code>{escape(piece)}</code></pre>"
        else:
            for tag, lines in groupby(piece.split("\n"), key=_tag_of):
                yield from _block(tag, list(lines))


def _tag_of(line: str) -> str:
    if not line.strip():
        return ""
    return next((tag for tag, pattern in LINE_PATTERNS.items() if pattern.fullmatch(line)), "p")


def _block(tag: str, lines: list[str]) -> Iterable[str]:
    if tag == "h":
        yield from (_element(f"h{line.index(' ')}", _strip_mark(line)) for line in lines)
    elif tag == "p":
        yield _element(tag, "\n".join(line.strip() for line in lines))
    elif tag:
        yield f"<{tag}>"
        yield from (_element("li", _strip_mark(line)) for line in lines)
        yield f"</{tag}>"


def _strip_mark(line: str) -> str:
    return line.split(" ", 1)[1].strip()


def _element(tag: str, text: str) -> str:
    return f"<{tag}>{_inline(text)}</{tag}>"


def _inline(text: str) -> str:
    parts, end = [], 0
    for match in INLINE.finditer(text):
        parts += [escape(text[end : match.start()]), _span(match)]
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def _span(match: re.Match[str]) -> str:
    if match["code"]:
        return f"<code>{escape(match['code'])}</code>"
    if match["url"]:
        return f'<a href="{escape(match["url"])}">{_inline(match["label"])}</a>'
    if match["strong"]:
        return _element("strong", match["strong"])
    return _element("em", match["em"])
