"""MkDocs hook that shows the examples in docstrings as code.

An example begins with `>>>`, or is in a fence, which may have options for the tests.
"""

import re
from typing import Any

from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor


def on_config(config: Any) -> Any:
    """Register the Markdown extension."""
    config.markdown_extensions.append(Doctests())
    return config


FENCE_OPTIONS = re.compile(r'(```\w+)(?: \w+="[^"]*")+ *$')


class Doctests(Extension):
    """The Markdown extension that runs `Fences`."""

    def extendMarkdown(self, md: Any) -> None:
        """Register the preprocessor to run before the one that parses fences (priority 25)."""
        md.preprocessors.register(Fences(md), "doctests", 30)


class Fences(Preprocessor):
    """Put fences around paragraphs that begin with `>>>`; remove test options from other fences."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines with fences."""
        fenced: list[str] = []
        is_example = False
        for line in [*lines, ""]:
            if line.startswith(">>> ") and not is_example and (not fenced or not fenced[-1]):
                is_example = True
                fenced.append("```pycon")
            elif is_example and not line:
                is_example = False
                fenced.append("```")
            fenced.append(FENCE_OPTIONS.sub(r"\1", line) if "title=" not in line else line)
        return fenced
