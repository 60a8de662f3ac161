"""Command-line programs as agents; each turn starts the program."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import re
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from apcore_a2a_core import File, Usage
from apcore_a2a_core.values import is_object

from . import parts
from .agent import Agent
from .parts import Json
from .programs import MAX_ERROR_BYTES, CommandError, Program
from .turn import Turn

Format = Literal["text", "json", "lines"]

TEXT_PLACEHOLDER, SESSION_PLACEHOLDER = "{text}", "{session}"
"""Placeholders in the arguments of a command."""
GRACE = 5.0
"""Seconds to wait between SIGTERM and SIGKILL."""
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
"""Maximum size of a program's output in the format `json`, in bytes."""
MAX_PARSE_ATTEMPTS = 100
"""Maximum number of attempts to parse a document of several lines; each attempt may take long."""
SECRET_PREFIX = "APCORE_"
"""Prefix of environment variables that may hold secrets; programs do not inherit them."""
SEPARATOR = "\n\n"
"""Text between two messages of an agent in one turn."""


class SessionError(CommandError):
    """The session of the conversation is missing, or exists already; another command may work."""


class CommandEvent(NamedTuple):
    """A value that a program has written.

    Attributes:
        value: Text, or JSON.
        follows_text: Whether an earlier value of the turn had text for the user.
    """

    value: Any
    follows_text: bool = False


def part_out(event: Any, turn: Turn) -> Any:
    """Convert the output of a program to chunks: text, or JSON as data.

    >>> part_out(CommandEvent({"n": 1}), turn=None)
    {'n': 1}
    """
    return parts.part_out(event.value if isinstance(event, CommandEvent) else event, turn)


def openclaw_part_out(event: Any, turn: Turn) -> Any:
    """Convert the answer of OpenClaw to chunks: its texts, the files at its URLs, and token counts.

    >>> openclaw_part_out(CommandEvent({"payloads": [{"text": "Hello"}]}), turn=None)
    ['Hello']
    """
    if not isinstance(event, CommandEvent) or not is_object(event.value):
        return part_out(event, turn)
    payloads = [payload for payload in event.value.get("payloads") or () if is_object(payload)]
    texts = [payload["text"] for payload in payloads if payload.get("text")]
    urls = [payload["mediaUrl"] for payload in payloads if payload.get("mediaUrl")]
    # URLs without http or https are paths on the machine that OpenClaw runs on
    files = [File(url=url) for url in urls if url.startswith(("https://", "http://"))]
    counts = object_at(event.value, "meta", "agentMeta", "usage")
    usage = [Usage(counts.get("input") or 0, counts.get("output") or 0)] if counts else []
    return [*([SEPARATOR.join(texts)] if texts else ()), *files, *usage]


def object_at(value: Any, *names: str) -> Json:
    """Return the object at a path of member names, or an empty object."""
    for name in names:
        value = value.get(name) if is_object(value) else None
    return {**value} if is_object(value) else {}


class Command(NamedTuple):
    """The name and arguments of a program, and its standard input."""

    arguments: Sequence[str]
    text: str = ""


class CommandAgent(Agent):
    """A program that answers messages, with a process for each turn.

    The program gets the text in the argument that has `{text}`, or else on standard input.
    `{session}` becomes an id of the conversation; authenticated callers get different ids.
    Files of the message are written to a folder for the turn, and their paths are listed at the end
    of the text. A cancellation ends the program and all processes that it has started.

    Args:
        command: The program and its arguments; a `str` is split as in a shell.
        output: Format of the program's output: `text`, which is streamed; `json`, one document,
            perhaps among other lines; or `lines`, a JSON object in each line. With JSON,
            `output_key` names the member with the text.
        cwd: The folder that the program runs in.
        env: Variables for the program, in addition to the server's. The program does not inherit
            variables that begin with `APCORE_`.
        grace: Seconds to wait after a cancellation before the program is killed.
        options: Options of `Agent`.
    """

    environment: Mapping[str, str] = {}
    """Variables that the program gets if the server does not have them."""
    default_part_out = staticmethod(part_out)

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        output: Format = "text",
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        grace: float = GRACE,
        **options: Any,
    ) -> None:
        self._command: list[str] = shlex.split(command) if isinstance(command, str) else [*command]
        if not self._command:
            raise ValueError("A command needs the name of a program")
        name = PurePath(self._command[0]).name
        defaults: Json = {"name": name, "description": f"The program {name}."}
        super().__init__(**{**defaults, **options})
        self._output = output
        self._cwd = cwd
        self._env = dict(env or {})
        self._grace = grace

    async def run(self, turn: Turn) -> AsyncIterator[Any]:
        """Run the program, and yield what it writes."""
        with _write_files(turn.files) as paths:
            commands = [*self.commands(turn, await self.prompt(turn, paths), paths)]
            for number, command in enumerate(commands, 1):
                try:
                    async with aclosing(self._events(command, turn)) as events:
                        async for event in events:
                            yield event
                except SessionError:
                    if number == len(commands):
                        raise
                else:
                    return

    def commands(self, turn: Turn, text: str, paths: Sequence[Path]) -> Iterable[Command]:
        """Return the commands of a turn; after a `SessionError`, the next command runs."""
        session = session_digest(turn)
        arguments = [word.replace(SESSION_PLACEHOLDER, session) for word in self._command]
        if any(TEXT_PLACEHOLDER in word for word in arguments):
            # a text that begins like an option must not be read as one
            safe_text = f" {text}" if text.startswith("-") else text
            filled = [
                word.replace(
                    TEXT_PLACEHOLDER, safe_text if word.startswith(TEXT_PLACEHOLDER) else text
                )
                for word in arguments
            ]
            return [Command(filled)]
        return [Command(arguments, text)]

    async def prompt(self, turn: Turn, paths: Sequence[Path]) -> str:
        """Return the text for the program: the user's text, and the paths and URLs of the files."""
        text = parts.text_of(await self.mapped_input(turn))
        links = [file.url for file in turn.files if file.url is not None]
        lines = [f"- {location}" for location in (*paths, *links)]
        return "\n".join([text, "", "Files:", *lines]).lstrip() if lines else text

    def take_value(self, value: Any, turn: Turn) -> Any:
        """Rename the member `output_key` to `text`; subclasses may also remember a session."""
        if is_object(value) and self.output_key in value:
            data = {name: member for name, member in value.items() if name != self.output_key}
            return {**data, parts.TEXT: str(value[self.output_key])}
        return value

    def failure_in(self, value: Any) -> str:
        """Return the error that a value of the output reports; empty if there is none."""
        return ""

    def is_text(self, value: Any) -> bool:
        """Return whether a value of the output has text for the user."""
        if is_object(value):
            return self.output_key in value and str(value[self.output_key]) != ""
        return isinstance(value, str)

    def is_session_problem_in(self, problem: str) -> bool:
        """Return whether *problem* says that the session is missing or exists already.

        If so, the next command runs, unless the output already had text for the user.
        """
        return False

    async def _events(self, command: Command, turn: Turn) -> AsyncGenerator[CommandEvent]:
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(SECRET_PREFIX)}
        environment = {**self.environment, **inherited, **self._env}
        # the document may be in the error output; with one extra byte, `_check_size` can
        # tell that the error output is too long
        max_error_bytes = MAX_OUTPUT_BYTES + 1 if self._output == "json" else MAX_ERROR_BYTES
        program = await Program.start(
            command.arguments, self._grace, max_error_bytes, cwd=self._cwd, env=environment
        )
        try:
            program.write(command.text)
            failure, follows_text = "", False
            async with aclosing(self._values(program)) as values:
                async for value in values:
                    failure = failure or self.failure_in(value)
                    if not failure:
                        yield CommandEvent(self.take_value(value, turn), follows_text)
                        follows_text = follows_text or self.is_text(value)
            code = await program.exit_code()
            if code or failure:
                name = PurePath(command.arguments[0]).name
                problem = "\n".join(filter(None, [failure, program.error_text]))
                is_session_problem = not follows_text and self.is_session_problem_in(problem)
                error_type = SessionError if is_session_problem else CommandError
                raise error_type(f"{name} ended with the exit code {code}: {problem}")
        finally:
            await program.end()

    async def _values(self, program: Program) -> AsyncGenerator[Any]:
        """Yield the output of a program: pieces of text, or values of JSON."""
        if self._output == "text":
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            while data := await program.read():
                yield decoder.decode(data)
            if rest := decoder.decode(b"", final=True):  # the output ends within a character
                yield rest
        elif self._output == "lines":
            while line := await program.readline():
                if line.lstrip().startswith(b"{"):  # other lines, such as warnings, are not events
                    try:
                        value = json.loads(line)
                    except ValueError:  # a warning may begin with a brace, too
                        continue
                    yield value
        else:
            written = bytearray()
            while data := await program.read():
                written += data
                _check_size(written)
            await program.exit_code()
            # without output, the document may be in the error output
            output = written or program.error_output
            _check_size(output)
            try:
                value = await asyncio.to_thread(_document_in, output.decode(errors="replace"))
            except ValueError:
                if written:
                    raise
                value = None  # the error output has braces, but no document
            if value is not None:
                yield value


def _check_size(output: bytearray) -> None:
    if len(output) > MAX_OUTPUT_BYTES:
        raise CommandError(f"The output has more than {MAX_OUTPUT_BYTES} bytes")


def _document_in(text: str) -> Any:
    """Return the JSON document in a text; None if there is none.

    The document is the whole text, or else the first object or array on lines of its own, or else
    the object that begins at the first brace.

    Raises:
        ValueError: The text has an opening brace, but no document begins at the first brace.
    """
    with suppress(ValueError):
        return json.loads(text)
    decoder, attempts = json.JSONDecoder(), 0
    for line in re.finditer(r"^[{\[][^\r\n]*", text, re.MULTILINE):
        try:
            value, end = decoder.raw_decode(line[0])
        except json.JSONDecodeError as error:
            # in the first line of a longer document, the error is at the end of the line; in a
            # line that is not JSON, such as "[warning] old", it is before the end
            is_incomplete = error.pos >= len(line[0].rstrip())
            if not is_incomplete or attempts == MAX_PARSE_ATTEMPTS:
                continue
            attempts += 1
            with suppress(ValueError):
                value, end = decoder.raw_decode(text, line.start())
                if text[end : end + 1] in ("", "\r", "\n"):
                    return value
        else:
            if not line[0][end:].strip():
                return value
    return decoder.raw_decode(text, text.index("{"))[0] if "{" in text else None


def session_digest(turn: Turn) -> str:
    """Return the session id for programs: 32 hex digits, from the caller and the conversation."""
    return sha256(turn.session_id.encode()).hexdigest()[:32]


@contextmanager
def _write_files(files: Sequence[File]) -> Generator[list[Path]]:
    """Write files to a new folder, and remove it at the end."""
    uploads = [file for file in files if file.data is not None]
    if not uploads:
        yield []
        return
    with TemporaryDirectory(prefix="apcore-a2a-") as folder:
        paths: list[Path] = []
        for number, file in enumerate(uploads, 1):
            # the client chose the name: it may contain folders, or be used twice
            name = re.sub(r"[^\w.-]+", "_", PurePath(file.name.replace("\\", "/")).name)
            # file systems limit names to 255 bytes
            name = name.encode()[-200:].decode(errors="ignore").lstrip(".-") or "file"
            paths.append(Path(folder) / f"{number}-{name}")
            paths[-1].write_bytes(file.data or b"")
        yield paths


class OpenClawAgent(CommandAgent):
    """An agent of OpenClaw. The command `openclaw` runs once for each turn.

    Args:
        command: The command.
        agent_id: Id of an agent in OpenClaw's configuration.
        thinking: The level of thinking; models that can't think refuse every level.
        options: Options of `CommandAgent` and `Agent`.
    """

    default_part_out = staticmethod(openclaw_part_out)

    def __init__(
        self,
        *,
        command: str | Sequence[str] = "openclaw",
        agent_id: str | None = None,
        thinking: str | None = None,
        **options: Any,
    ) -> None:
        defaults: Json = {
            "name": "openclaw",
            "description": "An agent of OpenClaw.",
            "output": "json",
        }
        super().__init__(command, **{**defaults, **options})
        session_id = f"a2a-{SESSION_PLACEHOLDER}"
        self._command += ["agent", "--local", "--json", "--session-id", session_id]
        self._command += ["--thinking", thinking] if thinking else []
        self._command += ["--agent", agent_id] if agent_id else []
        self._command += ["--message", TEXT_PLACEHOLDER]

    def failure_in(self, value: Any) -> str:
        """Return the error in the answer of OpenClaw; empty if there is none."""
        if not is_object(value) or value.get("ok") is not False:
            return ""
        error = value.get("error")
        return str(error.get("message")) if is_object(error) else "no reason given"
