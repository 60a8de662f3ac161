"""The output of the commands that call agents, as JSON for programs."""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from apcore_a2a_client import AgentCard, Task, TaskPage

CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Surrogates, line separators, bidirectional controls and terminal controls.

Line feeds and tabs are not among them.
"""


def clean(text: str) -> str:
    """Remove control characters: text from an agent must not control the terminal."""
    return CONTROL_CHARACTERS.sub("", text)


class ProgressLines:
    """Progress messages of a task, one per line.

    Args:
        write: The function that writes a line: the state of the task, and the message.
    """

    def __init__(self, write: Callable[[str, str], None]) -> None:
        self._write = write
        self._shown = ("", "")

    def has_news(self, task: Task) -> bool:
        """Return whether *task* runs and has a message with text that was not shown yet."""
        return progress_text(task) != "" and _id_and_text(task) != self._shown

    def show(self, task: Task) -> None:
        """Show the message in the status of *task*, unless it was shown."""
        if self.has_news(task):
            self.remember_shown(task)
            self._write(str(task.status.state), progress_text(task))

    def remember_shown(self, task: Task) -> None:
        """Remember the message in the status of *task* as shown."""
        self._shown = _id_and_text(task)

    def hide(self) -> None:
        """Do nothing: printed lines stay."""


def progress_text(task: Task) -> str:
    """Return the text of the status message; empty if there is none or the task is settled."""
    message = task.status.message
    if message is None or task.status.state.is_settled:
        return ""
    return " ".join(part.text for part in message.parts if part.text)


def _id_and_text(task: Task) -> tuple[str, str]:
    # not the message itself: its data may be nested too deeply to be compared
    message = task.status.message
    return (message.message_id if message else "", progress_text(task))


class Printer:
    """A printer of JSON to standard output, and of errors to standard error.

    Attributes:
        chunk_count: The number of chunks that have been printed.
        shows_states: Whether progress is also shown for a task without a message.
    """

    chunk_count = 0
    shows_states = False

    def card(self, card: AgentCard) -> None:
        """Print an Agent Card in the format of A2A 1.0."""
        self._print_json(card.to_dict())

    def tasks(self, page: TaskPage) -> None:
        """Print a page of tasks."""
        self._print_json(page.to_dict())

    def task(self, task: Task) -> None:
        """Print a task."""
        self._print_json(task.to_dict())

    def webhooks(self, webhooks: list[dict[str, Any]], *, with_attempts: bool = False) -> None:
        """Print webhooks as the agent describes them."""
        self._print_json({"webhooks": webhooks})

    def attempt(self, attempt: dict[str, Any]) -> None:
        """Print an attempt to deliver a notification."""
        self._print_json({"attempt": attempt})

    def requeued(self, count: int) -> None:
        """Print the number of notifications that will be delivered again."""
        self._print_json({"requeued": count})

    def result(self, task: Task) -> None:
        """Print the value of a completed task, with bytes in base64."""
        self._print_json(task.value)

    def chunk(self, value: Any) -> None:
        """Print the value of a chunk on a line of its own."""
        self.chunk_count += 1
        self._print_json(value, indent=None)

    def end_chunks(self) -> None:
        """Do nothing: each chunk is on a line of its own."""

    def check(self, name: str, outcome: str, details: str) -> None:
        """Do nothing with the result of a check: `verdict` prints all results."""

    def verdict(self, text: str, checks: Sequence[tuple[str, str, str]]) -> None:
        """Print the results of all checks, and the verdict."""
        names = ("name", "outcome", "details")
        entries = [dict(zip(names, check, strict=True)) for check in checks]
        self._print_json({"verdict": text, "checks": entries})

    def saved(self, path: Path) -> None:
        """Print the path of a file that was written."""
        print(path)

    def question(self, task: Task, url: str, skill: str | None) -> None:
        """Print a task that waits for input."""
        self.task(task)

    def ask(self, task: Task) -> str | dict[str, Any] | None:
        """Return None: only `Terminal` asks the user."""
        return None

    def confirm(self, question: str) -> bool:
        """Return False: only `Terminal` asks the user."""
        return False

    def restarted(self) -> None:
        """Print that the chunks so far will be repeated."""
        self.end_chunks()
        self._print_error("apcore-a2a", "The task was restarted: discard the chunks before this")

    def failure(self, task: Task) -> None:
        """Print the state and the message of a task that did not complete."""
        parts = task.status.message.parts if task.status.message else ()
        text = " ".join(part.text for part in parts if part.text)
        self._print_error("apcore-a2a", f"The task is {task.status.state}", text)
        for part in parts:
            if part.raw is not None or part.url is not None:
                self._print_error(f"    {part.url or part.filename or 'a file'}")
            elif part.text is None:
                data = json.dumps(part.data, ensure_ascii=False, default=encode_bytes)
                self._print_error(f"    {data}")

    def error(self, error: Exception, invalid_fields: Iterable[dict[str, Any]] = ()) -> None:
        """Print an error, and the invalid fields of the input with their messages."""
        self._print_error("apcore-a2a", str(error))
        for entry in invalid_fields:
            self._print_error(f"  {entry.get('field') or 'input'}", str(entry.get("message", "")))

    def hint(self, text: str) -> None:
        """Print advice after an error."""
        self._print_error(f"    {text}")

    def progress(self, state: str, text: str) -> None:
        """Print the state of a task, and its progress message."""
        self._print_error(state, text)

    def _print_error(self, *parts: str) -> None:
        print(clean(": ".join(filter(None, parts))).replace("\n", "\n    "), file=sys.stderr)

    def _print_json(self, value: Any, indent: int | None = 2) -> None:
        encoding = str(getattr(sys.stdout, "encoding", "")).lower()
        ascii_only = encoding not in ("utf-8", "utf8")
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=encode_bytes)
        escaped = CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        print(escaped, flush=True)


def encode_bytes(value: Any) -> str:
    """Encode bytes, which JSON cannot represent, in base64."""
    return b64encode(value).decode()
