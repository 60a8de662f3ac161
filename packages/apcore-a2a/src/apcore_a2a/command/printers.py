"""What the commands print: JSON for programs, something to read for people."""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from apcore_a2a_client import AgentCard, Task, TaskPage

Tell: TypeAlias = Callable[[Task], None]
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What drives a terminal, turns lines around or can't be written; not line feeds and tabs."""


def clean(text: str) -> str:
    """*text* without control characters: agents are not trusted with a terminal."""
    return CONTROLS.sub("", text)


class Printer:
    """Prints JSON to standard output, and what went wrong to standard error.

    Attributes:
        chunks: How many chunks have been printed.
    """

    chunks = 0

    def card(self, card: AgentCard) -> None:
        """An agent's card, in the form of A2A 1.0."""
        self._json(card.to_dict())

    def tasks(self, page: TaskPage) -> None:
        """A page of tasks."""
        self._json(page.to_dict())

    def task(self, task: Task) -> None:
        """One task."""
        self._json(task.to_dict())

    def result(self, task: Task) -> None:
        """The value of a task that completed; bytes in base64."""
        self._json(task.value)

    def chunk(self, value: Any) -> None:
        """The value of a chunk, on a line of its own."""
        self.chunks += 1
        self._json(value, indent=None)

    def end(self) -> None:
        """There are no more chunks."""

    def saved(self, path: Path) -> None:
        """A file has been written."""
        print(path)

    def question(self, task: Task, url: str, skill: str) -> None:
        """The task waits for input."""
        self.task(task)

    def ask(self, task: Task) -> str | None:
        """What the user answers to a paused task; None where there is nobody to ask."""
        return None

    def failure(self, task: Task) -> None:
        """The task ended otherwise than completed."""
        parts = task.status.message.parts if task.status.message else ()
        text = " ".join(part.text for part in parts if part.text)
        self._complain("apcore-a2a", f"The task is {task.status.state}", text)
        for part in parts:
            if part.text is None:
                data = json.dumps(part.data, ensure_ascii=False, default=base64)
                self._complain(f"    {data}")

    def error(self, error: Exception, errors: Iterable[dict[str, Any]] = ()) -> None:
        """What stood in the way."""
        self._complain("apcore-a2a", str(error))
        for entry in errors:
            self._complain(f"  {entry.get('field') or 'input'}", str(entry.get("message", "")))

    def hint(self, text: str) -> None:
        """What may help."""
        self._complain(f"    {text}")

    @contextmanager
    def progress(self) -> Generator[Tell]:
        """Gives a function that tells how a task gets on."""
        yield lambda task: None

    def _complain(self, *words: str) -> None:
        print(clean(": ".join(filter(None, words))).replace("\n", "\n    "), file=sys.stderr)

    def _json(self, value: Any, indent: int | None = 2) -> None:
        encoding = str(getattr(sys.stdout, "encoding", "")).lower()
        ascii_only = encoding not in ("utf-8", "utf8")
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=base64)
        print(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True)


def base64(value: Any) -> str:
    """Bytes, for which JSON has no form."""
    return b64encode(value).decode()
