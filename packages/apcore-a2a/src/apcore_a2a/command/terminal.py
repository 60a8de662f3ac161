"""The output of the commands that call agents, on a terminal."""

import json
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from apcore_a2a_client import AgentCard, Part, Task, TaskPage, TaskState
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.json import JSON
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .printers import Printer, ProgressLines, clean, encode_bytes, progress_text
from .questions import Question, ask_for_members

COLORS = {
    TaskState.COMPLETED: "green",
    TaskState.WORKING: "cyan",
    TaskState.SUBMITTED: "cyan",
    TaskState.FAILED: "red",
    TaskState.REJECTED: "red",
    TaskState.CANCELED: "yellow",
    TaskState.INPUT_REQUIRED: "magenta",
    TaskState.AUTH_REQUIRED: "magenta",
}


class Terminal(Printer):
    """A printer for people; results go to standard output, everything else to standard error."""

    shows_states = True

    def __init__(self) -> None:
        self._out = Console(highlight=False)
        self._err = Console(stderr=True, highlight=False)
        self._is_line_open = False

    def card(self, card: AgentCard) -> None:
        """Print an Agent Card as tables."""
        self._out.print(Text.assemble((clean(card.name), "bold"), f"  {clean(card.version)}"))
        self._out.print(Text(clean(card.description)))
        facts = Table.grid(padding=(0, 2))
        for interface in card.supported_interfaces:
            protocol = f"{interface.protocol_binding} {interface.protocol_version}"
            facts.add_row(Text(clean(protocol), "dim"), Text(clean(interface.url)))
        capabilities = card.capabilities
        flags = {
            "streaming": capabilities.streaming,
            "push notifications": capabilities.push_notifications,
            "extended card": capabilities.extended_agent_card,
        }
        enabled = ", ".join(name for name, is_enabled in flags.items() if is_enabled)
        facts.add_row(Text("capabilities", "dim"), Text(enabled or "none"))
        for name, scheme in card.security_schemes.items():
            kind = " ".join(filter(None, (scheme.type, scheme.scheme, scheme.name)))
            facts.add_row(Text("credentials", "dim"), Text(clean(f"{name}: {kind}")))
        self._out.print(facts, "")
        skills = Table(box=SIMPLE_HEAD, show_lines=True, expand=True, title_justify="left")
        skills.title = format_count(len(card.skills), "skill")
        for title, ratio in (("skill", None), ("description", 3), ("tags", 1)):
            skills.add_column(title, overflow="fold", ratio=ratio)
        for skill in card.skills:
            lines = [Text(clean(skill.description))]
            lines += [Text(clean(example), "dim") for example in skill.examples[:1]]
            tags = Text(clean(", ".join(skill.tags)))
            skills.add_row(Text(clean(skill.id), "bold"), Group(*lines), tags)
        self._out.print(skills)

    def tasks(self, page: TaskPage) -> None:
        """Print a page of tasks as a table."""
        if not page.tasks:
            self._out.print("No tasks.")
            return
        table = Table(box=SIMPLE_HEAD)
        for title in ("task, conversation", "state, skill", "since"):
            table.add_column(title, overflow="fold")
        for task in page.tasks:
            ids = Text.assemble(clean(task.id), "\n", (clean(task.context_id), "dim"))
            skill = clean(str(task.metadata.get("skillId", "")))
            since = Text(clean(task.status.timestamp[:19]).replace("T", " "))
            table.add_row(ids, Text.assemble(_render_state(task), "\n", skill), since)
        self._out.print(table)
        if page.next_cursor:
            self._err.print(Text(f"More: --cursor {shlex.quote(clean(page.next_cursor))}", "dim"))

    def task(self, task: Task) -> None:
        """Print a task with its messages and artifacts."""
        self._out.print(
            Text(clean(task.id), "bold"),
            _render_state(task),
            Text(clean(task.status.timestamp), "dim"),
        )
        for message in task.history:
            self._out.print(Text(f"{message.role}:", "dim"))
            self._print_parts(message.parts)
        if task.status.message:
            self._out.print(Text("agent:", "dim"))
            self._print_parts(task.status.message.parts)
        for artifact in task.artifacts:
            self._out.print(Text(clean(artifact.name or artifact.artifact_id), "bold"))
            self._print_parts(artifact.parts)

    def webhooks(self, webhooks: list[dict[str, Any]], *, with_attempts: bool = False) -> None:
        """Print webhooks as a table, with the last attempt, or all attempts, of each."""
        if not webhooks:
            self._out.print("No webhooks.")
            return
        table = Table(box=SIMPLE_HEAD)
        attempts_title = "attempts" if with_attempts else "last attempt"
        for title in ("task, webhook", "URL", "state", attempts_title):
            table.add_column(title, overflow="fold")
        for hook in webhooks:
            ids = Text.assemble(_plain(hook.get("taskId")), "\n", (_plain(hook.get("id")), "dim"))
            pending = hook.get("pending")
            lines = [_plain(hook.get("reason") or hook.get("state"))]
            if pending:
                lines.append(f"{pending} pending, next {_format_time(hook.get('nextAttemptAt'))}")
            attempts: list[Any] = hook.get("attempts") or []
            history = "\n".join(map(_format_attempt, attempts if with_attempts else attempts[:1]))
            table.add_row(ids, Text(_plain(hook.get("url"))), Text("\n".join(lines)), Text(history))
        self._out.print(table)

    def attempt(self, attempt: dict[str, Any]) -> None:
        """Print an attempt to deliver a notification."""
        self._out.print(Text(_format_attempt(attempt)))

    def requeued(self, count: int) -> None:
        """Print the number of notifications that will be delivered again."""
        if count:
            text = f"{format_count(count, 'notification')} will be delivered again."
        else:
            text = "Nothing to deliver again: the webhook has not failed, or has no dead letters."
        self._out.print(text)

    def result(self, task: Task) -> None:
        """Print the artifacts of a completed task, or else its message."""
        parts = [part for artifact in task.artifacts for part in artifact.parts]
        message = task.status.message
        self._print_parts(parts or (message.parts if message else ()), indent=0)

    def chunk(self, value: Any) -> None:
        """Print a chunk, continuing the line of the previous one if both are text."""
        self.chunk_count += 1
        if isinstance(value, str):
            self._out.out(clean(value), end="", highlight=False)
            sys.stdout.flush()
            self._is_line_open = True
        else:
            self.end_chunks()
            self._out.print(_render_json(value, indent=None))

    def end_chunks(self) -> None:
        """End the line after the last chunk, if it was text."""
        if self._is_line_open:
            self._out.print()
        self._is_line_open = False

    def check(self, name: str, outcome: str, details: str) -> None:
        """Print the result of a check as soon as it is known."""
        color = {"ok": "green", "FAILED": "red"}.get(outcome, "dim")
        line = Text.assemble((f"{outcome:<8}", color), (f"{name:<12}", "bold"), clean(details))
        self._out.print(line, soft_wrap=True)

    def verdict(self, text: str, checks: Sequence[tuple[str, str, str]]) -> None:
        """Print a verdict on all checks."""
        self._out.print("", Text(text, "bold"), sep="\n")

    def question(self, task: Task, url: str, skill: str | None) -> None:
        """Print the question of a paused task, and the command that answers it."""
        self._err.print(_render_state(task), Text(f"task {clean(task.id)}", "dim"))
        self._print_question(Question.of(task))
        answer = ["--task", clean(task.id), "--input", "…"]
        command = shlex.join(["apcore-a2a", "call", url, *filter(None, [skill]), *answer])
        self._err.print(Text(f"Answer with: {command}", "dim"), soft_wrap=True)

    def ask(self, task: Task) -> str | dict[str, Any] | None:
        """Ask the user what a paused task asks, and return the answer; None if there is no answer.

        Only an interactive command asks. A question with a JSON Schema is answered value by value.
        """
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        question = Question.of(task)
        self._print_question(question)
        try:
            if question.schema:
                return ask_for_members(
                    question.schema, self._read, lambda text: self._err.print(Text(text))
                )
            return self._read() or None
        except EOFError:
            self._err.print()
            return None

    def _read(self, prompt: str = "") -> str:
        return self._err.input(Text.assemble(prompt, ("? ", "magenta")))

    def confirm(self, question: str) -> bool:
        """Ask a yes/no question; return False if the command is not interactive."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        try:
            answer = self._err.input(Text(f"{clean(question)} [y/N] "))
        except EOFError:
            self._err.print()
            return False
        return answer.strip().lower() in ("y", "yes")

    def _print_question(self, question: Question) -> None:
        self._print_parts(question.parts, console=self._err)
        for choice in question.choices:
            self._err.print(Text(f"  - {clean(choice)}"))

    def _print_parts(self, parts: Any, indent: int = 2, console: Console | None = None) -> None:
        for part in parts:
            rendered = _render_part(part)
            padded = Padding(rendered, (0, 0, 0, indent)) if indent else rendered
            (console or self._out).print(padded, soft_wrap=not indent)


class LiveProgressLine(ProgressLines):
    """A line with the progress of a task and the elapsed time.

    Args:
        is_eager: Whether the line is shown for tasks without a message, too.
    """

    def __init__(self, *, is_eager: bool) -> None:
        super().__init__(lambda state, text: None)
        self._progress = _new_progress(Console(stderr=True, highlight=False))
        self._line = self._progress.add_task("", total=None)
        self._is_eager = is_eager
        self._is_visible = False

    def show(self, task: Task) -> None:
        """Show the progress of *task*."""
        if task.status.state.is_settled:
            self.hide()
        elif self._is_eager or self._is_visible or self.has_news(task):
            self.remember_shown(task)
            self._progress.update(self._line, description=format_progress(task))
            self._progress.start()
            self._is_visible = True

    def hide(self) -> None:
        """Remove the line; `show` can bring it back."""
        if self._is_visible:
            self._progress.stop()
        self._is_visible = False


@contextmanager
def show_elapsed(console: Console) -> Generator[Callable[[str], None]]:
    """Show a line with the elapsed time; yield a function that sets its text."""
    with _new_progress(console) as progress:
        line = progress.add_task("", total=None)
        yield lambda text: progress.update(line, description=text)


def _new_progress(console: Console) -> Progress:
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    return Progress(*columns, console=console, transient=True)


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural if necessary.

    Example:
        ```python
        from apcore_a2a.command.terminal import format_count

        print(format_count(1, "part"), format_count(2000, "part"))
        #> 1 part 2,000 parts
        ```
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_progress(task: Task) -> str:
    """Return a line with the state, the number of parts and the message of a task."""
    text = clean(progress_text(task)).partition("\n")[0][:80]
    part_count = sum(len(artifact.parts) for artifact in task.artifacts)
    parts = format_count(part_count, "part") if part_count else ""
    return "  ".join(filter(None, (task.status.state, parts, text)))


def _render_part(part: Part) -> RenderableType:
    if part.text is not None:
        return Text(clean(part.text))
    if part.raw is not None:
        name = clean(part.filename) or "a file"
        size = f"{format_count(len(part.raw), 'byte')}, {clean(part.media_type) or 'unknown type'}"
        return Text(f"{name}: {size} (save it with --output DIR)", "yellow")
    return Text(clean(part.url), "underline") if part.url is not None else _render_json(part.data)


def _render_json(value: Any, indent: int | None = 2) -> JSON:
    text = json.dumps(value, ensure_ascii=False, default=encode_bytes)
    return JSON(clean(text), indent=indent)


def _render_state(task: Task) -> Text:
    return Text(str(task.status.state), COLORS.get(task.status.state, ""))


def _plain(value: Any) -> str:
    """Convert a value from an agent to text for a terminal."""
    return "" if value is None else clean(str(value))


def _format_time(value: Any) -> str:
    return _plain(value)[:19].replace("T", " ")


def _format_attempt(attempt: Any) -> str:
    """Return an attempt as one line: time, result, status (or else the reason), and duration."""
    details = cast("dict[str, Any]", attempt) if isinstance(attempt, dict) else {}
    words = [_format_time(details.get("at")), *map(_plain, map(details.get, ("result", "status")))]
    if details.get("status") is None:
        words.append(_plain(details.get("reason")))
    seconds = details.get("seconds")
    if isinstance(seconds, int | float):
        words.append(f"{seconds:.3f} s")
    return " ".join(filter(None, words))
