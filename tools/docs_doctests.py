"""Hook of MkDocs: show examples in docstrings, which begin with `>>>`, as code."""

from typing import Any

from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor


def on_config(config: Any) -> Any:
    """Add the extension of Markdown."""
    config.markdown_extensions.append(Doctests())
    return config


class Doctests(Extension):
    """Fences around examples that begin with `>>>`, which docstrings have without any."""

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
            fenced.append(line)
        return fenced
