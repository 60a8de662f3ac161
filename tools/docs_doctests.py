"""Hook of MkDocs: show examples in docstrings as code.

They begin with `>>>`, or have a fence with options for the tests.
"""

import re
from typing import Any

from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor


def on_config(config: Any) -> Any:
    """Add the extension of Markdown."""
    config.markdown_extensions.append(Doctests())
    return config


FENCE_OPTIONS = re.compile(r'(```\w+)(?: \w+="[^"]*")+ *$')


class Doctests(Extension):
    """Fences, without options, around all examples."""

    def extendMarkdown(self, md: Any) -> None:
        """Run before fences are parsed, whose priority is 25."""
        md.preprocessors.register(Fences(md), "doctests", 30)


class Fences(Preprocessor):
    """Put a fence around each paragraph that begins with `>>>`."""

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
