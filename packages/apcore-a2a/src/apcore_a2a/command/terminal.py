"""What the commands print on a terminal."""

import json
import shlex
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from apcore_a2a_client import AgentCard, Part, Task, TaskPage, TaskState
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.json import JSON
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .printers import Printer, Tell, base64, clean

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
    """Prints for people: results to standard output, the rest to standard error."""

    def __init__(self) -> None:
        self._out = Console(highlight=False)
        self._err = Console(stderr=True, highlight=False)
        self._open = False

    def card(self, card: AgentCard) -> None:
        self._out.print(Text.assemble((clean(card.name), "bold"), f"  {clean(card.version)}"))
        self._out.print(Text(clean(card.description)))
        facts = Table.grid(padding=(0, 2))
        for known in card.supported_interfaces:
            spoken = f"{known.protocol_binding} {known.protocol_version}"
            facts.add_row(Text(clean(spoken), "dim"), Text(clean(known.url)))
        can = card.capabilities
        names = {
            "streaming": can.streaming,
            "push notifications": can.push_notifications,
            "extended card": can.extended_agent_card,
        }
        has = ", ".join(name for name, yes in names.items() if yes)
        facts.add_row(Text("can", "dim"), Text(has or "nothing optional"))
        for name, scheme in card.security_schemes.items():
            kind = " ".join(filter(None, (scheme.type, scheme.scheme, scheme.name)))
            facts.add_row(Text("credentials", "dim"), Text(clean(f"{name}: {kind}")))
        self._out.print(facts, "")
        skills = Table(box=SIMPLE_HEAD, show_lines=True, expand=True, title_justify="left")
        count = len(card.skills)
        skills.title = f"{count} skill{'s' * (count != 1)}"
        for title, ratio in (("skill", None), ("what it does", 3), ("tags", 1)):
            skills.add_column(title, overflow="fold", ratio=ratio)
        for skill in card.skills:
            told = [Text(clean(skill.description))]
            told += [Text(clean(example), "dim") for example in skill.examples[:1]]
            tags = Text(clean(", ".join(skill.tags)))
            skills.add_row(Text(clean(skill.id), "bold"), Group(*told), tags)
        self._out.print(skills)

    def tasks(self, page: TaskPage) -> None:
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
            table.add_row(ids, Text.assemble(_state(task), "\n", skill), since)
        self._out.print(table)
        if page.next_cursor:
            self._err.print(Text(f"More: --cursor {shlex.quote(clean(page.next_cursor))}", "dim"))

    def task(self, task: Task) -> None:
        self._out.print(
            Text(clean(task.id), "bold"), _state(task), Text(clean(task.status.timestamp), "dim")
        )
        for message in task.history:
            self._out.print(Text(f"{message.role}:", "dim"))
            self._parts(message.parts)
        if task.status.message:
            self._out.print(Text("agent:", "dim"))
            self._parts(task.status.message.parts)
        for artifact in task.artifacts:
            self._out.print(Text(clean(artifact.name or artifact.artifact_id), "bold"))
            self._parts(artifact.parts)

    def result(self, task: Task) -> None:
        parts = [part for artifact in task.artifacts for part in artifact.parts]
        message = task.status.message
        self._parts(parts or (message.parts if message else ()), indent=0)

    def chunk(self, value: Any) -> None:
        self.chunks += 1
        if isinstance(value, str):
            self._out.out(clean(value), end="", highlight=False)
            sys.stdout.flush()
            self._open = True
        else:
            self.end()
            self._out.print(_json(value, indent=None))

    def end(self) -> None:
        if self._open:
            self._out.print()
        self._open = False

    def question(self, task: Task, url: str, skill: str) -> None:
        self._err.print(_state(task), Text(f"task {clean(task.id)}", "dim"))
        self._said(task)
        answer = ["--task", clean(task.id), "--input", "…"]
        command = shlex.join(["apcore-a2a", "call", url, skill or "SKILL", *answer])
        self._err.print(Text(f"Answer with: {command}", "dim"), soft_wrap=True)

    def ask(self, task: Task) -> str | None:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return None
        self._said(task)
        try:
            return self._err.input("[magenta]?[/] ") or None
        except EOFError:
            self._err.print()
            return None

    @contextmanager
    def progress(self) -> Generator[Tell]:
        with elapsing(self._err) as describe:
            yield lambda task: describe(_gets_on(task))

    def _said(self, task: Task) -> None:
        """What the agent says about the task."""
        parts = task.status.message.parts if task.status.message else ()
        self._parts(parts, console=self._err)

    def _parts(self, parts: Any, indent: int = 2, console: Console | None = None) -> None:
        for part in parts:
            shown = Padding(_shown(part), (0, 0, 0, indent)) if indent else _shown(part)
            (console or self._out).print(shown, soft_wrap=not indent)


@contextmanager
def elapsing(console: Console) -> Generator[Callable[[str], None]]:
    """Show a line with the time that has passed; gives a function that sets its text."""
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task("", total=None)
        yield lambda text: progress.update(line, description=text)


def _gets_on(task: Task) -> str:
    """Return a line that tells how a task gets on."""
    said = task.status.message.value if task.status.message else ""
    text = clean(said).partition("\n")[0][:80] if isinstance(said, str) else ""
    made = sum(len(artifact.parts) for artifact in task.artifacts)
    return "  ".join(filter(None, (task.status.state, f"{made} parts" if made else "", text)))


def _shown(part: Part) -> RenderableType:
    if part.text is not None:
        return Text(clean(part.text))
    if part.raw is not None:
        name = clean(part.filename) or "a file"
        size = f"{len(part.raw):,} bytes, {clean(part.media_type) or 'of unknown type'}"
        return Text(f"{name}: {size} (--output DIR saves it)", "yellow")
    return Text(clean(part.url), "underline") if part.url is not None else _json(part.data)


def _json(value: Any, indent: int | None = 2) -> JSON:
    text = json.dumps(value, ensure_ascii=False, default=base64)
    return JSON(clean(text), indent=indent)


def _state(task: Task) -> Text:
    return Text(str(task.status.state), COLORS.get(task.status.state, ""))
